# Rekeys with OpenIKED: ours by command; its own, which it starts by lifetime.
# CASES: us them
# THEM: openiked
net_direct
openiked_site x25519 curve25519
[ "$CASE" = us ] || IKED_LIFE="ikelifetime 9 lifetime 6"
start
up us
installed
ping_start
if [ "$CASE" = us ]; then
    rekey us child
    rekey us ike
    rekey us child
else
    child=$(mark child) ike=$(mark ike)
    wait_for 20 rekeyed child "$child" || fail "it did not rekey the child"
    wait_for 20 rekeyed ike "$ike" || fail "it did not rekey the IKE SA"
fi
ping_end
installed
