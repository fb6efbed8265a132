# strongSwan's own swanctl loads certificates, keys, secrets and connections from its
# swanctl.conf into the daemon, changes and unloads them, and uses all its other commands.
# TIMEOUT: 150
net_direct
site
with_certificates
ca ours ca ecdsa256
certificate ours us ecdsa256 ca
certificate ours them ecdsa256 ca
by_certificate
give them x509ca ca.pem
# The daemon's own file has nothing but the socket.
mkdir -p "$STATE/swanctl/x509" "$STATE/swanctl/x509ca" "$STATE/swanctl/private"
cp "$PKI/us.pem" "$STATE/swanctl/x509/"
cp "$PKI/ca.pem" "$STATE/swanctl/x509ca/"
cp "$PKI/us.key" "$STATE/swanctl/private/"
net us start_action none
to_swanctl us >"$STATE/swanctl/swanctl.conf"
echo 'secrets { ike-more { id = more.example.org
secret = "another secret" } }' >>"$STATE/swanctl/swanctl.conf"
printf 'charon.plugins.vici.socket = unix://%s/us.vici\n' "$STATE" >"$STATE/us.conf"
rm -rf "$STATE/us.d"
start
vici_ask() {
    SWANCTL_DIR=$STATE/swanctl timeout 30 swanctl "$@" --uri "unix://$STATE/us.vici" >"$OUT/swanctl.out" 2>&1
}
shown() { sed 's/^/  /' "$OUT/swanctl.out"; }
sw() { vici_ask "$@" || { shown && fail "swanctl $* failed"; }; }
refused() { ! vici_ask "$@" || { shown && fail "swanctl $* did not fail"; }; }
said() { grep -q -E -- "$1" "$OUT/swanctl.out" || { shown && fail "swanctl does not say $1"; }; }
unsaid() { ! grep -q -E -- "$1" "$OUT/swanctl.out" || { shown && fail "swanctl says $1"; }; }

# In the foreground, for a second SIGTERM, to all of the group, may end swanctl before it has written what it has.
SWANCTL_DIR=$STATE/swanctl timeout --foreground 100 swanctl --log --uri "unix://$STATE/us.vici" >"$OUT/log.out" 2>&1 &
log=$!
note "load"
sw --load-all
said "loaded certificate from .*x509ca/ca.pem"
said "loaded ECDSA key from .*private/us.key"
said "loaded ike secret 'ike-more'"
said "loaded connection 'site'"
said "successfully loaded 1 connections, 0 unloaded"
sw --list-conns
said '^site: IKEv2, '
sw --list-certs
said 'List of X.509 End Entity Certificates'
said 'CN=us'
said 'has private key'
said 'List of X.509 CA Certificates'
sw --load-authorities
sw --list-authorities
sw --list-algs
said 'AES_GCM_16\[pq-kem\]'
sw --initiate --child net
said '^initiate completed successfully'
installed
ping_both
sw --counters
# A busy peer is asked again.
said 'ike-init-out-req +: [1-9]'
sw --counters --name site
said '^site:'
said 'ike-auth-in-resp +: [1-9]'
sw --counters --all
said '^site:'
unsaid '^global:'
sw --list-sas
said '^site: #1, ESTABLISHED'

note "load again: nothing changes"
sw --load-all
said 'loaded 1 connections, 0 unloaded'
sw --list-sas
said '^site: #1, ESTABLISHED'
ping_both

note "trap"
sw --install --child net
sw --list-pols --trap
said '^site/net, '
sw --uninstall --child net
sw --list-pols --trap
unsaid 'site/net'

note "change under an SA, unload what is not in the file any more"
sed -i 's/secret = "another secret"/secret = "a third secret"/; s/^connections { site { mobike.*//' "$STATE/swanctl/swanctl.conf"
echo 'connections { site { dpd_delay = "20s" } }' >>"$STATE/swanctl/swanctl.conf"
sw --load-all
sw --list-sas
said '^site: #1, ESTABLISHED'
old=$(mark ike)
sw --rekey --ike site
wait_for "$PATIENCE" rekeyed ike "$old" || fail "the IKE SA was not rekeyed"
ping_both
echo 'secrets { ike-more { id = more.example.org
secret = "s" } }' >"$STATE/swanctl/swanctl.conf"
sw --load-all
said 'loaded 0 connections, 1 unloaded|no connections found, 1 unloaded'
installed
ping_both

note "what cannot be"
echo 'connections { bad { aggressive = yes } }' >"$STATE/swanctl/swanctl.conf"
refused --load-conns
said 'aggressive. is not supported'

note "clear, flush, end"
sw --load-creds --clear
sw --flush-certs
vici_ask --terminate --ike site --force || { shown && fail "terminate --force"; }
gone
sw --counters --reset
sw --counters --reset --name site
refused --counters --name site
said 'no counters found'
kill $log || fail "the log has ended"
wait $log || true
grep -q -E '^[0-9]+\[IKE\] IKE SA' "$OUT/log.out" || fail "the log has no line of an IKE SA"
