# The other side dies without a word; the side named notices and clears up.
# CASES: us them
net_direct
site
ike "$CASE" dpd_delay 1s
net "$CASE" dpd_action clear
conf "$CASE" charon.retransmit_timeout 0.5
conf "$CASE" charon.retransmit_base 1.0
conf "$CASE" charon.retransmit_tries 3
start
up us
installed
ping_both
kill_hard "$(other "$CASE")"
gone "$CASE"
