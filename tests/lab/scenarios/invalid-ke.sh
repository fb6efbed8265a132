# The side named initiates with a group the other refuses in favour of its
# second choice (INVALID_KE_PAYLOAD), for the IKE SA and for the child's rekey.
# CASES: us them
net_direct
site
ike "$CASE" proposals aes256gcm16-prfsha256-ecp256-x25519
ike "$(other "$CASE")" proposals aes256gcm16-prfsha256-x25519
net "$CASE" esp_proposals aes256gcm16-ecp256-x25519
net "$(other "$CASE")" esp_proposals aes256gcm16-x25519
start
up "$CASE"
installed
expect_log them 'IKE_SA_INIT response 0 \[ N\(INVAL_KE\) \]'
ping_start
rekey "$CASE" child
ping_end
expect_log them 'CREATE_CHILD_SA response [0-9]+ \[ N\(INVAL_KE\) \]'
installed
