# Private keys are in the signer's memory and in no other: read from a file, or
# used in a token by PKCS#11 (SoftHSM), which the daemon's file names or (token-ecdsa256) Debian's
# swanctl, that has the connection as well. The daemon ends with its signer.
# CASES: file token-rsa token-ecdsa256
# MORE: token-ed25519
net_direct
site
kind=${CASE#token-}
[ "$CASE" != file ] || kind=ecdsa256
ca openssl ca ecdsa256
certificate openssl us "$kind" ca
certificate openssl them ecdsa256 ca
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
if [ "$CASE" != file ]; then
    in_token us
    rm "$STATE/us.d/private/us.key"
fi
[ "$CASE" != token-ecdsa256 ] || token_by_vici us
start
[ "$CASE" != token-ecdsa256 ] || load_token us
each_side_initiates
spawner=$(pgrep -P "$(cat "$STATE/us.pid")" -f ' signer$') || fail "no process starts signers"
signer=$(pgrep -P "$spawner" -f ' signer$') || fail "no signer"
if [ "$CASE" = file ]; then
    key_in_memory "$signer" || fail "the key is not where it should be: this finds nothing"
    ! key_in_memory "$(cat "$STATE/us.pid")" || fail "the daemon has the key"
    ! key_in_memory "$spawner" || fail "the process that starts signers has the key"
fi
kill -9 "$signer"
wait_for 10 dead us || fail "the daemon goes on without its signer"
: >"$STATE/us.killed"
expect_log us 'the signer has ended'
