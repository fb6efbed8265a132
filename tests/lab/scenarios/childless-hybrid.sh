# The IKE SA comes up without a child because the side that initiates forces it;
# its first child is made by CREATE_CHILD_SA with an additional key exchange in
# IKE_FOLLOWUP_KE.
# CASES: us them
# TIMEOUT: 120
net_direct
site
ike both proposals aes256gcm16-prfsha384-x25519-ke1_mlkem768
net both esp_proposals aes256gcm16-x25519-ke1_mlkem768
ike "$CASE" childless force
start
up "$CASE"
installed
! log_has them 'IKE_AUTH (request|response) 2 .* SA ' || fail "IKE_AUTH carried a child"
expect_log them 'CREATE_CHILD_SA request 3'
expect_log them 'IKE_FOLLOWUP_KE response 4'
ping_both
rekey us child
rekey them child
ping_both
