# IPv6 in IPv4, the reverse, and IPv6 in IPv6 by kernel ESP, with strongSwan and
# with ourselves.
# CASES: 6in4 4in6 6in6
# MORE: 6in4-ours 4in6-ours
# PLANE: kernel
net_direct
case $CASE in *-ours) ours_too ;; esac
[ "${CASE%-ours}" = 6in4 ] || ipv6_outer
site
if [ "${CASE%-ours}" != 4in6 ]; then
    net us local_ts $LEFT_NET6
    net us remote_ts $RIGHT_NET6
    net them local_ts $RIGHT_NET6
    net them remote_ts $LEFT_NET6
fi
start
for side in us them; do
    up $side
    installed
    if [ "${CASE%-ours}" = 4in6 ]; then ping_both; else ping_both $LEFT_IN6 $RIGHT_IN6; fi
    counted 6
    rekey "$(other $side)" child
    rekey "$(other $side)" ike
    down $side ike
    gone
    kernel_clean us them
done
expect_wire "$(if [ "${CASE%-ours}" = 6in4 ]; then echo ip proto 50; else echo ip6 proto 50; fi)"
