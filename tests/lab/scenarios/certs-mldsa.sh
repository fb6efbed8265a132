# Ours with ours: ML-DSA certificates both ways and a post-quantum policy that
# takes nothing less; a chain with an intermediate; SLH-DSA for the signature
# of the other side. Certificates of OpenSSL too.
# CASES: mldsa44 mldsa65 mldsa87 mldsa87-openssl slhdsa
# THEM: daemon
# TIMEOUT: 150
net_direct
site
maker=ours
case $CASE in
*-openssl) maker=openssl kind=${CASE%-*} ;;
slhdsa) kind=slhdsa128s ;;
*) kind=$CASE ;;
esac
authority=$kind
[ "$CASE" != slhdsa ] || authority=mldsa87
ca "$maker" root "$authority"
ca "$maker" inter "$authority" root
certificate "$maker" us "$kind" inter
certificate "$maker" them "$kind" inter
by_certificate
for side in us them; do
    give $side x509ca root.pem
    give $side x509ca inter.pem
    ike $side remote.auth "${kind%128s}"
done
[ "$CASE" != slhdsa ] || ike both remote.auth ike:slhdsa
ike both proposals aes256gcm16-prfsha384-x25519-ke1_mlkem1024
start
for side in us them; do
    up $side
    installed
    ping_both
    rekey $side ike
    down $side ike
    gone
done
