# A reload changes a child that is up: it gets a trap, or its trap gets wider. Nothing that the new file protects leaves
# in clear, beside the SA of before and after its end. In user space the wider trap brings up a child of its own. In
# case trapped, an earlier reload removes a trap that still waits for a route to the peer: this trap is never installed.
# Faults: let `begin` of the operator leave out traps of children that are up (case trapped); let `traps::reload` of the
# engine take no trap for `Changed`, and `begin` leave out traps of children that are up (case wider in user space); let
# `Operator::start` keep the action that it began with (case trapped).
# CASES: trapped wider
# PLANE: userspace kernel
CLEARTEXT=yes
net_direct
site
# Without `hold`, so that only the trap can protect the traffic.
if [ "$CASE" = wider ]; then
    net us start_action trap
    net us hold no
fi
ip -n left route add $RIGHT_NET via $THEM_OWN src $LEFT_IN
ip -n left route add $RIGHT_NET2 via $THEM_OWN src $LEFT_IN
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
second() { in_ns us ping -q -n -c 1 -W 1 -I $LEFT_IN $RIGHT_IN2 >/dev/null 2>&1; }
# The first packet may come before the trap.
through() { ping_quietly us && [ "$(sas us)" != '[]' ]; }
nothing_in_clear() { [ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear: $1"; }
reload_file() {
    (umask 077 && to_toml us >"$STATE/us.d/us.toml")
    ctl us reload
}
# The test can fail: without a tunnel they go in clear.
ping_quietly us || fail "no way in clear"
second || fail "no way in clear to the second network"
case $CASE in
trapped)
    conf us connections.site.local_addrs ""
    conf us charon.retry_initiate_interval 0.3
    net us start_action trap
    ip -n left addr del $US_OWN/24 dev l0
    start us
    wait_for 5 log_has us 'start_action waits for a way' || fail "it does not wait"
    net us start_action none
    reload_file
    ip -n left addr add $US_OWN/24 dev l0
    ip -n left route replace $RIGHT_NET via $THEM_OWN src $LEFT_IN
    sleep 1
    ping_quietly us || fail "a trap that the file does not have any more"
    start them
    up us
    ;;
wider)
    # What a command wants up is made anew, and needs no trap.
    start
    wait_for "$PATIENCE" through || fail "no traffic through the trap"
    ;;
esac
installed
ping_both
clear=$(wire "$INNER")
case $CASE in
trapped)
    net us start_action trap
    reload_file
    sleep 0.3
    down them child
    ping_quietly us || true
    nothing_in_clear "after the end of the child"
    wait_for "$PATIENCE" ping_quietly us || fail "the trap brings nothing up"
    ;;
wider)
    net us remote_ts "$RIGHT_NET, $RIGHT_NET2"
    net them local_ts "$RIGHT_NET, $RIGHT_NET2"
    to_swanctl them >"$STATE/them.wider.conf"
    charon_load them "$STATE/them.wider.conf"
    reload_file
    sleep 0.3
    if [ "$DATA_PLANE" = kernel ]; then
        # The trap has the reqid of the SA of before: the kernel sends by that SA, and the peer drops the packet.
        second || true
    else
        wait_for "$PATIENCE" second || fail "the wider trap brings nothing up"
    fi
    nothing_in_clear "to the second network"
    ;;
esac
ping_both
nothing_in_clear "in the end"
