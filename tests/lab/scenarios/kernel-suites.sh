# Kernel ESP with one algorithm of every kind, with strongSwan and with
# ourselves: either side initiates, rekeys, deletes, and leaves nothing behind.
# CASES: gcm chacha cbc gcm-ours
# MORE: chacha-ours cbc-ours
# PLANE: kernel
# KERNELS: forky trixie@gcm
net_direct
case $CASE in *-ours) ours_too ;; esac
site
case ${CASE%-ours} in
gcm) esp=aes256gcm16 state='aead rfc4106\(gcm\(aes\)\) 0x[0-9a-f]{72} 128' ;;
chacha) esp=chacha20poly1305 state='aead rfc7539esp\(chacha20,poly1305\) 0x[0-9a-f]{72} 128' ;;
cbc) esp=aes256-sha256 state='auth-trunc hmac\(sha256\) 0x[0-9a-f]{64} 128' ;;
esac
net both esp_proposals "$esp-x25519"
conf both charon.delete_rekeyed_delay 1
start
for side in us them; do
    up $side
    installed
    for end in us them; do expect_kernel $end state "$state"; done
    states us 2
    ping_both
    counted 6
    rekey $side child
    # strongSwan forgets to delete the old SA if the IKE SA is rekeyed meanwhile.
    for end in us them; do states $end 2; done
    rekey "$(other $side)" ike
    ping_both
    expect_wire 'ip proto 50'
    down $side ike
    gone
    kernel_clean us them
done
