# libreswan 5.2, brought up and taken down by either side, with traffic both ways and
# rekeys by both; the case `defaults` has proposals at neither end.
# CASES: psk defaults transport ipv6
# THEM: libreswan
# PLANE: userspace kernel
# TIMEOUT: 120
net_direct
[ "$CASE" != ipv6 ] || ipv6_outer
site
left=$LEFT_IN right=$RIGHT_IN
case $CASE in
psk) ip -n right route add $LEFT_NET via "$US_OWN" ;;
defaults)
    ip -n right route add $LEFT_NET via "$US_OWN"
    for key in proposals children.net.esp_proposals; do conf both connections.site.$key ''; done
    ;;
transport)
    transport
    left=$US_OWN right=$THEM_OWN
    ;;
ipv6)
    net us local_ts $LEFT_NET6
    net us remote_ts $RIGHT_NET6
    net them local_ts $RIGHT_NET6
    net them remote_ts $LEFT_NET6
    ip -n right -6 route add $LEFT_NET6 via "$US_OWN"
    left=$LEFT_IN6 right=$RIGHT_IN6
    ;;
esac
start
for side in us them; do
    up $side
    installed
    [ "$CASE" != transport ] || expect_both 'map_values(children[0].mode) == {us: "TRANSPORT", them: "TRANSPORT"}'
    ping_both $left $right
    counted 6
    rekey us child
    rekey them ike
    if [ $side = them ]; then
        rekey them child
        rekey us ike
    fi
    ping_both $left $right
    down $side ike
    gone
done
expect_wire 'ip proto 50 or ip6 proto 50'
[ "$DATA_PLANE" != kernel ] || kernel_clean us
