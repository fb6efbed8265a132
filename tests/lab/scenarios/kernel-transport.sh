# Transport mode by kernel ESP, with strongSwan and with ourselves, rekeyed.
# CASES: us them ours
# PLANE: kernel
# KERNELS: forky
net_direct
[ "$CASE" != ours ] || ours_too
site
net both mode transport
net us local_ts "$US_OWN/32"
net us remote_ts "$THEM_OWN/32"
net them local_ts "$THEM_OWN/32"
net them remote_ts "$US_OWN/32"
conf both charon.delete_rekeyed_delay 1
start
case $CASE in ours) up us ;; *) up "$CASE" ;; esac
installed
for side in us them; do expect_kernel $side state 'mode transport'; done
ping_both "$US_OWN" "$THEM_OWN"
counted 6
for side in us them; do
    rekey $side child
    # strongSwan forgets to delete the old SA if the IKE SA is rekeyed meanwhile.
    for end in us them; do states $end 2; done
    rekey $side ike
done
ping_both "$US_OWN" "$THEM_OWN"
for side in us them; do states $side 2; done
# Inside and outside have the same addresses.
[ "$(wire "icmp[icmptype] = icmp-echo or icmp[icmptype] = icmp-echoreply")" = 0 ] || fail "packets in clear"
expect_wire 'ip proto 50'
down us ike
gone
kernel_clean us them
