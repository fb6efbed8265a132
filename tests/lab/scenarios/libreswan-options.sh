# libreswan 5.2 with certificates, without any authentication, with a post-quantum preshared
# key, with IKE_INTERMEDIATE and with narrowing, brought up by either side.
# CASES: rsa ecdsa null ppk intermediate narrowing
# MORE: intermediate-announced
# THEM: libreswan
net_direct
site
ip -n right route add $LEFT_NET via "$US_OWN"
case $CASE in
rsa | ecdsa)
    kind=$CASE
    [ "$CASE" = rsa ] || kind=ecdsa256
    ca openssl ca ecdsa384
    certificate ours us $kind ca
    certificate openssl them $kind ca
    by_certificate
    give us x509ca ca.pem
    give them x509ca ca.pem
    conf them libreswan.authby $CASE-sha2
    # As initiator it asks for no certificate unless it is told the CA, and then refuses a
    # peer that sends none: it is told, or the peer sends its own unasked.
    if [ "$CASE" = rsa ]; then conf them libreswan.rightca %same; else ike us send_cert always; fi
    by='(RSA|ECDSA)[A-Z0-9_-]*'
    ;;
null)
    ike both local.auth null
    ike both remote.auth null
    no_secret
    by='NULL Authentication'
    ;;
ppk)
    ike both ppk_id quantum.example.org
    ike both ppk_required yes
    conf both secrets.ppk-site.id quantum.example.org
    conf both secrets.ppk-site.secret "a secret of at least thirty-two octets"
    ;;
intermediate*)
    conf them libreswan.intermediate yes
    # For a hybrid proposal this end announces the exchange, and libreswan does; no use is made of it.
    [ "$CASE" = intermediate ] || ike us proposals ''
    ;;
narrowing)
    conf them libreswan.narrowing yes
    net us local_ts 10.1.0.0/24
    net us remote_ts 10.2.0.0/24
    ;;
esac
start
for side in us them; do
    if [ $CASE-$side = intermediate-announced-us ]; then
        # libreswan covers by AUTH what did not take place (RFC 9242 §3.3.2).
        up_fails us
        expect_log them 'authentication failed: computed hash does not match'
        continue
    fi
    up $side
    installed
    ping_both
    case $CASE in
    rsa | ecdsa | null) expect_log us "IKE SA established .*remote_auth=$by" ;;
    ppk)
        expect us '.[0].ppk == true'
        rekey them ike
        rekey us ike
        expect us 'live | .[0].ppk == true'
        ping_both
        ;;
    intermediate*) expect us '(.[0].ke // []) == []' ;;
    narrowing) expect us 'children | map([."local-ts", ."remote-ts"]) == [[["10.1.0.0/24"], ["10.2.0.0/24"]]]' ;;
    esac
    down $side ike
    gone
done
case $CASE in intermediate*) expect_log them 'sent IKE_INTERMEDIATE' ;; esac
expect_wire 'ip proto 50'
