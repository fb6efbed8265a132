# Ours with ours, for strongSwan has neither: domains (RFC 8598) and encrypted resolvers (RFC 9464; names,
# addresses, protocols) reach the updown program, the plain one the resolver's file; leases survive the gateway,
# and a virtual IP that a crash left behind goes at the next start.
# TIMEOUT: 120
ours_too
net_direct
site
ike us vips 0.0.0.0
net us local_ts dynamic
ike them pools four
conf them charon.leases "$STATE/leases.json"
conf them pools.four.addrs 10.9.0.0/24
conf them pools.four.dns 10.2.0.53
conf them pools.four.subnet 10.2.0.0/16
conf them pools.four.split_dns 'corp.example, lab.example'
conf them pools.four.encdns '1 10.2.0.53 doh.corp.example alpn=h2 dohpath=/dns-query{?dns}, 2 10.2.0.54 dot.corp.example alpn=dot port=8853'
conf them pools.four.encdns_digest '2 8b6e7a59'
net them remote_ts dynamic
conf us charon.plugins.resolve.file "$STATE/resolv.conf"
net us updown "env | grep -E '^PLUTO_(DNS|ENCDNS|SUBNET)' | sort >$STATE/told"
start
up us
installed
ping_from us 10.9.0.1 "$RIGHT_IN"
cat >"$STATE/wanted" <<WANTED
PLUTO_DNS4_1=10.2.0.53
PLUTO_DNS_DOMAIN_1=corp.example
PLUTO_DNS_DOMAIN_2=lab.example
PLUTO_ENCDNS_1=priority=1 addresses=10.2.0.53 name=doh.corp.example alpn=h2 dohpath=/dns-query{?dns}
PLUTO_ENCDNS_2=priority=2 addresses=10.2.0.54 name=dot.corp.example alpn=dot port=8853
PLUTO_ENCDNS_DIGEST_1=name= hash=2 digest=8b6e7a59
PLUTO_SUBNET_1=10.2.0.0/16
WANTED
told() { diff -u "$STATE/wanted" "$STATE/told" >"$OUT/told.diff" 2>&1; }
wait_for 10 told || { cat "$OUT/told.diff"; fail "the program was told something else"; }
wait_for 5 grep -q '^nameserver 10.2.0.53 ' "$STATE/resolv.conf" || fail "no name server in the file"
wait_for 5 grep -q 10.9.0.1 "$STATE/leases.json" || fail "no lease in the file"
kill_hard us
kill_hard them
forget us
forget them
in_ns us ip -o addr | grep -q ' 10\.9\.0\.1/32 ' || fail "the crash was a tidy one"
start
no_vip() { ! in_ns us ip -o addr | grep -q ' 10\.9\.0\.1/32 '; }
wait_for 5 no_vip || fail "the address of the run before is still there"
ctl them leases | grep -q -E "^ +10\.9\.0\.1 +offline +'us.example.org'" || fail "the lease is forgotten"
up us
installed
expect us '.[0]."local-vips" == ["10.9.0.1"]'
ping_from us 10.9.0.1 "$RIGHT_IN"
