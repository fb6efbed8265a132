# Different secrets: no SA on either side, and AUTHENTICATION_FAILED on the
# wire.
# CASES: us them
net_direct
site
conf us secrets.ike-site.secret "not the same"
start
up_fails "$CASE" || fail "$CASE came up with a wrong secret"
expect_log them 'N\(AUTH_FAILED\)'
gone
[ "$(kernel_states them)" = 0 ] || fail "SAs left in the kernel of them"
