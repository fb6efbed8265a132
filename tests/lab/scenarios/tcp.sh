# IKE and ESP in one TCP connection (RFC 9329) between two of ours: rekeys of both
# kinds by both sides; a connection that breaks is opened again and the SAs go on;
# through a NAT; between the hosts themselves, where policies cover the connection's
# own addresses; and read by a relay that knows the RFC alone.
# CASES: direct relay nat transport
# KERNELS: travel
case $CASE in nat) net_nat us ;; *) net_direct ;; esac
ours_too
site
inside=() && [ "$CASE" != transport ] || { transport && inside=("$US_OWN" "$THEM_OWN"); }
conf both charon.delete_rekeyed_delay 1
conf them charon.listen_tcp true
ike us enable_tcp yes
ike both separate_transports no
if [ "$CASE" = relay ]; then
    in_ns them perl /lab/guest/tcp-relay.pl 4501 "$THEM_OWN" 4500 >"$OUT/relay.log" 2>&1 &
    wait_for 5 grep -q listening "$OUT/relay.log" || fail "no relay"
    ike us tcp_remoteport 4501
    ike them remote_addrs %any
fi
start
up us
installed
expect_both 'map_values(.[0].transport == "tcp" and children[0].tcp) == {us: true, them: true}'
ping_both "${inside[@]}"
counted 6
[ "$CASE" = transport ] || ping_start
for side in us them; do
    rekey $side child
    rekey $side ike
done
[ "$CASE" = transport ] || ping_end
ping_both "${inside[@]}"
port() { sas them | jq '.[0]."remote-port"'; }
if [ "$CASE" = direct ]; then
    before=$(port)
    in_ns us nft -f - <<'NFT'
table ip cut {
    chain leaves {
        type filter hook output priority 0
        tcp dport 4500 reject with tcp reset
    }
}
NFT
    ping_quietly us && fail "the connection was not cut"
    expect_log us 'TCP connection closed'
    in_ns us nft delete table ip cut
    another() { [ "$(port)" != "$before" ]; }
    wait_for "$PATIENCE" another || fail "no other connection"
    wait_for "$PATIENCE" ping_quietly us || fail "no traffic by the other connection"
    ping_both
    rekey them child
fi
expect_wire 'tcp port 4500 or tcp port 4501'
[ "$(wire 'ip proto 50 or udp')" = 0 ] || fail "ESP or IKE beside the connection"
down us ike
gone
if [ "$CASE" = relay ]; then
    wait_for 10 grep -q 'responder: .* IKE' "$OUT/relay.log" || fail "the connection was not closed"
    cat "$OUT/relay.log"
    ! grep -q WRONG "$OUT/relay.log" || fail "not as RFC 9329 has it"
    for end in originator responder; do
        grep -q -E "$end: [1-9][0-9]* IKE, [1-9][0-9]* ESP, 0 keepalives" "$OUT/relay.log" || fail "nothing of the $end"
    done
fi
