# The side named is behind a NAT and initiates: UDP encapsulation, and rekeys
# of both kinds by both sides through it without loss.
# CASES: us them
net_nat "$CASE"
site
start
up "$CASE"
installed
expect_both 'map_values(children[0].encap) == {us: true, them: true}'
ping_both
counted 6
expect_wire 'udp port 4500'
ping_start
for side in us them; do
    rekey $side child
    rekey $side ike
done
ping_end
[ "$(wire 'ip proto 50')" = 0 ] || fail "plain ESP on a path with a NAT"
