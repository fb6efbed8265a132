# OpenSSL verifies the certificates, requests and lists that this project makes
# with every kind of key, and this project those of OpenSSL.
# CASES: rsa2048 ecdsa256 ed25519 mldsa65 mldsa87 slhdsa128s
# MORE: ecdsa384 ecdsa521 mldsa44
# THEM: none
# US: none
# TIMEOUT: 120
kind=$CASE
[ "$kind" != rsa2048 ] || kind=rsa
ca ours root "$kind"
ca ours inter "$kind" root
certificate ours leaf "$kind" inter --crl "$(http_url inter.crl)"
certificate ours bad "$kind" inter
crl root
crl inter bad
cd "$PKI"
for list in root inter; do openssl crl -inform der -in $list.crl -out $list.pemcrl; done
chain=(-CAfile root.pem -untrusted inter.pem -x509_strict -crl_check_all -CRLfile root.pemcrl -CRLfile inter.pemcrl)
openssl verify "${chain[@]}" leaf.pem || fail "OpenSSL refuses a good chain"
! openssl verify "${chain[@]}" bad.pem >revoked.out 2>&1 || fail "OpenSSL takes a revoked certificate"
grep -q revoked revoked.out || fail "$(cat revoked.out)"
"$DAEMON" pki --req --in leaf.key --dn "CN=request" --san request.example.org --out leaf.csr
openssl req -verify -noout -in leaf.csr || fail "request"
openssl pkey -in leaf.key -pubout -out leaf.pub1 && "$DAEMON" pki --pub --in leaf.key --out leaf.pub2
cmp leaf.pub1 leaf.pub2 || fail "public keys differ"
case $kind in slhdsa*) exit 0 ;; esac
ca openssl oroot "$kind"
ca openssl ointermediate "$kind" oroot
certificate openssl oleaf "$kind" ointermediate
"$DAEMON" pki --verify --in oleaf.pem --cacert oroot.pem --cacert ointermediate.pem --id oleaf.example.org
! "$DAEMON" pki --verify --in oleaf.pem --cacert root.pem --cacert ointermediate.pem || fail "any CA will do"
