# A signature scheme that no crate of the engine knows (tests/schemes), between a daemon that its program brings it to
# and strongSwan, which has the scheme by OpenSSL: certificates and AUTH, either side initiates. Each side has a CA and
# a key of its own: ours by `pki` of that program, the peer's by OpenSSL.
# CASES: ed448 brainpool
# TIMEOUT: 150
net_direct
site
case $CASE in
ed448) kind=ed448 by=ED448 ;;
brainpool) kind=ecdsa_brainpoolp256r1 by=ECDSA_WITH_SHA256_DER ;;
esac
DAEMON=/bin-under-test/schemes-daemon
[ -x $DAEMON ] || fail "no daemon with the schemes (cargo test -p ike-test-schemes-daemon --no-run)"
ca ours our-ca $kind
ca openssl their-ca $kind
certificate ours us $kind our-ca
certificate openssl them $kind their-ca
by_certificate
for side in us them; do give $side x509ca our-ca.pem their-ca.pem; done
ike us local.auth $kind
ike us remote.auth $kind
start
each_side_initiates
expect_log them "authentication of 'us.example.org' with $by successful"
expect_log them "authentication of 'them.example.org' \\(myself\\) with $by"
expect_log us "IKE SA established.* remote_auth=$kind"
