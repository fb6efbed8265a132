# Certificates by hash and URL, both ways (RFC 7296 §3.6): none is in IKE_AUTH,
# each side fetches the other's and its intermediate from a web server, and does
# not fetch again what it has. The case initiates.
# CASES: us them
# TIMEOUT: 120
net_direct
site
ca openssl root ecdsa384
for side in us them; do
    ca ours inter-$side ecdsa256 root
    certificate ours $side ecdsa256 inter-$side
done
by_certificate
for side in us them; do
    give $side x509ca root.pem inter-$side.pem
    publish $side inter-$side
    hash_and_url $side root inter-$side
done
serve_http
start
# fetched ADDRESS: what it fetched of certificates; it asks for a list besides.
fetched() { grep -cE "^$1 GET /[0-9a-f]{40} " "$OUT/http.log" || true; }
up "$CASE"
installed
ping_both
expect_log us 'certificate fetched and kept'
expect_log them 'received hash-and-url for end entity cert'
expect_log them 'received hash-and-url for issuer cert'
for address in "$US_SEEN" "$THEM_OWN"; do
    [ "$(fetched "$address")" = 2 ] || fail "$address fetched $(fetched "$address") files in place of 2"
done
down "$CASE" ike
gone
up "$CASE"
installed
[ "$(fetched "$US_SEEN")" = 2 ] || fail "fetched again"
down "$CASE" ike
gone
