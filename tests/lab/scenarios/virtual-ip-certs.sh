# Our gateway gives a virtual IP to a road warrior with a certificate, whose
# name a regular expression, whose CA an identity and whose policies a list
# admits; a second one finds the pool empty and gets an IKE SA without a child,
# until the first has gone. Who has another name, or a certificate without the
# policy, is refused.
# TIMEOUT: 120
net_direct
site
policy=certificatePolicies=1.3.6.1.4.1.99999.1
ca openssl root ecdsa256
ca openssl ca ecdsa256 root "$policy"
certificate ours us ecdsa256 ca
certificate openssl them ecdsa256 ca "$policy,1.3.6.1.4.1.99999.9"
certificate openssl other ecdsa256 ca "$policy"
certificate openssl another ecdsa256 ca "$policy"
certificate openssl otherwise ecdsa256 ca
by_certificate
give us x509ca root.pem
give them x509ca root.pem ca.pem
give them x509 other.pem another.pem otherwise.pem
give them private other.key another.key otherwise.key
# The peer sends the certificate of its CA.
ike us remote.id 'fqdn:^(them|other(wise)?)[.]example[.]org$'
ike us remote.ca_id 'O=lab, CN=ca'
ike us remote.cert_policy 1.3.6.1.4.1.99999.1
ike us pools four
conf us pools.four.addrs 10.9.0.7-10.9.0.7
net us remote_ts dynamic
ike them vips 0.0.0.0
net them local_ts dynamic
# The same once more, of another identity.
same() {
    conf_lines them | sed -n "s/^connections\.site\./connections.$1./; s/children\.net/children.$1/; /^connections\.$1\./p" \
        >"$STATE/$1.conf"
    cat "$STATE/$1.conf" >>"$STATE/them.conf"
    conf them "connections.$1.local.id" "$2.example.org"
    conf them "connections.$1.local.certs" "$2.pem"
}
same second other
same third another
same fourth otherwise
start
up them
installed
expect us '.[0]."remote-vips" == ["10.9.0.7"]'
ping_from them 10.9.0.7 "$LEFT_IN"
up_fails them second
expect_log them 'INTERNAL_ADDR(ESS)?_FAIL'
expect us '[.[] | select(."remote-id" == "other.example.org")] | length == 1 and .[0]."child-sas" == []'
down them ike second
down them ike site
gone
up them second
expect us 'length == 1 and .[0]."remote-vips" == ["10.9.0.7"] and (.[0]."child-sas" | length == 1)'
ping_from them 10.9.0.7 "$LEFT_IN"
for wrong in third fourth; do up_fails them $wrong; done
expect_log us 'another.example.org.*no connection'
expect_log us 'certificate .*CN=otherwise.* does not have the policy 1\.3\.6\.1\.4\.1\.99999\.1'
