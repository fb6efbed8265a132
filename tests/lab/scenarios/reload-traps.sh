# A reload changes a child that is up: it gets a trap, or its trap gets wider. Nothing that the new file protects leaves
# in clear, beside the SA of before and after its end. In user space the wider trap brings up a child of its own.
# Faults: let `begin` of the operator leave out traps of children that are up (case trapped); let `reload_traps` of the
# engine compare names alone, and `begin` leave out traps (case wider).
# CASES: trapped wider
# PLANE: userspace kernel
CLEARTEXT=yes
net_direct
site
[ "$CASE" = trapped ] || net us start_action trap
ip -n left route add $RIGHT_NET via $THEM_OWN src $LEFT_IN
ip -n left route add $RIGHT_NET2 via $THEM_OWN src $LEFT_IN
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
second() { in_ns us ping -q -n -c 1 -W 1 -I $LEFT_IN $RIGHT_IN2 >/dev/null 2>&1; }
nothing_in_clear() { [ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear: $1"; }
reload_file() {
    (umask 077 && to_toml us >"$STATE/us.d/us.toml")
    ctl us reload
}
# The test can fail: without a tunnel they go in clear.
ping_quietly us || fail "no way in clear"
second || fail "no way in clear to the second network"
start
up us
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
