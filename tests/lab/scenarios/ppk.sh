# Post-quantum preshared keys (RFC 8784): required, optional, unknown to the
# other side by name or altogether, and with another secret. The case names the
# side that initiates.
# CASES: us-required them-required us-optional them-optional them-none-here us-none-there us-unknown us-required-none-there them-required-unknown us-wrong-secret them-wrong-secret
# MORE: us-none-here them-none-there them-unknown us-required-none-here them-required-none-here them-required-none-there us-required-unknown
# TIMEOUT: 120
net_direct
site
# A responder that the initiator turns away from forgets it after this.
conf us charon.half_open_timeout 5
role=${CASE%%-*}
kind=${CASE#*-}
for side in us them; do
    case $kind-$side in *none-here-us | *none-there-them) continue ;; esac
    id=quantum.example.org
    asks_for=$id
    secret=0x8f3c0e5b7a6d41f29c8b7e6d5c4b3a2918f7e6d5c4b3a291807f6e5d4c3b2a19
    case $kind-$side in
    *unknown-them)
        # As responder strongSwan declines only what its own ppk_id names and it has no key for.
        id=other.example.org
        [ "$role" = us ] || asks_for=$id
        ;;
    wrong-secret-them) secret=0x0000000000000000000000000000000000000000000000000000000000000001 ;;
    esac
    ike $side ppk_id $asks_for
    case $kind in required*) ike $side ppk_required yes ;; esac
    conf $side secrets.ppk-site.id $id
    conf $side secrets.ppk-site.secret $secret
done
start
case $kind in
required | optional)
    up "$role"
    installed
    expect us '.[0].ppk == true'
    expect them '.[0].ppk == true'
    ping_both
    for side in us them; do
        rekey $side child
        rekey $side ike
    done
    expect us '.[0].ppk == true'
    ping_both
    ;;
none-* | unknown)
    up "$role"
    installed
    expect us '(.[0].ppk // false) == false'
    expect them '(.[0].ppk // false) == false'
    ping_both
    ;;
*)
    up_fails "$role" || fail "$CASE came up"
    gone
    [ "$(kernel_states them)" = 0 ] || fail "SAs left in the kernel of them"
    ;;
esac
