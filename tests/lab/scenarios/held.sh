# By default, at the boot: before there is a route, an address or a name for the peer, nothing that a child protects leaves in
# clear, and all is up when they come. What a full tunnel exempts stays reachable. `down` frees the traffic of a child
# without a trap, and with `hold = no` there is no hold.
# Faults: in `Shunt::of` (ike-tokio), take `Since::Up` for each child without `failureshunt`; in `via` of the kernel's
# plane, return `Via::Unreachable` for a hold (case full).
# CASES: route name full
# PLANE: userspace kernel
# TIMEOUT: 120
CLEARTEXT=yes
net_direct
site
conf us connections.site.local_addrs ""
ike us keyingtries 0
net us start_action start
# What many systems have. A block of what the peer sends would be a deadlock.
for at in all default l0; do in_ns us sysctl -qw net.ipv4.conf.$at.rp_filter=2; done
in_clear() { ip -n left route add default via $THEM_OWN; }
held() { ! ping_quietly us; }
PINGS="icmp and dst host $RIGHT_IN"
# Without a route ping ends at once.
pinging() {
    while :; do
        in_ns us ping -q -n -c 1 -W 1 "$@" $RIGHT_IN >/dev/null 2>&1 || pause 0.05
    done
}
case $CASE in
route) net us start_action trap ;;
name)
    # In this case's own file of hosts.
    echo "127.0.0.1 localhost" >"$STATE/hosts"
    mount --bind "$STATE/hosts" /etc/hosts
    conf us connections.site.remote_addrs gw.example
    ;;
full)
    ike us vips 0.0.0.0
    net us local_ts dynamic
    net us remote_ts 0.0.0.0/0
    ike them pools four
    conf them pools.four.addrs 10.9.0.0/24
    net them local_ts 0.0.0.0/0
    net them remote_ts dynamic
    ;;
esac
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
# The test can fail: without the daemon they go in clear.
in_clear
ping_quietly us || fail "no way in clear"
ip -n left route del default
[ "$CASE" = name ] || ip -n left addr del $US_OWN/24 dev l0
expect_wire "$PINGS"
# The capture has all of it by then.
sleep 1
clear=$(wire "$PINGS")
# As at a boot with systemd: the link comes up once the daemon has said that it is ready.
perl -MSocket -e 'socket(S, PF_UNIX, SOCK_DGRAM, 0) && bind(S, sockaddr_un($ARGV[0])) or die $!; print "bound\n"; close STDOUT;
    while (defined recv(S, $said, 4096, 0)) { if ($said =~ /^READY=1$/m) { open R, ">", $ARGV[1]; exit } }' \
    "$STATE/notify" "$STATE/ready" >"$STATE/notify.out" &
wait_for 5 test -s "$STATE/notify.out" || fail "nobody to notify"
NOTIFY_SOCKET=$STATE/notify start us
# From whatever address the host chooses.
pinging &
pings=$!
if [ "$CASE" != full ]; then
    pinging -I $LEFT_IN &
    pings="$pings $!"
fi
wait_for 10 test -e "$STATE/ready" || fail "not ready"
[ "$CASE" = name ] || ip -n left addr add $US_OWN/24 dev l0
in_clear
sleep 3
[ "$(wire "$PINGS")" = "$clear" ] || fail "packets in clear before the peer was there"
if [ "$CASE" = full ]; then
    in_ns us ping -q -n -c 1 -W 1 $THEM_OWN >/dev/null || fail "a host on the link is not reachable"
    in_ns us ping -q -n -c 1 -W 1 ::1 >/dev/null || fail "this host does not reach itself"
fi
start them
[ "$CASE" != name ] || echo "$THEM_OWN gw.example" >>"$STATE/hosts"
PATIENCE=40
installed
# shellcheck disable=SC2086
kill $pings
case $CASE in
full) ping_from us 10.9.0.1 $RIGHT_IN ;;
*) ping_both ;;
esac
[ "$(wire "$PINGS")" = "$clear" ] || fail "packets in clear"
# Before the peer is there again, `down` lifts it.
stop us
wait_for 10 dead us || fail "us does not end"
stop them
wait_for 10 dead them || fail "them does not end"
rm -f "$STATE"/us.{pid,killed,ctl}
start us
# The daemon answers before its data plane is there.
wait_for 5 held || fail "not held at the next start"
# A trap stays.
if [ "$CASE" != route ]; then
    down us ike
    wait_for 5 ping_quietly us || fail "held although it was taken down"
    stop us
    wait_for 10 dead us || fail "us does not end"
    rm -f "$STATE"/us.{pid,killed,ctl}
    net us hold no
    start us
    wait_for 5 ping_quietly us || fail "held in spite of hold = no"
fi
