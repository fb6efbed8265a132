# A stranger on a router that sees no packet says a thousand times a second that packets to the peer are too big, for 68, 576 and
# 1,280 octets in turn. Its addresses and ports are right. A stream keeps its rate, and the path its MTU. The rate is compared with that
# beside as many messages about another peer, which cost the CPU of the guest as much.
# MORE: plain4 udp4 plain6 udp6
# TIMEOUT: 150
net_narrow 1500
routed_ipv6
. /lab/guest/rate.sh
slow_link
case $CASE in *6) US_OWN=2001:db8::1 US_SEEN=2001:db8::1 THEM_OWN=2001:db8:2::2 THEM_SEEN=2001:db8:2::2 ;; esac
site
case $CASE in udp*) ike us encap true ;; esac
sink $RIGHT_IN
start
up us
installed
listening tcp

# lies PEER: about packets to that peer, until it is killed. A busy guest sends as many, in larger batches.
lies() {
    # shellcheck disable=SC2016
    exec ip netns exec r1 perl -MSocket=:all -MTime::HiRes=time,sleep -e '
        my ($us, $them, $udp) = @ARGV;
        my $six = $us =~ /:/;
        my $family = $six ? AF_INET6 : AF_INET;
        # 58 is ICMPv6. Its checksum is the work of the kernel.
        socket my $raw, $family, SOCK_RAW, $six ? 58 : 1 or die $!;
        my $to = $six ? pack_sockaddr_in6(0, inet_pton $family, $us) : pack_sockaddr_in(0, inet_aton $us);
        my @ends = map { inet_pton $family, $_ } $us, $them;
        my $protocol = $udp ? 17 : 50;
        # What the stranger quotes: the addresses and ports are right, the SPI is not.
        my $quoted = $six ? pack("N n C C", 6 << 28, 1460, $protocol, 60) : pack("C x n n n C C n", 0x45, 1500, 1, 0x4000, 60, $protocol, 0);
        $quoted .= join("", @ends) . ($udp ? pack("n4", 4500, 4500, 1460, 0) : "") . pack("N N", 0xdeadbeef, 1);
        my @lies = map {
            my $lie = $six ? pack("C C n N", 2, 0, 0, $_) . $quoted : pack("C C n n n", 3, 4, 0, 0, $_) . $quoted;
            my $sum = unpack "%32n*", length($lie) % 2 ? "$lie\0" : $lie;
            $sum = ($sum & 0xffff) + ($sum >> 16) while $sum >> 16;
            substr $lie, 2, 2, pack "n", ~$sum & 0xffff unless $six;
            $lie;
        } 68, 576, 1280;
        my ($begun, $sent) = (time, 0);
        $SIG{TERM} = sub { printf "%d\n", $sent / (time - $begun); exit };
        $| = 1;
        while (1) {
            while ($sent < (time - $begun) * 1000) { send $raw, $lies[$sent++ % 3], 0, $to or die $! }
            sleep 0.01;
        }' "$US_OWN" "$1" "$([[ $CASE != udp* ]] || echo udp)" >"$OUT/lies" 2>&1
}

mtu() { raw us | jq 'first(.. | objects | select(has("path-mtu"))."path-mtu" | tonumber)'; }
known() { [ "$(mtu)" = 1500 ]; }
elsewhere=198.51.100.99
case $CASE in *6) elsewhere=2001:db8:2::99 ;; esac
# beside PEER: a stream beside lies about that peer.
beside() {
    lies "$1" &
    stranger=$!
    stream $LEFT_IN $RIGHT_IN 0
    kill $stranger
    wait $stranger || true
    [ "$(cat "$OUT/lies")" -gt 900 ] || fail "the stranger is too slow: $(cat "$OUT/lies")"
}
# The first stream finds the size of the path.
stream $LEFT_IN $RIGHT_IN 0
wait_for 5 known || fail "the path counts as one of $(mtu) octets"
shares=()
for _ in 1 2 3; do
    beside "$elsewhere"
    fast_enough "${octets[0]}"
    quiet=${octets[0]}
    beside "$THEM_OWN"
    note "$((octets[0] / 2000)) kB/s, $((quiet / 2000)) kB/s beside those about another peer"
    shares+=($((octets[0] * 100 / quiet)))
    known || fail "the path counts as one of $(mtu) octets"
    [ ${shares[0]} -lt 95 ] || break
done
[ ${#shares[@]} = 1 ] || shares=("$(median "${shares[@]}")")
[ "${shares[0]}" -ge 95 ] || fail "${shares[0]} % of the rate"
! log_has us 'get smaller' || fail "packets got smaller"
# They came, and the kernel believed them: ESP does not follow its cache.
in_ns us ip $([[ $CASE != *6 ]] || echo -6) route get "$THEM_OWN" | grep -q 'mtu ' || fail "the kernel has heard of no size"
