# A chain with an intermediate CA and revocation under the policy "strict": by
# a list from a file or over HTTP, by an OCSP responder, or by OCSP responses that
# both sides ask each other for and send in IKE_AUTH (RFC 4806). What is revoked is
# refused and told nothing but AUTHENTICATION_FAILED. A CA that "cacerts" names is a
# condition on the path: what its root says of it holds all the same.
# CASES: good-file good-http good-ocsp good-sent good-cacerts revoked-file revoked-http revoked-ocsp revoked-ca unreachable cacerts-revoked cacerts-skipped cacerts-pathlen
# TIMEOUT: 120
net_direct
site
how=${CASE#*-}
own_root() { "$DAEMON" pki --self --ca "$@" --in "$PKI/root.key" --dn "O=lab, CN=root" --out "$PKI/root.pem"; }
case $CASE in
*-pathlen)
    pki_key ours root ecdsa384
    own_root
    ;;
*) ca openssl root ecdsa384 ;;
esac
ca ours inter ecdsa256 root
case $CASE in
*-pathlen)
    # Issued before the root had it: `pki` refuses it now.
    rm "$PKI/root.pem"
    own_root --pathlen 0
    ;;
esac
case $how in
ocsp | sent) extra=(--ocsp "$(ocsp_url)") ;;
*) extra=(--crl "$(http_url inter.crl)") ;;
esac
certificate ours us ecdsa256 inter "${extra[@]}"
certificate ours them ecdsa256 inter "${extra[@]}"
crl root
crl inter
by_certificate
give us x509ca root.pem
give them x509ca root.pem
# Each has the link to its own certificate, and sends it.
give us x509ca inter.pem
give them x509ca inter.pem
ike us remote.revocation strict
case $CASE in
*cacerts*)
    ike us remote.cacerts inter.pem
    [ "$how" != revoked ] || crl root inter
    lists=(root.crl inter.crl)
    [ "$how" != skipped ] || lists=(inter.crl)
    give us x509crl "${lists[@]}"
    ;;
revoked-ca) crl root inter ;;
good-ocsp) ocsp_index inter us them ;;
good-sent)
    ocsp_index inter us them
    ike both ocsp both
    ike them remote.revocation strict
    give them x509crl root.crl
    ;;
revoked-ocsp)
    ocsp_index inter us them
    ocsp_revoke inter them
    ;;
revoked-*) crl inter them ;;
esac
case $CASE in
*-file) give us x509crl root.crl inter.crl ;;
*-sent) give us x509crl root.crl && serve_ocsp inter ;;
unreachable | *cacerts*) ;;
*-ocsp) serve_http && serve_ocsp inter ;;
*) serve_http ;;
esac
start
case $CASE in
good-*)
    each_side_initiates
    case $how in
    http)
        expect_log us 'revocation information fetched.*inter.crl'
        # What was fetched once does for the second time.
        [ "$(grep -c "^$US_SEEN GET /inter.crl" "$OUT/http.log")" = 1 ] || fail "the list was fetched again"
        ;;
    ocsp) expect_log us 'revocation information fetched.*:8001' ;;
    sent)
        expect_log us 'OCSP response for the own certificate fetched'
        expect_log them 'sending OCSP status for certificate "O=lab, CN=them"'
        expect_log them 'received OCSP response issued by'
        expect_log them 'using cached ocsp response'
        # Each has asked about its own certificate, and nobody about the other's.
        ! grep -q 'revocation information' "$(log_of us)" || fail "asked about the peer's certificate"
        [ "$(grep -c 'requesting ocsp status' "$(log_of them)")" = 1 ] || fail "asked more than once"
        ;;
    esac
    ;;
*)
    for side in us them; do
        up_fails $side
        gone
    done
    case $CASE in
    cacerts-skipped) expect_log us 'not known whether certificate .*CN=inter.* has been revoked' ;;
    cacerts-pathlen) expect_log us 'the basicConstraints do not allow this path' ;;
    unreachable) expect_log us 'not known whether certificate .*CN=them.* has been revoked' ;;
    revoked-ca | cacerts-revoked) expect_log us 'certificate .*CN=inter.* has been revoked' ;;
    *) expect_log us 'certificate .*CN=them.* has been revoked' ;;
    esac
    expect_log them 'AUTH_FAILED'
    no_ping
    ;;
esac
