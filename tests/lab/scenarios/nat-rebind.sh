# The NAT before the side named forgets its mapping; with the next packet from
# inside the other follows the new port, for ESP and IKE.
# CASES: us them
net_nat "$CASE"
site
start
up "$CASE"
installed
ping_both
before=$(ports_seen)
forget_nat
wait_for "$PATIENCE" ping_quietly "$CASE" || fail "no traffic through the new mapping"
ping_both
[ "$(ports_seen)" != "$before" ] || fail "the NAT gave the old port again: nothing was tested"
rekey "$(other "$CASE")" child
rekey "$CASE" ike
ping_both
