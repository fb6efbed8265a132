# The peer dies: traffic for it does not leave in clear, though the host has
# a route for it, until the tunnel is back; nor when our daemon dies as well.
# CASES: auto reject drop
# PLANE: userspace kernel
net_direct
site
# With MOBIKE, IKE asks for a dead peer at every address it has had, those behind it as well.
ike us mobike no
ike us dpd_delay 1s
conf us charon.retransmit_timeout 0.5
conf us charon.retransmit_base 1.0
conf us charon.retransmit_tries 3
case $CASE in
auto) net us close_action start ;;
*) net us failureshunt "$CASE" ;;
esac
ip -n left route add default via $THEM_OWN
ip -n right route add default via $US_OWN

# The error that a sender gets from the kernel or the daemon; with drop, in user space, there is none.
refused() {
    local says='No route to host|Unreachable|Packet filtered|Operation not permitted'
    [ "$CASE" != drop ] || says="$says|Invalid argument|100% packet loss"
    in_ns us ping -n -c 1 -W 1 $RIGHT_IN >"$STATE/refused" 2>&1 || true
    grep -q -E "$says" "$STATE/refused"
}

start them us
# The daemon answers before its data plane is there.
[ "$CASE" = auto ] || wait_for 5 refused || fail "not refused before the tunnel was up"
up us
installed
ping_both
# What went before the data plane was there, when the capture has it.
sleep 2
clear=$(wire "$INNER")
kill_hard them
gone us
note "gone: $(ip -n left route show table 7296 | tr '\n' ';')"
refused || fail "not refused when the peer is dead"
forget them
start them
up us
installed
ping_both
kill_hard us
wait_for 5 dead us || true
# The kernel goes on with the SAs it has.
if [ "$DATA_PLANE" = kernel ]; then
    ping_quietly us || fail "the kernel's SAs ended with our daemon"
else
    refused || fail "not refused when our daemon is dead"
fi
forget us
start us
up us
installed
ping_both
[ "$(wire "$INNER")" = "$clear" ] || fail "packets left in clear"
down us ike
gone us
if refused; then fail "refused although it was taken down"; fi
# That last one went in clear, as it was meant to.
CLEARTEXT=yes
