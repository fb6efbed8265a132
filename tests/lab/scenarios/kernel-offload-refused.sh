# What a (simulated) NIC does not take: hw_offload = auto goes from packet to
# crypto to software and says so; a mode asked for by name fails with the reason
# and leaves nothing behind.
# CASES: auto-crypto auto-software packet crypto no-nic
# PLANE: kernel
# KERNELS: travel
# What such a NIC sends the capture sees before it is encrypted.
CLEARTEXT=yes
net_netdevsim
site
# It takes AES-GCM in crypto mode.
esp=aes256-sha256 reason='an algorithm that is not AES-GCM'
nic='l0 \(netdevsim\): the kernel says: '
case $CASE in auto-crypto | packet | no-nic) esp=aes128gcm16 ;; esac
net both esp_proposals "$esp-x25519"
case $CASE in
auto-crypto) net both hw_offload auto ;;
# strongSwan goes no further than crypto.
auto-software) net us hw_offload auto ;;
packet)
    net us hw_offload packet
    reason='the driver has crypto offload only'
    ;;
crypto) net us hw_offload crypto ;;
no-nic)
    # On the devices themselves nothing is refused: Linux takes crypto offload in silence there.
    ip -n left link add link l0 name mv0 type macvlan
    ip -n left addr add 192.0.2.3/24 dev mv0
    ip -n left link set mv0 up
    US_OWN=192.0.2.3 US_SEEN=192.0.2.3
    site
    net both esp_proposals "$esp-x25519"
    net us hw_offload crypto
    nic='mv0 \(macvlan over l0\): '
    reason='Linux offloads nothing on a macvlan device: the local address would have to be on l0'
    ;;
esac
start

case $CASE in
auto-*)
    up us
    installed
    expect_log us "no packet offload of SA [0-9a-f]{8}: $nic.*the driver has crypto offload only"
    states us 2
    ! in_kernel us policy offload || fail "policies in the NIC"
    ;;
*)
    up_fails us
    expect_log us "no ${CASE/no-nic/crypto} offload of SA [0-9a-f]{8}: $nic.*$reason"
    grep -q -E "no ${CASE/no-nic/crypto} offload of SA" "$OUT/expected-failure.log" || fail "up did not say why"
    states us 0
    [ -z "$(kernel_policies us)" ] || fail "policies are left: $(kernel_policies us)"
    [ -z "$(nic_sas us)" ] || fail "the NIC has SAs"
    ;;
esac
case $CASE in
auto-crypto)
    expect_log us 'SA [0-9a-f]{8}: crypto offload on l0 \(netdevsim\)'
    for dir in in out; do expect_kernel us state "crypto offload parameters: dev l0 dir $dir mode crypto"; done
    ping_both
    ;;
auto-software)
    expect_log us "no crypto offload of SA [0-9a-f]{8}: $nic.*$reason"
    expect_log us 'SA [0-9a-f]{8}: in software'
    ! in_kernel us state offload || fail "states in the NIC"
    ping_both
    ;;
esac
