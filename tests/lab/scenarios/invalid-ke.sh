# The side named initiates with a group the other refuses in favour of its
# second choice (INVALID_KE_PAYLOAD), for the IKE SA and, by strongSwan, for the
# child's rekey. Ours begins that with the method that the peer has taken before.
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
if [ "$CASE" = them ]; then
    expect_log them 'CREATE_CHILD_SA response [0-9]+ \[ N\(INVAL_KE\) \]'
else
    ! log_has them 'CREATE_CHILD_SA response [0-9]+ \[ N\(INVAL_KE\) \]' || fail "a round trip for nothing"
fi
installed
