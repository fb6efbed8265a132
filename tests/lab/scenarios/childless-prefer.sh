# One side prefers a childless IKE SA, the other allows it.
# CASES: us them
net_direct
site
ike "$CASE" childless prefer
start
up "$CASE"
installed
expect_log them 'CREATE_CHILD_SA request 2'
ping_both
