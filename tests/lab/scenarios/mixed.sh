# Lists with a classical and a hybrid proposal, in either order on either side:
# the responder's preference counts, and both sides come to the same choice. One
# side that has hybrids alone gets one whatever the other prefers.
# The case: who initiates, what it prefers, what the responder prefers.
# CASES: us-hybrid-hybrid us-hybrid-classical us-classical-hybrid us-classical-classical us-classical-only them-hybrid-hybrid them-hybrid-classical them-classical-hybrid them-classical-classical them-classical-only
net_direct
site
hybrid=aes256gcm16-prfsha384-x25519-ke1_mlkem768
classical=aes256gcm16-prfsha384-x25519
IFS=- read -r role first second <<<"$CASE"
list() {
    case $1 in
    hybrid) echo "$hybrid, $classical" ;;
    classical) echo "$classical, $hybrid" ;;
    only) echo "$hybrid" ;;
    esac
}
ike "$role" proposals "$(list "$first")"
ike "$(other "$role")" proposals "$(list "$second")"
start
up "$role"
installed
if [ "$second" = classical ]; then
    ! log_has them IKE_INTERMEDIATE || fail "IKE_INTERMEDIATE, though the responder prefers classical"
    expect us '(.[0].ke // []) == []'
else
    expect_log them 'IKE_INTERMEDIATE response'
    expect us '.[0].ke == ["ML_KEM_768"]'
fi
ping_both
