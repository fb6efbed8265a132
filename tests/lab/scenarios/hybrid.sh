# Additional key exchanges (RFC 9370): IKE_INTERMEDIATE at the start, and
# IKE_FOLLOWUP_KE in rekeys of either kind, started by either side.
# CASES: x25519-mlkem512 x25519-mlkem768 ecp384-mlkem1024 mlkem768-alone seven
# TIMEOUT: 120
net_direct
site
case $CASE in
x25519-mlkem512) methods=x25519-ke1_mlkem512 ;;
x25519-mlkem768) methods=x25519-ke1_mlkem768 ;;
ecp384-mlkem1024) methods=ecp384-ke1_mlkem1024 ;;
mlkem768-alone) methods=mlkem768 ;;
seven) methods=x25519-ke1_mlkem512-ke2_mlkem768-ke3_mlkem1024-ke4_ecp256-ke5_ecp384-ke6_ecp521-ke7_modp2048 ;;
esac
ike both proposals "aes256gcm16-prfsha384-$methods"
net both esp_proposals "aes256gcm16-$methods"
start
for side in us them; do
    up $side
    installed
    ping_both
    [ "$CASE" = mlkem768-alone ] || expect_log them 'IKE_INTERMEDIATE response'
    rekey us child
    rekey them child
    rekey us ike
    rekey them ike
    [ "$CASE" = mlkem768-alone ] || expect_log them 'IKE_FOLLOWUP_KE response'
    ping_both
    down $side ike
    gone
done
