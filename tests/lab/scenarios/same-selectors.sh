# Beside our daemon, with ESP in the kernel (-p userspace: in user space), another one on the same host wants the same traffic:
# charon, or a second daemon of ours with ESP in user space. Neither takes much CPU time, nothing leaves in clear, and the log
# names the selectors, and charon's process. (Beside charon's policies in the kernel those of ESP in user space are in nobody's
# way: charon protects the traffic.)
# The short cases watch eight seconds, the worst of all: what is taken away is back at once at most five times, and then once
# in ten seconds. The long ones (by name) watch five minutes.
# Faults: in `Patience::ask` (crates/ipsec-types), answer `Now` at once each time (ours); in `add` (crates/xfrm), set the policy
# in the place of another program's (charon:kernel: no line).
# CASES: charon ours
# MORE: charon-long ours-long
# PLANE: kernel
# TIMEOUT: 400
CLEARTEXT=yes
net_direct
ip -n left route add default via $THEM_OWN
ip -n right route add $LEFT_NET via $US_OWN
site
ike us keyingtries 0
ike them unique never
net us start_action start
cp "$STATE/us.conf" "$STATE/left.conf"
conf left charon.port 1500
conf left charon.port_nat_t 4501
case $CASE in *-long) seconds=300 ;; *) seconds=8 ;; esac
PINGS="icmp[icmptype] = icmp-echo and dst $RIGHT_IN"
ping_quietly us || fail "no way in clear"
expect_wire "$PINGS"
start them
carried() { ctl left list 2>/dev/null | grep -q INSTALLED; }
case $CASE in
charon*)
    charon_start left
    ln -s "$STATE/left.vici" /run/charon.vici
    to_swanctl left >"$STATE/left.d/left.swanctl.conf"
    charon_load left "$STATE/left.d/left.swanctl.conf"
    ;;
ours*) DATA_PLANE=userspace daemon_start left ;;
esac
case $CASE in
charon*) wait_for 10 in_kernel us policy "^src $LEFT_NET dst $RIGHT_NET" ;;
ours*) wait_for 10 carried ;;
esac || fail "the other one has no child"
# The capture has what went before that.
sleep 1
clear=$(wire "$PINGS")
ping_quietly us || fail "the other one does not carry it"
in_ns us ping -q -n -i 0.1 -I $LEFT_IN $RIGHT_IN >"$OUT/ping.log" 2>&1 &
pinging=$!
start us
# Hundredths of a second that a process and its children that run have had.
ticks() {
    local pid all
    pid=$(cat "$STATE/$1.pid")
    all="$pid $(cat "/proc/$pid/task/$pid/children")"
    # shellcheck disable=SC2046
    awk '{ sub(/.*\) /, ""); n += $12 + $13 } END { print n + 0 }' $(printf '/proc/%s/stat ' $all)
}
pause 0.5
before=$(ticks us) other=$(ticks left)
pause $seconds
spent=$(($(ticks us) - before)) other=$(($(ticks left) - other))
kill $pinging
note "in $seconds s: ours $spent ticks, the other one $other; $(grep -o '.* packet loss' "$OUT/ping.log" || true)"
[ "$spent" -lt $((seconds * 5)) ] || fail "ours took $spent ms of each $((seconds / 10)) s"
[ "$(wire "$PINGS")" = "$clear" ] || fail "$(($(wire "$PINGS") - clear)) packets in clear"
case $CASE:$DATA_PLANE in
charon*:kernel)
    # The first of its policies is that of what arrives.
    expect_log us "another program has a policy for packets from $RIGHT_NET to $LEFT_NET; charon runs here as process $(cat "$STATE/left.pid")"
    ;;
ours*) expect_log us "the route to $RIGHT_NET: another program took this away" ;;
esac
