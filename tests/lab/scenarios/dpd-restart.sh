# The other side dies and comes back; the side named notices and, told to
# restart, brings the tunnel up again by itself.
# AGAIN: strongSwan may lose its route when a new IKE SA takes the place of a dead one
# AGAIN_CASES: them
# AGAIN_FAILS: no ping from (us|them): [0-9.]+ -> [0-9.]+
# AGAIN_SEEN: strongswan_without_route
# CASES: us them
# PLANE: userspace kernel
net_direct
site
ike "$CASE" dpd_delay 1s
net "$CASE" dpd_action start
conf "$CASE" charon.retransmit_timeout 0.5
conf "$CASE" charon.retransmit_base 1.0
conf "$CASE" charon.retransmit_tries 4
start
up us
installed
ping_both
kill_hard "$(other "$CASE")"
forget "$(other "$CASE")"
start "$(other "$CASE")"
installed
ping_both
