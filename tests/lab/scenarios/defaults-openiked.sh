# No proposals on our side, OpenIKED at the other: classical, and rekeys of the
# child and of the IKE SA; OpenIKED starts its own by lifetime alone.
# CASES: us-pfs us-none them-pfs them-none
# THEM: openiked
# TIMEOUT: 150
net_direct
IFS=- read -r role pfs <<<"$CASE"
group=none
[ "$pfs" = none ] || group=curve25519
openiked_site '' $group
ike us proposals ''
net us esp_proposals ''
[ "$role" = us ] || IKED_LIFE="ikelifetime 9 lifetime 6"
start
up us
installed
expect us '(.[0].ke // []) == []'
ping_start
if [ "$role" = us ]; then
    rekey us child
    rekey us ike
    rekey us child
else
    child=$(mark child) ike=$(mark ike)
    wait_for 20 rekeyed child "$child" || fail "it did not rekey the child"
    wait_for 20 rekeyed ike "$ike" || fail "it did not rekey the IKE SA"
fi
# As in openiked-rekey: around a rekey it has no child for a moment.
ping_end 2
installed
