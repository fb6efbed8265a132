# The first start after an upgrade from a version that had charon's routing table, and was killed with a full tunnel up: what
# it has left goes once this run has its own, and nothing leaves in clear. What this run leaves when it is killed is made
# into what that version left (its rule and routes in table 220).
# Fault: in `Table::replace_others` (crates/routes), leave out `take_over`.
# PLANE: userspace kernel
CLEARTEXT=yes
net_direct
site
ike us vips 0.0.0.0
net us local_ts dynamic
net us remote_ts 0.0.0.0/0
net us start_action start
net us hold no
ike them pools four
conf them pools.four.addrs 10.9.0.0/24
net them local_ts 0.0.0.0/0
net them remote_ts dynamic
ip -n left route add default via $THEM_OWN
ip -n right route add $LEFT_NET via $US_OWN
PINGS="icmp[icmptype] = icmp-echo and dst $RIGHT_IN"
# The test can fail: without a tunnel they go in clear.
in_ns us ping -q -n -c 1 -W 1 $RIGHT_IN >/dev/null || fail "no way in clear"
expect_wire "$PINGS"
start
installed
ping_from us 10.9.0.1 $RIGHT_IN
kill_hard us
wait_for 5 dead us || true
rm -f "$STATE"/us.{pid,killed,ctl}
ip -n left route show table 7296 | sed 's/^/route add /; s/$/ table 220/' >"$STATE/routes"
note "left: $(tr '\n' ';' <"$STATE/routes")"
[ -s "$STATE/routes" ] || fail "nothing is left"
ip -n left -batch "$STATE/routes"
ip -n left rule add not fwmark 220 lookup 220 pref 220 protocol 122
ip -n left rule del pref 219
ip -n left route flush table 7296
clear=$(wire "$PINGS")
# Without a route ping ends at once.
pinging() {
    while :; do
        in_ns us ping -q -n -i 0.01 -c 50 -W 1 $RIGHT_IN >/dev/null 2>&1 || pause 0.01
    done
}
pinging &
pinging=$!
pause 0.3
start us
installed
ping_from us 10.9.0.1 $RIGHT_IN
kill $pinging
[ "$(wire "$PINGS")" = "$clear" ] || fail "$(($(wire "$PINGS") - clear)) packets in clear"
! ip -n left rule | grep 'lookup 220' || fail "its rule is still there"
[ -z "$(ip -n left route show table 220)" ] || fail "its routes are still there"
