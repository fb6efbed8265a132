# The peer comes back with a wrong secret, or without a proposal in common, and has the right configuration half a minute later.
# CASES: ours-secret
# MORE: libreswan-secret strongswan-secret strongswan-proposal ours-proposal beside-charon-secret
# PLANE: userspace
# TIMEOUT: 300
. /lab/guest/outage.sh
how=${CASE##*-} CASE=${CASE%-*}
settings() { impatient us; }
outage() {
    them_dies
    case $how in
    secret) right="a secret that only these two know" key=secrets.ike-site.secret wrong="another secret" ;;
    proposal) right=aes256gcm16-prfsha256-x25519 key=connections.site.proposals wrong=aes128gcm16-prfsha384-ecp384 ;;
    esac
    conf them $key "$wrong"
    them_again
    expect_log them 'AUTH_FAILED|AUTHENTICATION_FAILED|NO_PROP|peer refused|IKE_SA_INIT refused'
    sleep 30
    conf them $key "$right"
    them_reads_again
    back
}
tunnel_comes_back 85
