# Another program takes away what our daemon has put on the host: the rule and
# the routes of ESP in user space, the policies and the states of the kernel.
# All is back within a second, and nothing is in clear after that, nor over a
# restart of our daemon. There is a way for packets in clear.
# Faults: in `Table::mend` (crates/routes), take no steps (user space); in `Policies::repair` (crates/xfrm), put nothing back.
# PLANE: userspace kernel
CLEARTEXT=yes
net_direct
site
net us start_action start
DAEMON_ARGS=(--keep-blocks)
ip -n left route add $RIGHT_NET via $THEM_OWN src $LEFT_IN
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
# The test can fail: without a tunnel they go in clear.
ping_quietly us || fail "no way in clear"
expect_wire "$INNER"
start
installed
ping_both

# What is there of ours, in the plane that has it.
ours() {
    if [ "$DATA_PLANE" = kernel ]; then
        ip -n left xfrm policy list | grep -c '^src'
    else
        { ip -n left rule; ip -n left route show table 7296; } | grep -c 7296
    fi
}
whole=$(ours)
back() { [ "$(ours)" = "$whole" ]; }
# After a command of another program: back within a second, and no packet in clear from then on.
taken_away() {
    note "ip $*"
    ip -n left "$@"
    # It counts whole seconds: this is one to two.
    wait_for 2 back || fail "not back within a second: ip $*"
    local clear
    clear=$(wire "$INNER")
    ping_both
    pause 1
    [ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear after: ip $*"
}
if [ "$DATA_PLANE" = kernel ]; then
    taken_away xfrm policy flush
    expect_log us 'XFRM policies: another program removed these'
    taken_away xfrm policy delete src $LEFT_NET dst $RIGHT_NET dir out
    # A lost state is not put back: its numbers would start again. A new child takes its place.
    clear=$(wire "$INNER")
    ip -n left xfrm state flush
    wait_for 3 ping_quietly us || fail "no new child within 3 s"
    [ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear without states"
else
    taken_away rule del pref 219
    expect_log us 'the routing rules of IPv4: another program took this away'
    taken_away route flush table 7296
fi
installed
# A restart of the service is not a stop, nor is a crash.
clear=$(wire "$INNER")
in_ns us ping -q -n -i 0.02 -I $LEFT_IN $RIGHT_IN >/dev/null 2>&1 &
pinging=$!
for end in stop kill_hard; do
    $end us
    wait_for 10 dead us || fail "us does not end"
    rm -f "$STATE"/us.{pid,killed,ctl}
    start us
    installed
done
kill $pinging
[ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear over a restart"
down us ike
