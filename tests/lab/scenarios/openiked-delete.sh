# Either side deletes the IKE SA.
# CASES: us them
# THEM: openiked
net_direct
openiked_site
start
up us
installed
ping_both
down "$CASE" ike
gone
[ "$(kernel_states them)" = 0 ] || fail "SAs left in the kernel of them"
