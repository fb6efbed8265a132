# A pre-shared key one way and a certificate the other; the side named has the
# certificate. And raw public keys, and certificates, which both know beforehand,
# so that nothing is sent and no CA is needed.
# CASES: us them raw pinned
# TIMEOUT: 120
net_direct
site
with_certificates
ca ours ca ecdsa384
certificate ours us ecdsa256 ca
certificate ours them ecdsa256 ca
case $CASE in
raw)
    no_secret
    for side in us them; do
        "$DAEMON" pki --pub --in "$PKI/$side.key" --out "$PKI/$side.pub"
    done
    for side in us them; do
        give $side private $side.key
        give $side pubkey us.pub them.pub
        ike $side local.auth pubkey
        ike $side remote.auth pubkey
        ike $side local.pubkeys $side.pub
        ike $side remote.pubkeys "$(other $side).pub"
    done
    ;;
pinned)
    no_secret
    ike both send_cert never
    ike both send_certreq no
    for side in us them; do
        give $side private $side.key
        give $side x509 us.pem them.pem
        ike $side local.auth pubkey
        ike $side remote.auth pubkey
        ike $side local.certs $side.pem
        ike $side remote.certs "$(other $side).pem"
    done
    ;;
*)
    give "$CASE" x509 "$CASE.pem"
    give "$CASE" private "$CASE.key"
    give "$(other "$CASE")" x509ca ca.pem
    ike "$CASE" local.auth pubkey
    ike "$CASE" local.certs "$CASE.pem"
    ike "$(other "$CASE")" remote.auth pubkey
    ;;
esac
start
each_side_initiates
