# Either side deletes the child; the IKE SA stays and can make another one.
# CASES: us them
net_direct
site
start
up us
installed
ping_both
down "$CASE" child
no_child
[ "$(kernel_states them)" = 0 ] || fail "SAs left in the kernel of them"
no_ping
up "$(other "$CASE")"
installed
ping_both
