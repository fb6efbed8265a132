# A chain with an intermediate CA and revocation under the policy "strict": by
# a list from a file or over HTTP, or by an OCSP responder. What is revoked is
# refused and told nothing but AUTHENTICATION_FAILED.
# CASES: good-file good-http good-ocsp revoked-file revoked-http revoked-ocsp revoked-ca unreachable
# TIMEOUT: 120
net_direct
site
how=${CASE#*-}
ca openssl root ecdsa384
ca ours inter ecdsa256 root
case $how in
ocsp) extra=(--ocsp "$(ocsp_url)") ;;
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
revoked-ca) crl root inter ;;
good-ocsp) ocsp_index inter us them ;;
revoked-ocsp)
    ocsp_index inter us them
    ocsp_revoke inter them
    ;;
revoked-*) crl inter them ;;
esac
case $CASE in
*-file) give us x509crl root.crl inter.crl ;;
unreachable) ;;
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
    esac
    ;;
*)
    for side in us them; do
        up_fails $side
        gone
    done
    case $CASE in
    unreachable) expect_log us 'not known whether certificate .*CN=them.* has been revoked' ;;
    revoked-ca) expect_log us 'certificate .*CN=inter.* has been revoked' ;;
    *) expect_log us 'certificate .*CN=them.* has been revoked' ;;
    esac
    expect_log them 'AUTH_FAILED'
    no_ping
    ;;
esac
