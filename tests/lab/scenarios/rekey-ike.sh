# The IKE SA is rekeyed by either side under traffic; the child moves over
# untouched and can be rekeyed afterwards, by both.
# CASES: us them
# PLANE: userspace kernel
net_direct
site
start
up us
installed
children=$(mark child)
ping_start
rekey "$CASE" ike
[ "$(mark child)" = "$children" ] || fail "the child did not survive as it was"
rekey us child
rekey them child
rekey "$CASE" ike
ping_end
installed
