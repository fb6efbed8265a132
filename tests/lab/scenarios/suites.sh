# One cipher for IKE and ESP and one group, as initiator and as responder,
# with a rekey of each kind.
# CASES: gcm-x25519 gcm-modp2048 chacha-x25519 chacha-ecp256 cbc-x25519 cbc-modp2048 gcm128-ecp384 cbc128sha384-ecp521 cbc192sha512-modp3072 ctr-modp4096
# MORE: gcm-ecp256 chacha-modp2048 cbc-ecp256
net_direct
site
group=${CASE#*-}
case ${CASE%-*} in
gcm) ike=aes256gcm16-prfsha256 esp=aes256gcm16 ;;
gcm128) ike=aes128gcm16-prfsha384 esp=aes128gcm16 ;;
chacha) ike=chacha20poly1305-prfsha256 esp=chacha20poly1305 ;;
cbc) ike=aes256-sha256 esp=aes256-sha256 ;;
cbc128sha384) ike=aes128-sha384 esp=aes128-sha384 ;;
cbc192sha512) ike=aes192-sha512 esp=aes192-sha512 ;;
ctr) ike=aes128ctr-sha256 esp=aes128ctr-sha256 ;;
esac
ike both proposals "$ike-$group"
net both esp_proposals "$esp-$group"
start
for side in us them; do
    up $side
    installed
    ping_both
    counted 6
    rekey $side child
    rekey $side ike
    ping_both
    down $side ike
    gone
done
