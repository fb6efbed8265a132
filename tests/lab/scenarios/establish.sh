# A tunnel with traffic both ways, brought up by either side.
# CASES: us them
net_direct
site
no_ping
start
up "$CASE"
installed
ping_both
counted 6
expect_wire 'ip proto 50'
