# A peer that lost everything connects anew: INITIAL_CONTACT clears what the
# other side still had of it.
# CASES: us them
# PLANE: userspace kernel
net_direct
site
start
up us
installed
kill_hard "$CASE"
forget "$CASE"
start "$CASE"
up "$CASE"
installed
ping_both
