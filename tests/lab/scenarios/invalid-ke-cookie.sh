# Cookie and INVALID_KE_PAYLOAD in one attempt; the side named initiates.
# CASES: us them
net_direct
site
ike "$CASE" proposals aes256gcm16-prfsha256-ecp256-x25519
ike "$(other "$CASE")" proposals aes256gcm16-prfsha256-x25519
conf "$(other "$CASE")" charon.cookie_threshold 1
start
half_open "$(other "$CASE")"
up "$CASE"
installed
expect_log them 'IKE_SA_INIT response 0 \[ N\(COOKIE\) \]'
expect_log them 'IKE_SA_INIT response 0 \[ N\(INVAL_KE\) \]'
ping_both
