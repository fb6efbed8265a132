# SAs in a (simulated) NIC of both ends, in crypto and in packet mode: the kernel
# and the NIC have the same of them, traffic and rekeys go through.
# CASES: crypto packet
# PLANE: kernel
# KERNELS: travel
# What such a NIC sends the capture sees before it is encrypted.
CLEARTEXT=yes
net_netdevsim "$CASE"
site
net both esp_proposals aes128gcm16-x25519
net both hw_offload "$CASE"
conf both charon.delete_rekeyed_delay 1
start

offloaded() {
    local side dev
    for side in us them; do
        states $side 2
        case $side in us) dev=l0 ;; them) dev=r0 ;; esac
        for dir in in out; do
            expect_kernel $side state "crypto offload parameters: dev $dev dir $dir mode $CASE"
        done
        # Policies are the NIC's in packet mode alone; IKE then needs its own there.
        case $CASE in
        crypto) ! in_kernel $side policy 'offload' || fail "policies of $side in the NIC" ;;
        packet) in_kernel $side policy "offload parameters: dev $dev mode packet" || fail "no policy of $side in the NIC"
            for port in 500 4500; do in_kernel $side policy "proto udp dport $port dev $dev" || fail "no way for IKE"; done ;;
        esac
        [ "$(nic_sas $side)" = "$(state_keys $side)" ] || fail "NIC and kernel differ: $(nic_sas $side), $(state_keys $side)"
        [ "$(nic_sas $side | wc -l)" = 2 ] || fail "not two SAs in the NIC of $side"
    done
}
for side in us them; do
    up $side
    installed
    offloaded
    ping_both
    rekey us child
    offloaded
    rekey them ike
    ping_both
    down $side ike
    gone
    kernel_clean us them
    [ -z "$(nic_sas us)$(nic_sas them)" ] || fail "SAs are left in a NIC"
done
