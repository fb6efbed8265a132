# Kernel ESP in UDP through a NAT (nftables' masquerade where the kernel has it).
# In mid-life the NAT forgets its mapping: the side outside follows ESP and IKE
# to the new port; rekeys of both kinds by both sides before and after.
# CASES: us them
# MORE: us-ours
# PLANE: kernel
# KERNELS: forky netdevsim
inside=${CASE%-ours} outside=$(other "${CASE%-ours}")
net_nat "$inside"
case $CASE in *-ours) ours_too ;; esac
site
conf both charon.delete_rekeyed_delay 1
start
up "$inside"
installed
for side in us them; do expect_kernel $side state 'encap type espinudp sport'; done
ping_both
counted 6
ping_start
for side in us them; do
    rekey $side child
    for end in us them; do states $end 2; done
    rekey $side ike
done
ping_end

before=$(ports_seen)
forget_nat
wait_for "$PATIENCE" ping_quietly "$inside" || fail "no traffic through the new mapping"
ping_both
[ "$(ports_seen)" != "$before" ] || fail "the NAT gave the old port again: nothing was tested"
port=$(in_ns nat conntrack -L -p udp 2>/dev/null | sed -n 's/.* dport=\([0-9]*\).*/\1/p' | grep '^2' | sort -u | tail -n 1)
expect_kernel "$outside" state "encap type espinudp sport $port"
rekey "$outside" child
for side in us them; do states $side 2; done
rekey "$inside" ike
ping_both
[ "$(wire 'ip proto 50')" = 0 ] || fail "plain ESP on a path with a NAT"
down "$outside" ike
gone
kernel_clean us them
