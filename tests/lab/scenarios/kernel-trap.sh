# The first packet starts the child, by a trap in the kernel of the side named;
# there is a way for packets in clear, and none goes it, from the trap's
# installation on, whether the child is up, taken down, or comes up again.
# CASES: us them
# MORE: ours
# PLANE: kernel
# KERNELS: forky trixie@us
CLEARTEXT=yes
net_direct
by=$CASE
[ "$CASE" != ours ] || { ours_too && by=us; }
site
net "$by" start_action trap
ip -n left route add $RIGHT_NET via $THEM_OWN src $LEFT_IN
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
# The test can fail: without a trap they go in clear.
ping_quietly "$by" || fail "no way in clear"
expect_wire "$INNER"
start
expect_kernel "$by" policy 'dir out'
expect_both 'map(length == 0) | all'
sleep 0.3
clear=$(wire "$INNER")
wait_for "$PATIENCE" ping_quietly "$by" || fail "no traffic through the trap"
installed
ping_both
rekey "$(other "$by")" child
ping_both
down "$(other "$by")" ike
gone
expect_kernel "$by" policy 'dir out'
wait_for "$PATIENCE" ping_quietly "$by" || fail "the trap is gone with the child"
installed
ping_both
[ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear"
