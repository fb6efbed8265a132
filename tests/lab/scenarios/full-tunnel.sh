# A branch gateway whose child takes in all addresses: its own LAN stays
# reachable, and nothing of the inner networks is on the outer link in clear,
# not while the tunnel is up or goes down, not with a trap alone, and not what is
# decrypted for a LAN that is gone.
# PLANE: userspace kernel
# TIMEOUT: 150
net_direct
# A host in the LAN of each side.
new_ns lan
ip -n left link set inner1 netns lan
ip -n lan addr add 10.1.0.77/16 dev inner1
ip -n lan link set inner1 up
ip -n lan route add default via $LEFT_IN
in_ns us sysctl -qw net.ipv4.ip_forward=1
# What is decrypted is forwarded, whichever way it is to go.
for at in all default l0 inner0; do in_ns us sysctl -qw net.ipv4.conf.$at.rp_filter=0; done
ip -n left route add default via $THEM_OWN
site
net us remote_ts 0.0.0.0/0
net us start_action trap
net them local_ts 0.0.0.0/0

lan_to_gateway() { in_ns lan ping -q -n -c 1 -W 1 $LEFT_IN >/dev/null 2>&1; }
gateway_to_lan() { in_ns us ping -q -n -c 1 -W 1 -I $LEFT_IN 10.1.0.77 >/dev/null 2>&1; }
lan_to_peer() { in_ns lan ping -q -n -c 1 -W 1 $RIGHT_IN >/dev/null 2>&1; }
peer_to_lan() { in_ns them ping -q -n -c 1 -W 1 -I $RIGHT_IN 10.1.0.77 >/dev/null 2>&1; }
lan_answers() {
    wait_for 5 lan_to_gateway || fail "$1: the gateway does not answer its LAN"
    wait_for 5 gateway_to_lan || fail "$1: the LAN does not answer the gateway"
}
lan_answers "before"
start
lan_answers "with a trap"
up us
installed
lan_answers "up"
ping_both
wait_for 5 lan_to_peer || fail "the LAN does not reach the peer"
wait_for 5 peer_to_lan || fail "the peer does not reach the LAN"
rekey us child
lan_answers "rekeyed"
wait_for 5 lan_to_peer || fail "the LAN does not reach the peer"
# Traffic goes on while the link to the LAN goes: what is decrypted has nowhere to go, least of all back.
in_ns them ping -q -n -i 0.02 -I $RIGHT_IN 10.1.0.77 >/dev/null 2>&1 &
pinging=$!
sleep 0.5
ip -n left link set inner0 down
sleep 1
ip -n left link set inner0 up
lan_answers "the LAN is back"
kill $pinging
wait_for 5 peer_to_lan || fail "the peer does not reach the LAN that is back"
[ "$(wire "$INNER")" = 0 ] || fail "packets in clear while the tunnel was up"

# The trap is there before the tunnel is up and after it is down.
in_ns lan ping -q -n -i 0.02 $RIGHT_IN >/dev/null 2>&1 &
pinging=$!
down them ike
sleep 1
kill $pinging
lan_answers "with a trap"
wait_for 10 lan_to_peer || fail "the LAN does not reach the peer by the trap"
