# Our gateway gives a virtual IP to a road warrior with a certificate, who may
# have any of a domain; a second one finds the pool empty and gets an IKE SA
# without a child, until the first has gone.
# TIMEOUT: 120
net_direct
site
ca ours ca ecdsa256
certificate ours us ecdsa256 ca
certificate ours them ecdsa256 ca
certificate ours other ecdsa256 ca
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
give them x509 other.pem
give them private other.key
ike us remote.id '*.example.org'
ike us pools four
conf us pools.four.addrs 10.9.0.7-10.9.0.7
net us remote_ts dynamic
ike them vips 0.0.0.0
net them local_ts dynamic
# The same once more, of another identity.
conf_lines them | sed -n 's/^connections\.site\./connections.second./; s/children\.net/children.second/; /^connections\.second\./p' \
    >"$STATE/second.conf"
cat "$STATE/second.conf" >>"$STATE/them.conf"
conf them connections.second.local.id other.example.org
conf them connections.second.local.certs other.pem
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
