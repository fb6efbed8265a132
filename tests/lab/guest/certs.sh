# Certificates, made by either program, in the folders that both look in:
# $STATE/SIDE.d/x509, x509ca, private and so on.
# shellcheck shell=bash disable=SC2034

PKI=$STATE/pki

# What strongSwan needs besides, for certificates and to fetch.
STRONGSWAN_MORE=
with_certificates() { STRONGSWAN_MORE="revocation curl pkcs12 pkcs7"; }

# Where the lists and answers of a scenario are served: on the peer's own address.
HTTP_PORT=8000
OCSP_PORT=8001
http_url() { echo "http://$THEM_OWN:$HTTP_PORT/$1"; }
ocsp_url() { echo "http://$THEM_OWN:$OCSP_PORT/"; }

# pki_key MAKER NAME KIND: MAKER is ours, openssl or strongswan.
pki_key() { mkdir -p "$PKI" && "key_$1" "$2" "$3" && chmod 600 "$PKI/$2.key"; }

# key NAME KIND: RSA-2048, ECDSA P-256 and so on, in $PKI/NAME.key.
key_ours() {
    local type=$2 size=
    case $2 in
    rsa*) type=rsa size="--size 2048" ;;
    ecdsa_*) ;;
    ecdsa*) type=ecdsa size="--size ${2#ecdsa}" ;;
    esac
    # shellcheck disable=SC2086
    "$DAEMON" pki --gen --type "$type" $size --out "$PKI/$1.key"
}
key_openssl() {
    local options
    case $2 in
    rsa*) options="-algorithm RSA -pkeyopt rsa_keygen_bits:2048" ;;
    ecdsa_brainpoolp256r1) options="-algorithm EC -pkeyopt ec_paramgen_curve:brainpoolP256r1" ;;
    ecdsa*) options="-algorithm EC -pkeyopt ec_paramgen_curve:P-${2#ecdsa}" ;;
    ed25519 | ed448) options="-algorithm $2" ;;
    mldsa*) options="-algorithm ML-DSA-${2#mldsa}" ;;
    *) fail "no key of kind $2" ;;
    esac
    # shellcheck disable=SC2086
    openssl genpkey -quiet $options -out "$PKI/$1.key"
}

key_strongswan() {
    local options
    case $2 in
    rsa*) options="--type rsa --size 2048" ;;
    ecdsa*) options="--type ecdsa --size ${2#ecdsa}" ;;
    ed25519) options="--type ed25519" ;;
    *) fail "no key of kind $2" ;;
    esac
    # shellcheck disable=SC2086
    pki --gen $options --outform pem >"$PKI/$1.key"
}

# ca MAKER NAME KIND [ISSUER [EXTENSIONS]]: a CA, self-signed or below another.
# EXTENSIONS are lines of an extension file, for openssl.
ca() {
    local maker=$1 name=$2 kind=$3 issuer=${4:-}
    pki_key "$maker" "$name" "$kind"
    "ca_$maker" "$name" "$issuer" "${5:-}"
}
ca_ours() {
    local in="--in $PKI/$1.key --ca --out $PKI/$1.pem"
    # shellcheck disable=SC2086
    case $2 in
    "") "$DAEMON" pki --self $in --dn "O=lab, CN=$1" ;;
    *) "$DAEMON" pki --issue $in --dn "O=lab, CN=$1" --cacert "$PKI/$2.pem" --cakey "$PKI/$2.key" \
        --crl "$(http_url "$2.crl")" ;;
    esac
}
ca_openssl() {
    local ext="basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash"
    [ -z "$2" ] || ext="$ext
crlDistributionPoints=URI:$(http_url "$2.crl")"
    sign_openssl "$1" "$2" "$ext
${3:-}"
}

ca_strongswan() {
    [ -z "$2" ] || fail "only roots"
    pki --self --ca --in "$PKI/$1.key" --dn "O=lab, CN=$1" --outform pem >"$PKI/$1.pem"
}

# certificate MAKER NAME KIND CA [OPTIONS]: of NAME.example.org. OPTIONS are those
# of pki --issue for ours, lines of an extension file for openssl.
certificate() {
    local maker=$1 name=$2 kind=$3
    pki_key "$maker" "$name" "$kind"
    shift 3
    "certificate_$maker" "$name" "$@"
}
certificate_ours() {
    local name=$1 ca=$2
    shift 2
    "$DAEMON" pki --issue --in "$PKI/$name.key" --cacert "$PKI/$ca.pem" --cakey "$PKI/$ca.key" \
        --dn "O=lab, CN=$name" --san "$name.example.org" "$@" --out "$PKI/$name.pem"
}
certificate_openssl() {
    sign_openssl "$1" "$2" "subjectAltName=DNS:$1.example.org
keyUsage=critical,digitalSignature
${3:-}"
}

certificate_strongswan() {
    local name=$1 ca=$2
    shift 2
    pki --issue --in "$PKI/$name.key" --type priv --cacert "$PKI/$ca.pem" --cakey "$PKI/$ca.key" \
        --dn "O=lab, CN=$name" --san "$name.example.org" "$@" --outform pem >"$PKI/$name.pem"
}

# sign_openssl NAME ISSUER EXTENSIONS
sign_openssl() {
    local sign="-key $PKI/$1.key"
    [ -z "$2" ] || sign="-CA $PKI/$2.pem -CAkey $PKI/$2.key"
    printf '%s\n' "$3" >"$PKI/$1.ext"
    openssl req -new -key "$PKI/$1.key" -subj "/O=lab/CN=$1" -out "$PKI/$1.csr"
    # shellcheck disable=SC2086
    openssl x509 -req -in "$PKI/$1.csr" $sign -extfile "$PKI/$1.ext" -days 30 -out "$PKI/$1.pem" 2>>"$OUT/openssl.out"
}

# crl CA [CERTIFICATE…]: a list in $PKI/CA.crl that revokes these.
crl() {
    local ca=$1 revoked=() name
    shift
    for name; do revoked+=(--cert "$PKI/$name.pem"); done
    rm -f "$PKI/$ca.crl"
    "$DAEMON" pki --signcrl --cacert "$PKI/$ca.pem" --cakey "$PKI/$ca.key" "${revoked[@]}" \
        --outform der --out "$PKI/$ca.crl"
}

# give SIDE FOLDER FILE…: puts files of $PKI where SIDE looks for them.
give() {
    local to=$STATE/$1.d/$2
    shift 2
    mkdir -p "$to"
    (cd "$PKI" && cp "$@" "$to/")
}

# by_certificate: the connection "site" authenticates with certificates us and
# them, both ways. Each side has its own and what the scenario gives it.
by_certificate() {
    local side
    with_certificates
    for side in us them; do
        give $side x509 $side.pem
        give $side private $side.key
        conf $side connections.site.local.auth pubkey
        conf $side connections.site.local.certs $side.pem
        conf $side connections.site.remote.auth pubkey
    done
    no_secret
}

# no_secret: without the pre-shared key of "site".
no_secret() {
    conf both secrets.ike-site.id ""
    conf both secrets.ike-site.secret ""
}

# serve_http: serves $PKI on the peer's address.
serve_http() {
    in_ns them perl /lab/guest/http.pl "$THEM_OWN" "$HTTP_PORT" "$PKI" >"$OUT/http.log" 2>&1 &
    wait_for 5 http_ready || fail "no HTTP server"
}
http_ready() { in_ns them ss -Hltn "sport = :$HTTP_PORT" | grep -q .; }

# publish NAME…: certificates under their hashes, for serve_http.
publish() {
    local name
    for name; do "$DAEMON" pki --publish --in "$PKI/$name.pem" --dir "$PKI" >/dev/null; done
}

# hash_and_url SIDE CA…: SIDE sends what these have issued by hash and URL, and
# fetches what the peer sends so.
hash_and_url() {
    local side=$1 ca
    shift
    for ca; do
        conf "$side" "authorities.$ca.cacert" "$ca.pem"
        conf "$side" "authorities.$ca.cert_uri_base" "$(http_url "")"
    done
    conf "$side" charon.hash_and_url yes
    [ "$side" = them ] || conf "$side" charon.hash_and_url_from "$(http_url "")"
}

# ocsp_index CA CERTIFICATE…: what the responder of CA knows; all good at first.
ocsp_index() {
    local ca=$1 name serial
    shift
    for name; do
        serial=$(openssl x509 -in "$PKI/$name.pem" -noout -serial)
        printf 'V\t491231235959Z\t\t%s\tunknown\t/O=lab/CN=%s\n' "${serial#serial=}" "$name"
    done >"$PKI/$ca.index"
}
ocsp_revoke() { sed -i "/CN=$2\$/s/^V\t\([^\t]*\)\t\t/R\t\1\t250101000000Z\t/" "$PKI/$1.index"; }

# serve_ocsp CA: a responder of OpenSSL on the peer's address.
serve_ocsp() {
    in_ns them openssl ocsp -index "$PKI/$1.index" -port "$OCSP_PORT" -nmin 10 \
        -rsigner "$PKI/$1.pem" -rkey "$PKI/$1.key" -CA "$PKI/$1.pem" >"$OUT/ocsp.log" 2>&1 &
    wait_for 5 ocsp_ready || fail "no OCSP responder"
}
ocsp_ready() { in_ns them ss -Hltn "sport = :$OCSP_PORT" | grep -q .; }
