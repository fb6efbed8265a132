# The IKE SA comes up without a child (RFC 6023) because the side that
# initiates forces it; the child follows in an exchange of its own.
# CASES: us them
net_direct
site
ike "$CASE" childless force
start
up "$CASE"
installed
! log_has them 'IKE_AUTH (request|response) 1 .* SA ' || fail "IKE_AUTH carried a child"
expect_log them 'CREATE_CHILD_SA request 2'
ping_both
