# EAP: the side named initiates and is authenticated by it, the other is the
# gateway and shows a certificate. "only" is EAP-TLS with TLS 1.3 and without any
# other authentication (RFC 5998); by RADIUS the gateway asks FreeRADIUS. "usage" is
# EAP-TLS with certificates whose only usages are those of TLS (RFC 5216 5.3).
# CASES: mschapv2-us mschapv2-them tls-us tls-them usage-us usage-them only-us only-them ttls-them radius-them
# TIMEOUT: 120
net_direct
site
client=${CASE#*-} method=${CASE%%-*}
gateway=$(other "$client")
ca ours ca ecdsa384
for side in us them; do
    usage=()
    [ "$method" != usage ] || usage=(--flag "$([ "$side" = "$client" ] && echo clientAuth || echo serverAuth)")
    certificate ours "$side" ecdsa256 ca "${usage[@]}"
done
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
STRONGSWAN_MORE+=" md5 eap-identity eap-md5 eap-mschapv2 eap-tls eap-ttls"
eap=eap-$method proven='EAP-[A-Z0-9]+ \("carol"\)'
case $method in
only) eap=eap-tls proven='EAP-TLS' ;;
tls | usage) eap=eap-tls proven='EAP-TLS' ;;
radius)
    eap=eap-mschapv2
    radius_start "$gateway"
    # The first server is not there.
    radius=charon.plugins.eap-radius
    conf "$gateway" $radius.retransmit_tries 1
    conf "$gateway" $radius.retransmit_timeout 0.3
    conf "$gateway" $radius.servers.absent.address 127.0.0.2
    conf "$gateway" $radius.servers.absent.secret x
    conf "$gateway" $radius.servers.absent.preference 10
    conf "$gateway" $radius.servers.present.address 127.0.0.1
    conf "$gateway" $radius.servers.present.secret "$RADIUS_SECRET"
    # The server hears of sessions (RFC 2866), and their virtual IPs.
    conf "$gateway" $radius.accounting yes
    conf "$gateway" $radius.accounting_interval 1s
    conf "$gateway" $radius.accounting_send_class yes
    conf "$gateway" $radius.class_group yes
    # It may ask about them (RFC 5176).
    conf "$gateway" $radius.dae.enable yes
    conf "$gateway" $radius.dae.secret "$RADIUS_DAE_SECRET"
    ike "$client" vips 0.0.0.0
    net "$client" local_ts dynamic
    ike "$gateway" pools radius
    net "$gateway" remote_ts dynamic
    RIGHT_IN=10.9.0.77
    ;;
esac
ike "$client" local.auth "$eap"
ike "$gateway" remote.auth "$eap"
case $method in
only)
    ike "$client" remote.auth "$eap"
    ike "$gateway" local.auth "$eap"
    conf both charon.tls.version_max 1.3
    ;;
tls | usage) ;;
*)
    ike "$client" local.certs ""
    ike "$client" local.eap_id carol
    ike "$gateway" remote.eap_id %any
    conf "$client" secrets.eap-carol.id carol
    conf "$client" secrets.eap-carol.secret Ar3etTnp
    if [ "$method" = radius ]; then
        ike "$gateway" remote.auth eap-radius
    else
        conf "$gateway" secrets.eap-carol.id carol
        conf "$gateway" secrets.eap-carol.secret Ar3etTnp
    fi
    ;;
esac
if [ "$method" = radius ]; then
    # Who is in no group of the first connection may be in one of the next.
    sed -n 's/^connections\.site\./connections.another./p' "$STATE/$gateway.conf" >"$STATE/another"
    cat "$STATE/another" "$STATE/$gateway.conf" >"$STATE/both"
    mv "$STATE/both" "$STATE/$gateway.conf"
    conf "$gateway" connections.another.remote.groups research
    ike "$gateway" remote.groups "marketing, sales"
fi
[ "$method" != ttls ] || conf them charon.plugins.eap-ttls.phase2_method mschapv2
start
up "$client"
installed
ping_both
if [ "$client" = them ]; then
    [ "$US" != daemon ] || expect_log us "$proven"
else
    expect_log them "EAP method EAP_[A-Z0-9]+ succeeded"
fi
rekey us ike
ping_both
if [ "$method" = radius ]; then
    grep -q 'NAS-Port-Id = "another"' "$OUT/radius.log" || fail "the first connection was not tried"
    session="Acct-Session-Id = \"[0-9]+-[0-9]+\""
    expect_accounted "Acct-Status-Type = Start" "$session" 'User-Name = "carol"' "Framed-IP-Address = 10\.9\.0\.77" "Class = 0x73616c6573"
    expect_accounted "Acct-Status-Type = Interim-Update" "$session" "Acct-Input-Octets = [1-9]"
    # The client hears how long it may stay, and of a change (RFC 4478).
    [ "$client" != them ] || expect_log them "received AUTH_LIFETIME of 345[0-9]{2}s"
    radius_asks "$gateway" coa "Received CoA-ACK" 'User-Name = "carol", Session-Timeout = 20000'
    [ "$client" != them ] || expect_log them "received AUTH_LIFETIME of 185[0-9]{2}s"
    radius_asks "$gateway" disconnect "Error-Cause = Session-Context-Not-Found" 'User-Name = "dave"'
    down "$client" ike
    gone
    # Both pings of both ends: the rekey has not lost what was before it.
    expect_accounted "Acct-Status-Type = Stop" "$session" "Acct-Terminate-Cause = User-Request" \
        "Acct-Input-Octets = 1008" "Acct-Output-Octets = 1008" "Acct-Input-Packets = 12" "Acct-Session-Time = [1-9]"
    up "$client"
    installed
    radius_asks "$gateway" disconnect "Received Disconnect-ACK" 'User-Name = "carol", Framed-IP-Address = 10.9.0.77'
    gone
    expect_accounted "Acct-Status-Type = Stop" "$session" "Acct-Terminate-Cause = Admin-Reset"
fi
