# A child is rekeyed with its own key exchange, by either side, under traffic,
# and no packet is lost.
# CASES: us them
net_direct
site
start
up us
installed
ping_start
rekey "$CASE" child
rekey "$CASE" child
ping_end
installed
counted
