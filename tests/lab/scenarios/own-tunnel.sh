# A road warrior's full tunnel covers its gateway, which is behind a router. While the tunnel is up, another IKE SA starts from the
# host's own address. After the gateway has died and come back, the tunnel is up within ten seconds. A routing rule of another
# program that leads the tunnel's own packets back into the tunnel makes no loop. No packet leaves in clear meanwhile, and packets
# of the host have the virtual IP as their source.
# Faults: in `asking` (ike_tokio::net::source), set `mark: None` (user space: no tunnel after ten seconds; kernel: the same with
# `bypass: false`); in `decide` (crates/esp), leave out `is_own` (user space: no line); in `Holders::yields`
# (crates/routes), return false for what is no `Prohibited` route (user space: no packets).
# PLANE: userspace kernel
CLEARTEXT=yes
GATEWAY=198.51.100.9
OTHER=198.51.100.8
net_direct
ip -n right addr add $GATEWAY/32 dev lo
ip -n left route add default via $THEM_OWN
for at in all default l0; do in_ns us sysctl -qw net.ipv4.conf.$at.rp_filter=0; done
site
conf us connections.site.local_addrs ""
ike us remote_addrs $GATEWAY
ike them local_addrs %any
ike us mobike no
ike us keyingtries 0
ike us dpd_delay 1s
conf us charon.retransmit_timeout 0.3
conf us charon.retransmit_base 1.0
conf us charon.retransmit_tries 2
ike us vips 0.0.0.0
net us local_ts dynamic
net us remote_ts 0.0.0.0/0
net us start_action start
ike them pools four
conf them pools.four.addrs 10.9.0.0/24
net them local_ts 0.0.0.0/0
net them remote_ts dynamic
connection other o "$LEFT_NET" 10.94.0.0/16
conf us connections.other.local_addrs ""
conf us connections.other.remote_addrs $OTHER
PINGS="icmp and dst host $RIGHT_IN"
# The test can fail: without a tunnel they go in clear.
in_ns us ping -q -n -c 1 -W 1 $RIGHT_IN >/dev/null || fail "no way in clear"
expect_wire "$PINGS"
start
installed
# From the address that the host chooses.
carried() { in_ns us ping -q -n -c 1 -W 1 $RIGHT_IN >/dev/null 2>&1; }
wait_for 2 carried || fail "the tunnel does not carry packets of the host"
clear=$(wire "$PINGS")
# Without a route ping ends at once.
pinging() {
    while :; do
        in_ns us ping -q -n -i 0.02 -c 25 -W 1 $RIGHT_IN >/dev/null 2>&1 || pause 0.02
    done
}
pinging &
pinging=$!
ctl us up o --timeout 1s >/dev/null 2>&1 || true
expect_wire "udp port 500 and src host $US_OWN and dst host $OTHER"
[ "$(wire "src host 10.9.0.1")" = 0 ] || fail "an IKE SA starts from the virtual IP"
kill_hard them
forget them
gone us
start them
PATIENCE=10
installed
wait_for 2 carried || fail "the tunnel that is back does not carry packets of the host"
if [ "$DATA_PLANE" = userspace ]; then
    before=$(wire 'ip proto 50')
    ip -n left rule add lookup 7296 pref 100
    expect_log us 'packets of a tunnel have come back to its device'
    timeout 1 "$DAEMON" --control "$STATE/us.ctl" list >/dev/null || fail "no answer within a second"
    ip -n left rule del pref 100
    wait_for 10 carried || fail "the tunnel carries no packets after that"
    [ $(($(wire 'ip proto 50') - before)) -lt 1000 ] || fail "$(($(wire 'ip proto 50') - before)) packets of ESP"
fi
kill $pinging
[ "$(wire "$PINGS")" = "$clear" ] || fail "$(($(wire "$PINGS") - clear)) packets in clear"
