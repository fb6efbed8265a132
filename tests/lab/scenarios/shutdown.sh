# A side that ends in order (SIGTERM) deletes its SAs at the other.
# CASES: us them
net_direct
site
start
up us
installed
stop "$CASE"
gone "$(other "$CASE")"
wait_for "$PATIENCE" dead "$CASE" || fail "$CASE still runs"
