# Handshakes over a link that loses one packet in twenty each way, as `links.sh`
# measures them by the hundred: all come about, and half of them take less than
# strongSwan's first timer, 4 s.
# CASES: us ours
# TIMEOUT: 150
[ "$CASE" = us ] || ours_too
net_direct
site
ike both proposals aes256-sha256-x25519-ke1_mlkem768
ca ours ca ecdsa256
certificate ours us ecdsa256 ca
certificate ours them ecdsa256 ca
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
conf both charon.fragment_size 576
lossy() {
    impair us delay 5ms loss "$1"
    impair them delay 5ms loss "$1"
}
PATIENCE=40
start
for i in $(seq 9); do
    lossy 5%
    up us
    # Nobody answers a delete that comes again, once the SA is gone.
    lossy 0%
    sas us | jq -r '.[0]."setup-time-ms"' >>"$STATE/times"
    down us ike
    gone
done
median=$(sort -n "$STATE/times" | sed -n 5p)
note "setup times in ms: $(sort -n "$STATE/times" | tr '\n' ' ')"
[ "$(jq -n "$median < 4000")" = true ] || fail "a median of $median ms"
