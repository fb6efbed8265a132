# strongSwan's own swanctl drives the daemon by its VICI socket: lists, initiates,
# watches, rekeys, reloads and terminates.
net_direct
site
conf us charon.plugins.vici.socket "unix://$STATE/us.vici"
start
ask() { timeout 30 swanctl "$@" --uri "unix://$STATE/us.vici" >"$OUT/swanctl.out" 2>&1; }
shown() { sed 's/^/  /' "$OUT/swanctl.out"; }
sw() { ask "$@" || { shown && fail "swanctl $1 failed"; }; }
refused() { ! ask "$@" || { shown && fail "swanctl $1 did not fail"; }; }
said() { grep -q -E -- "$1" "$OUT/swanctl.out" || { shown && fail "swanctl does not say $1"; }; }
silent() { [ ! -s "$OUT/swanctl.out" ] || { shown && fail "swanctl says something"; }; }

sw --version --daemon
said '^strongSwan [0-9.]+ ike-daemon \(Linux'
sw --stats
said '^IKE_SAs: 0 total, 0 half-open'
sw --list-conns
said '^site: IKEv2, '
said 'local: +192\.0\.2\.1'
said 'net: TUNNEL'
sw --list-sas
silent

timeout --foreground 60 swanctl --monitor-sa --uri "unix://$STATE/us.vici" >"$OUT/monitor.out" 2>&1 &
monitor=$!
# It says nothing until something happens; a busy machine takes its time to start it.
connected() { in_ns us ss -Hx state connected | grep -q us.vici; }
wait_for 5 connected || true
sleep 2
note "initiate"
sw --initiate --child net
said 'IKE_SA site\[1\] established between 192\.0\.2\.1\[us\.example\.org\]'
said 'CHILD_SA net\{[0-9]+\} established'
said '^initiate completed successfully'
installed
ping_both
sw --list-sas
said '^site: #1, ESTABLISHED, IKEv2, [0-9a-f]{16}_i\* [0-9a-f]{16}_r$'
said "local +'us\.example\.org' @ 192\.0\.2\.1\[4500\]"
said '^  AES_GCM_16-256/PRF_HMAC_SHA2_256/CURVE_25519'
said '^  net: #[0-9]+, reqid [0-9]+, INSTALLED, TUNNEL, ESP:AES_GCM_16-256'
said '^    remote 10\.2\.0\.0/16$'
sw --stats
said '^IKE_SAs: 1 total, 0 half-open'

note "rekey"
old=$(mark child)
sw --rekey --child net
said '^rekey completed successfully'
wait_for "$PATIENCE" rekeyed child "$old" || fail "the child was not rekeyed"
old=$(mark ike)
sw --rekey --ike site
said '^rekey completed successfully'
wait_for "$PATIENCE" rekeyed ike "$old" || fail "the IKE SA was not rekeyed"
ping_both

note "what cannot be done"
refused --initiate --child nothing
said '^initiate failed: '
refused --terminate --ike nothing
said '^terminate failed: '

note "reload"
sw --reload-settings
silent
expect_log us 'configuration reloaded'
installed

note "terminate"
sw --terminate --ike site
said '^terminate completed successfully'
gone
sw --list-sas
silent
kill $monitor || fail "the monitor has ended"
# It writes when it ends.
wait $monitor || true
grep -q '^  net: ' "$OUT/monitor.out" || fail "the monitor saw no child"
grep -q '^site: #1, ESTABLISHED' "$OUT/monitor.out" || fail "the monitor saw no IKE SA"
