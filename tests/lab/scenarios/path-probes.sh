# A link on the path is small, its routers send no ICMP, and fragments are lost. Probes find the size of the path. So the first
# stream through the tunnel arrives, and after it datagrams that may be divided.
# CASES: plain4 udp6
# MORE: udp4 plain6 ours4 ours6
net_hole 1300
case $CASE in
ours*) ours_too ;;
# strongSwan does not try smaller fragments where nothing comes back.
*) conf them charon.fragment_size 576 ;;
esac
case $CASE in *6) US_OWN=2001:db8::1 US_SEEN=2001:db8::1 THEM_OWN=2001:db8:2::2 THEM_SEEN=2001:db8:2::2 ;; esac
site
case $CASE in udp*) ike us encap true ;; esac
start
up us
installed
# sink PROTOCOL CODE: takes in what comes to port 7777 of the peer.
sink() {
    in_ns them timeout 30 perl -MIO::Socket::INET -e '
        $| = 1;
        my %kind = $ARGV[1] eq "tcp" ? (Listen => 1) : ();
        my $socket = IO::Socket::INET->new(Proto => $ARGV[1], LocalAddr => $ARGV[0], LocalPort => 7777, %kind) or die;
        print "listening\n";
        '"$2" $RIGHT_IN "$1" >"$OUT/$1.sink" 2>&1 &
    wait_for 10 says "$OUT/$1.sink" listening || fail "no sink: $(cat "$OUT/$1.sink")"
}
# shellcheck disable=SC2016
sink tcp 'my $peer = $socket->accept; my ($all, $some) = 0; $all += $some while $some = sysread $peer, $_, 65536; print "$all\n"'
# shellcheck disable=SC2016
sink udp 'while (1) { $socket->recv($_, 65535); print length, "\n" }'

begun=${EPOCHREALTIME/./}
# shellcheck disable=SC2016
in_ns us timeout 30 perl -MIO::Socket::INET -e '
    my $peer = IO::Socket::INET->new(LocalAddr => $ARGV[0], PeerAddr => $ARGV[1], PeerPort => 7777) or die;
    my $some = "x" x 10000;
    for (1 .. 200) { syswrite($peer, $some) == 10000 or die $! }
    ' $LEFT_IN $RIGHT_IN || fail "no connection"
wait_for 20 says "$OUT/tcp.sink" 2000000 || fail "the stream does not arrive: $(cat "$OUT/tcp.sink")"
took=$(((${EPOCHREALTIME/./} - begun) / 1000))
note "2 MB after $took ms"
[ $took -le 6000 ] || fail "2 MB only after $took ms"
size=$(raw us | jq 'first(.. | objects | select(has("path-mtu"))."path-mtu" | tonumber)')
note "a path of $size octets"
[ "${size:-0}" -ge 1280 ] && [ "$size" -le 1300 ] || fail "the path counts as one of $size octets"
expect_log us 'a probe has shown what the path of ESP packets carries'

# 10 is IP_MTU_DISCOVER, and 0 is IP_PMTUDISC_DONT: the datagrams do not have Don't Fragment.
# shellcheck disable=SC2016
in_ns us perl -MIO::Socket::INET -e '
    my $peer = IO::Socket::INET->new(
        Proto => "udp", LocalAddr => $ARGV[0], PeerAddr => $ARGV[1], PeerPort => 7777) or die;
    $peer->setsockopt(0, 10, pack "i", 0) or die;
    $peer->send("x" x $_) or die for 1200, 1372, 4000;
    ' $LEFT_IN $RIGHT_IN || fail "nothing can be sent"
for octets in 1200 1372 4000; do
    wait_for 5 says "$OUT/udp.sink" $octets || fail "a datagram of $octets octets is lost"
done
