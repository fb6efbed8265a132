# The side named rekeys child and IKE SA again and again while ping, UDP and TCP
# flow both ways: nothing is lost, and the old SAs go.
# CASES: us them ours
# PLANE: kernel
# KERNELS: forky trixie@us
# TIMEOUT: 120
net_direct
by=$CASE
[ "$CASE" != ours ] || { ours_too && by=us; }
site
conf both charon.delete_rekeyed_delay 1
start
up us
installed
first=$(mark child)
ping_start
flow_start
for what in child ike child child ike child; do
    # strongSwan forgets to delete an old child if the IKE SA is rekeyed meanwhile.
    [ $what = child ] || for side in us them; do states $side 2; done
    rekey "$by" $what
done
flow_end
ping_end
installed
[ "$(mark child)" != "$first" ] || fail "nothing was rekeyed"
for side in us them; do states $side 2; done
ping_both
counted 6
down "$(other "$by")" ike
gone
kernel_clean us them
