# A link on the path gets larger, from 1,300 to 1,500 octets, and nobody says so. After ten minutes larger packets are tried, and the
# path is used whole within 30 seconds more (docs/reliability.md). With ICMP, and where routers drop ICMP and fragments.
# MORE: icmp4 silent4 icmp6 silent6
# TIMEOUT: 800
case $CASE in
icmp*) net_narrow 1300 && routed_ipv6 ;;
silent*) net_hole 1300 ;;
esac
ours_too
case $CASE in *6) US_OWN=2001:db8::1 US_SEEN=2001:db8::1 THEM_OWN=2001:db8:2::2 THEM_SEEN=2001:db8:2::2 ;; esac
site
start
up us
installed
mtu() { raw us | jq 'first(.. | objects | select(has("path-mtu"))."path-mtu" | tonumber)'; }
is() { [ "$(mtu)" = "$1" ]; }
# Pings as large as the device takes them, without Don't Fragment.
in_ns us ping -q -n -i 0.5 -M dont -s 1372 -I $LEFT_IN $RIGHT_IN >"$OUT/ping.out" 2>&1 &
pinging=$!
wait_for 60 is 1300 || fail "the path counts as one of $(mtu) octets"
# The search for more ends.
pause 40
is 1300 || fail "the path counts as one of $(mtu) octets"
begun=$SECONDS
ip -n r1 link set mid1 mtu 1500
ip -n r2 link set mid2 mtu 1500
note "the link has 1,500 octets"
wait_for 640 is 1500 || fail "after $((SECONDS - begun)) s the path still counts as one of $(mtu) octets"
took=$((SECONDS - begun))
note "used whole after $took s"
[ $took -ge 500 ] && [ $took -le 630 ] || fail "used whole after $took s"
kill $pinging
# What fits only the larger path goes in one packet.
expect_whole() { [ "$(in_ns us tcpdump -n -r "$OUT/wire.us.pcap" 'greater 1450 and not tcp' 2>/dev/null | wc -l)" -gt 0 ]; }
in_ns us ping -q -n -c 5 -i 0.2 -M dont -s 1372 -I $LEFT_IN $RIGHT_IN >/dev/null || fail "large pings are lost"
wait_for 5 expect_whole || fail "no packet on the wire is as large as the path"
