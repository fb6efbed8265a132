# A road warrior with a virtual IP moves to another address (RFC 4555): ours with libreswan as
# gateway, and libreswan with ours. libreswan has MOBIKE in no other connection.
# CASES: us them
# THEM: libreswan
# PLANE: userspace kernel
warrior=$CASE gateway=$(other "$CASE")
net_direct
ip -n left -6 addr flush dev $US_IF scope global
ip -n right -6 addr flush dev $THEM_IF scope global
site
case $warrior in
us) dev=$US_IF old=192.0.2.1 new=192.0.2.101 net=$RIGHT_NET behind=$RIGHT_IN own=%any far=$THEM_OWN ;;
them) dev=$THEM_IF old=192.0.2.2 new=192.0.2.102 net=$LEFT_NET behind=$LEFT_IN own=%defaultroute far=$US_OWN ;;
esac
# libreswan finds its own address by its route to the peer.
ip -n right route add default via "$US_OWN"
ike both mobike true
ike "$warrior" local_addrs $own
ike "$gateway" remote_addrs %any
ike "$warrior" vips 0.0.0.0
net "$warrior" local_ts dynamic
net "$warrior" remote_ts "$net"
ike "$gateway" pools four
conf "$gateway" pools.four.addrs 10.9.0.1-10.9.0.9
net "$gateway" local_ts "$net"
net "$gateway" remote_ts dynamic
has_vip() { in_ns "$warrior" ip -o addr | grep -q ' 10\.9\.0\.1/32 '; }
no_vip() { ! has_vip; }
reached() { in_ns "$warrior" ping -q -n -c 1 -W 1 -I 10.9.0.1 "$behind" >/dev/null 2>&1; }
start
up "$warrior"
installed
wait_for 5 has_vip || fail "no virtual IP on an interface"
ping_from "$warrior" 10.9.0.1 "$behind"
ping_from "$gateway" "$behind" 10.9.0.1
before=$(mark ike)
# With a prefix of its own: what is secondary goes along with the first.
ip -n "$(netns "$warrior")" addr add $new/25 dev $dev
sleep 1
ip -n "$(netns "$warrior")" addr del $old/24 dev $dev
note "$old is gone"
wait_for 20 reached || fail "no traffic from the new address"
installed
[ "$(mark ike)" = "$before" ] || fail "another IKE SA in place of the one that was to move"
expect_kernel them state "$new"
ping_from "$warrior" 10.9.0.1 "$behind"
ping_from "$gateway" "$behind" 10.9.0.1
expect us '.[0].mobike == true'
rekey us child
rekey them ike
ping_from "$warrior" 10.9.0.1 "$behind"
down "$warrior" ike
gone
wait_for 5 no_vip || fail "the virtual IP stays"
