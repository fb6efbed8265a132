# Certificates that are in order but not what the other side wants: another CA,
# another identity, a key of another type, no certificate but a secret. The
# side named refuses; nothing comes up, whoever starts.
# CASES: ca-us ca-them id-us id-them type-us type-them psk-us psk-them
# TIMEOUT: 120
net_direct
site
who=${CASE#*-} what=${CASE%-*}
ca ours ca ecdsa384
ca ours other ecdsa384
certificate ours us ecdsa256 ca
certificate ours them ecdsa256 ca
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
case $what in
ca)
    rm "$STATE/$who.d/x509ca/ca.pem"
    give "$who" x509ca other.pem
    reason='no trusted CA'
    ;;
id)
    ike "$who" remote.id somebody.example.org
    reason='.'
    ;;
type)
    ike "$who" remote.auth rsa-sha256
    reason='.'
    ;;
psk)
    conf both secrets.ike-site.id "us.example.org, them.example.org"
    conf both secrets.ike-site.secret "a secret that only these two know"
    ike "$(other "$who")" local.auth psk
    ike "$(other "$who")" local.certs ""
    reason='.'
    ;;
esac
start
for side in us them; do
    up_fails $side
    gone
done
[ "$who" = them ] || expect_log us "$reason"
expect_log them 'AUTH_FAILED'
no_ping
