# Certificates both ways, of every kind that strongSwan has, by RFC 7427 or,
# without it, by the older methods; made by this project, by OpenSSL or by
# strongSwan's pki; either side initiates.
# CASES: rsa-pkcs1 rsa-pss rsa-openssl rsa-legacy ecdsa256 ecdsa521-openssl ecdsa256-legacy ecdsa256-uslegacy ed25519 ed25519-strongswan
# MORE: rsa-strongswan ecdsa384 ecdsa384-legacy ed25519-openssl
# TIMEOUT: 150
net_direct
site
maker=ours legacy=no
case $CASE in
*-openssl) maker=openssl ;;
*-strongswan) maker=strongswan ;;
*-legacy) legacy=them ;;
*-uslegacy) legacy=us ;;
esac
kind=${CASE%%-*}
ca "$maker" ca ecdsa384
# With the old method for RSA this end does not sign, because its hash is SHA-1.
[ "$CASE" = rsa-legacy ] && ours=ecdsa256 || ours=$kind
certificate "$maker" us "$ours" ca
certificate "$maker" them "$kind" ca
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
[ $legacy = no ] || conf $legacy charon.signature_authentication no
case $CASE in
rsa-pkcs1 | rsa-openssl | rsa-strongswan)
    # strongSwan's "rsa" is this padding alone, ours the better one too.
    ike us local.auth rsa/pkcs1-sha256
    ike them local.auth rsa-sha256
    by=RSA_EMSA_PKCS1_SHA2_256
    ;;
rsa-pss)
    ike both local.auth rsa/pss-sha256
    by=RSA_EMSA_PSS_SHA2_256
    ;;
rsa-legacy)
    ike us remote.auth ike:rsa-sha1
    by='RSA signature|ECDSA-256'
    ;;
ecdsa256*) by='ECDSA-256|ECDSA_WITH_SHA256_DER' ;;
ecdsa384*) by='ECDSA-384|ECDSA_WITH_SHA384_DER' ;;
ecdsa521*) by='ECDSA-521|ECDSA_WITH_SHA512_DER' ;;
ed25519*) by='ED25519' ;;
esac
start
each_side_initiates
expect_log them "authentication of 'us.example.org' with ($by)[A-Z0-9_]*( signature)? successful"
expect_log them "authentication of 'them.example.org' \\(myself\\) with ($by)"
