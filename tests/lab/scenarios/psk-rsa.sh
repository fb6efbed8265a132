# The PSK/RSA paper's tunnel over its impaired link: AES-256-CBC, SHA-256 and
# group 14 with PFS, 100 ms ± 20 ms and 1 % loss on what one gateway sends. It
# comes up, answers pings and carries TCP both ways; `psk-rsa.sh` measures it.
# CASES: psk rsa
# TIMEOUT: 120
# PLANE: kernel
net_direct
site
ike both proposals aes256-sha256-modp2048
net both esp_proposals aes256-sha256-modp2048
if [ "$CASE" = rsa ]; then
    ca ours ca rsa
    certificate ours us rsa ca
    certificate ours them rsa ca
    by_certificate
    give us x509ca ca.pem
    give them x509ca ca.pem
fi
tcp_ready() { in_ns them ss -Hltn "sport = :5201" | grep -q .; }
impair us delay 100ms 20ms distribution normal loss 1% rate 100mbit
impair them rate 100mbit
PATIENCE=40
start
up us
installed
# Two round trips at least, and not much more but for a loss.
expect us '.[0]."setup-time-ms" | . > 120 and . < 15000'
in_ns us ping -q -n -c 20 -i 0.2 -W 3 -I $LEFT_IN $RIGHT_IN >"$STATE/ping" || fail "no ping was answered"
mean=$(sed -n 's|^rtt [^=]*= [0-9.]*/\([0-9.]*\)/.*|\1|p' "$STATE/ping")
note "mean round-trip time $mean ms"
[ "$(jq -n "$mean > 80 and $mean < 300")" = true ] || fail "a mean round-trip time of $mean ms"
for way in "" -R; do
    in_ns them timeout 40 iperf3 -s -1 -B $RIGHT_IN >"$OUT/iperf.server.log" 2>&1 &
    wait_for 10 tcp_ready || fail "no iperf3 server"
    # shellcheck disable=SC2086
    in_ns us timeout 40 iperf3 -c $RIGHT_IN -B $LEFT_IN -w 256K -n 200K -J $way >"$OUT/iperf.json" ||
        fail "iperf3: $(jq -r .error "$OUT/iperf.json")"
    wait $! || true
done
counted 100
