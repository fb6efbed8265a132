# No NAT, but the side named asks for UDP encapsulation as if there were one.
# CASES: us them
# PLANE: userspace kernel
net_direct
site
ike "$CASE" encap true
start
up us
installed
expect_both 'map_values(children[0].encap) == {us: true, them: true}'
ping_both
counted 6
expect_wire 'udp port 4500'
[ "$(wire 'ip proto 50')" = 0 ] || fail "plain ESP although encapsulation was forced"
