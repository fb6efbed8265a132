# Two authentication rounds each way (RFC 4739): first a certificate, then
# another of another CA.
# CASES: us them
# TIMEOUT: 120
net_direct
site
for n in 1 2; do
    ca ours ca$n ecdsa384
    for side in us them; do
        certificate ours $side$n ecdsa256 ca$n
        give $side x509ca ca$n.pem
    done
done
with_certificates
no_secret
for side in us them; do
    ike $side local.auth ""
    ike $side local.id ""
    ike $side remote.auth ""
    ike $side remote.id ""
    for n in 1 2; do
        give $side x509 $side$n.pem
        give $side private $side$n.key
        ike $side local-$n.auth pubkey
        ike $side local-$n.certs $side$n.pem
        ike $side local-$n.id $side$n.example.org
        ike $side remote-$n.auth pubkey
        ike $side remote-$n.id "$(other $side)$n.example.org"
        ike $side remote-$n.cacerts ca$n.pem
    done
done
start
up "$CASE"
installed
ping_both
rekey us ike
ping_both
