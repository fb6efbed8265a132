# Either side deletes the IKE SA and with it the child; a new one comes up.
# CASES: us them
net_direct
site
start
up us
installed
ping_both
down "$CASE" ike
gone
[ "$(kernel_states them)" = 0 ] || fail "SAs left in the kernel of them"
no_ping
up "$CASE"
installed
ping_both
