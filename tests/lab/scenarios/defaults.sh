# No proposals on our side: hybrid with every peer that offers it, and what the
# peer has with any other; rekeys of the child and of the IKE SA by either side.
# CASES: hybrid hybrid-besides classical cbc pfs pfs-group theirs ours
# TIMEOUT: 150
# PLANE: userspace kernel
net_direct
[ "$CASE" != ours ] || ours_too
site
ike us proposals ''
net us esp_proposals ''
hybrid=aes256gcm16-prfsha384-x25519-ke1_mlkem768
methods='["ML_KEM_768"]' children='["ML_KEM_768"]'
case $CASE in
hybrid)
    ike them proposals $hybrid
    net them esp_proposals aes256gcm16-x25519-ke1_mlkem768
    ;;
hybrid-besides)
    ike them proposals "$hybrid, aes256gcm16-prfsha384-x25519"
    net them esp_proposals "aes256-sha256-ecp256-ke1_mlkem768, aes256gcm16"
    ;;
classical)
    net them esp_proposals aes256gcm16
    methods='[]' children='[]'
    ;;
cbc)
    ike them proposals aes256-sha256-modp2048
    net them esp_proposals aes256-sha256
    methods='[]' children='[]'
    ;;
pfs) methods='[]' children='[]' ;;
pfs-group)
    net them esp_proposals aes128gcm16-ecp384
    methods='[]' children='[]'
    ;;
theirs)
    # What strongSwan has by default: every classical method, optional for children.
    ike them proposals ''
    net them esp_proposals ''
    methods='[]' children='[]'
    ;;
ours)
    ike them proposals ''
    net them esp_proposals ''
    ;;
esac
start
for side in us them; do
    up $side
    installed
    expect us "(.[0].ke // []) == $methods"
    ping_start
    for turn in us them; do
        rekey $turn child
        rekey $turn ike
        # Which of them the first rekey was by must not matter for the next.
        rekey $turn child
        expect us "(live | .[0].ke // []) == $methods"
        expect us "children | map(.ke // []) == [$children]"
    done
    ping_end
    case $CASE in
    pfs) expect us 'children | map(."dh-group") == ["CURVE_25519"]' ;;
    pfs-group) expect us 'children | map(."dh-group") == ["ECP_384"]' ;;
    classical | cbc) expect us 'children | map(."dh-group" // "none") == ["none"]' ;;
    esac
    down $side ike
    gone
done
