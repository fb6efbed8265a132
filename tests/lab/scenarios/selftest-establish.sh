# The scaffold itself: two strongSwans, tunnel and traffic, either side first.
# CASES: us them
# US: strongswan
net_direct
site
start
up "$CASE"
installed
ping_both
counted 6
