# The trap of one child covers the networks of two children of the peer (narrowed). A trap child that
# `swanctl --terminate` ends comes up with the next packet; one that `ike-daemon down` ends does not, also after a
# reload, and nothing leaves in clear (down).
# Faults: let `serves` of the engine take each child of that name; let `take_down` of the operator block no traps.
# CASES: narrowed down
# PLANE: kernel
CLEARTEXT=yes
net_direct
site
net us start_action trap
conf us charon.plugins.vici.socket "unix://$STATE/us.vici"
if [ "$CASE" = narrowed ]; then
    net us remote_ts 10.0.0.0/8
    extra=connections.site.children.extra
    conf them $extra.local_ts "$RIGHT_NET2"
    conf them $extra.remote_ts "$LEFT_NET"
    conf them $extra.esp_proposals aes256gcm16-x25519
fi
ip -n left route add $RIGHT_NET via $THEM_OWN src $LEFT_IN
ip -n left route add $RIGHT_NET2 via $THEM_OWN src $LEFT_IN
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
second() { in_ns us ping -q -n -c 1 -W 1 -I $LEFT_IN $RIGHT_IN2 >/dev/null 2>&1; }
none() { [ "$(sas us)" = '[]' ]; }
# The first packet may come before the trap.
through() { ping_quietly us && ! none; }
start
wait_for "$PATIENCE" through || fail "no traffic through the trap"
clear=$(wire "$INNER")
case $CASE in
narrowed)
    wait_for "$PATIENCE" second || fail "no traffic to the second network"
    installed 2
    ;;
down)
    installed
    timeout 30 swanctl --terminate --ike site --uri "unix://$STATE/us.vici" >/dev/null || fail "swanctl --terminate"
    wait_for "$PATIENCE" ping_quietly us || fail "no traffic through the trap after a command of swanctl"
    down us ike
    ctl us reload
    ! ping_quietly us || fail "a packet brings up what is down by command"
    none || fail "an SA of what is down by command"
    ctl us list | grep -q 'down by command' || fail "list does not say that it is down by command"
    ctl us up net
    installed
    ;;
esac
ping_both
[ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear"
