# The side named has a half-open SA already and demands a cookie; the other
# comes back with it.
# CASES: us them
net_direct
site
conf "$CASE" charon.cookie_threshold 1
start
half_open "$CASE"
up "$(other "$CASE")"
expect_log them 'IKE_SA_INIT response 0 \[ N\(COOKIE\) \]'
installed
ping_both
