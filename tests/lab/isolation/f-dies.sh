# isolation.sh kills the guest when it sees `now`.
# US: none
# THEM: none
: >$OUT/now
sleep 60
