# Nothing in common: NO_PROPOSAL_CHOSEN for the IKE SA, and nothing is left.
# CASES: us them
net_direct
site
ike us proposals aes256gcm16-prfsha384-x25519
ike them proposals aes128gcm16-prfsha256-ecp256
start
up_fails "$CASE" || fail "$CASE came up without a common proposal"
expect_log them 'N\(NO_PROP\)'
gone
