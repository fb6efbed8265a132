# A tunnel with OpenIKED, brought up by either side.
# CASES: us them
# THEM: openiked
# PLANE: userspace kernel
net_direct
openiked_site
if [ "$CASE" = us ]; then
    start
    up us
else
    start us
    IKED_MODE=active
    start them
fi
installed
ping_both
expect us '.[0]."child-sas"[0] | ."packets-in" >= 6 and ."packets-out" >= 6'
expect_wire 'ip proto 50'
