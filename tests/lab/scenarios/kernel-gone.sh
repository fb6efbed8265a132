# Nothing is left in the kernel of the side named: when the child and then the
# IKE SA is deleted by either side, when the peer dies, when it ends itself. `list` says so where the kernel has no nf_tables.
# Fault: in `Server::make` (crates/esp), tell no reason.
# CASES: us them
# PLANE: kernel
# KERNELS: forky trixie@us
net_direct
site
ike "$CASE" dpd_delay 3s
net "$CASE" dpd_action clear
conf "$CASE" charon.retransmit_timeout 0.5
conf "$CASE" charon.retransmit_base 1.0
conf "$CASE" charon.retransmit_tries 3
peer=$(other "$CASE")
start
if ! in_ns us nft list tables >/dev/null 2>&1; then
    ctl us list | grep -q '^no second line: table ike-xfrm of nf_tables not made: ' || fail "list: $(ctl us list)"
fi
for side in us them; do
    up us
    installed
    ping_both
    down $side child
    no_child
    kernel_clean us them
    no_ping
    up $side
    installed
    down $side ike
    gone
    kernel_clean us them
done
up us
installed
kill_hard "$peer"
gone "$CASE"
kernel_clean "$CASE"
forget "$peer"
start "$peer"
# strongSwan sends no delete if another request of its is on the way.
up us
installed
ping_quietly us
stop "$CASE"
wait_for "$PATIENCE" dead "$CASE" || fail "$CASE still runs"
gone "$peer"
kernel_clean us them
