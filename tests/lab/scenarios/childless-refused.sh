# The side named never makes a childless IKE SA; the other, which would only
# allow it, gets its child in IKE_AUTH as ever.
# CASES: us them
net_direct
site
ike "$CASE" childless never
start
up "$(other "$CASE")"
installed
ping_both
