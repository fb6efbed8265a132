# isolation.sh stops the guest when it sees `now`.
# US: none
# THEM: none
# TIMEOUT: 5
: >$OUT/now
sleep 60
