# No common ESP proposal: the IKE SA stands, the child does not.
# CASES: us them
# PLANE: userspace kernel
net_direct
site
net us esp_proposals aes256gcm16
net them esp_proposals aes128-sha256
start
up_fails "$CASE" || fail "the child came up without a common proposal"
expect_log them 'N\(NO_PROP\)'
kernel_clean us them
