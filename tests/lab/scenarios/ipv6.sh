# IPv6 outside, inside, and both; one side brings it up, the other rekeys.
# CASES: 6in4 4in6 6in6
net_direct
[ "$CASE" = 6in4 ] || ipv6_outer
site
if [ "$CASE" != 4in6 ]; then
    net us local_ts $LEFT_NET6
    net us remote_ts $RIGHT_NET6
    net them local_ts $RIGHT_NET6
    net them remote_ts $LEFT_NET6
fi
start
for side in us them; do
    up $side
    installed
    if [ "$CASE" = 4in6 ]; then ping_both; else ping_both $LEFT_IN6 $RIGHT_IN6; fi
    counted 6
    rekey "$(other $side)" child
    rekey "$(other $side)" ike
    down $side ike
    gone
done
