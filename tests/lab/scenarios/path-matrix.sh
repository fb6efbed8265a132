# Paths with small links. The cases differ in which link is small, IPv4 and IPv6 outside and inside, the encapsulation of ESP, the
# mode, and whether the routers send ICMP and carry fragments. From one second after its first packet, a stream has at least 90 % of
# the rate of a stream whose segment size is set by hand. Datagrams that may be divided arrive.
# MORE: !path-cover.py all
IFS=- read -r link family encap mode icmp frags <<<"$CASE"
path=1400
case $link in mid*) path=${link#mid} ;; esac
case $link in mid*) net_narrow "$path" ;; *) net_narrow 1500 ;; esac
routed_ipv6
# small NS IF NS IF: the link between these has the size of the path.
small() {
    ip -n "$1" link set "$2" mtu $path
    ip -n "$3" link set "$4" mtu $path
}
case $link in own | both) small left l0 r1 in0 ;; esac
case $link in both) small right r0 r2 in0 ;; esac
if [ "$icmp" = silent ]; then
    for router in r1 r2; do ip -n $router rule add pref 10 ipproto icmp blackhole; done
    without_icmpv6
fi
[ "$frags" = frags ] || without_fragments
# 20 ms there and back, and a rate that the guest reaches with any size.
modules sch_netem
tc -n r1 qdisc add dev mid1 root netem delay 10ms rate 8mbit limit 100
tc -n r2 qdisc add dev mid2 root netem delay 10ms rate 8mbit limit 100

inside=(${LEFT_IN} ${RIGHT_IN}) ip=20 outside=20
case $family in *in6) US_OWN=2001:db8::1 US_SEEN=2001:db8::1 THEM_OWN=2001:db8:2::2 THEM_SEEN=2001:db8:2::2 outside=40 ;; esac
case $family in 6in*) inside=($LEFT_IN6 $RIGHT_IN6) ip=40 ;; esac
ours_too
site
if [ $mode = transport ]; then
    length=32
    [ $outside = 20 ] || length=128
    transport
    net us local_ts "$US_OWN/$length"
    net us remote_ts "$THEM_OWN/$length"
    net them local_ts "$THEM_OWN/$length"
    net them remote_ts "$US_OWN/$length"
    inside=("$US_OWN" "$THEM_OWN")
elif [ $ip = 40 ]; then
    net us local_ts $LEFT_NET6
    net us remote_ts $RIGHT_NET6
    net them local_ts $RIGHT_NET6
    net them remote_ts $LEFT_NET6
fi
case $encap in
plain) ike both encap false ;;
udp) ike us encap true ;;
tcp)
    conf them charon.listen_tcp true
    ike us enable_tcp yes
    ike both separate_transports no
    ;;
esac
start
up us
installed

# What fits the path in one packet of ESP: SPI, number, IV, padding to 4 octets, two octets and ICV are 34 and more.
udp=0
[ $encap != udp ] || udp=8
room=$((path - outside - udp - 34))
room=$((room - (room + 2) % 4))
case $encap-$mode in
tcp-*) segment=1200 ;;
*-tunnel) segment=$((room - ip - 20)) ;;
*) segment=$((room - 20)) ;;
esac

# The sink prints for each stream how many octets came in the second that begins one second after its first.
# shellcheck disable=SC2016
in_ns them timeout 60 perl -MIO::Socket::IP -MTime::HiRes=time -e '
    $| = 1;
    my ($local, $streams) = @ARGV;
    my $socket = IO::Socket::IP->new(LocalHost => $local, LocalPort => 7777, Proto => "tcp", Listen => 2) or die $!;
    print "listening\n";
    for (1 .. $streams) {
        my $peer = $socket->accept or die $!;
        my ($begun, $all) = (undef, 0);
        while (my $some = sysread $peer, $_, 65536) {
            $begun //= time;
            my $after = time - $begun;
            $all += $some if $after >= 1 && $after < 2.5;
        }
        print "stream $all\n";
    }' "${inside[1]}" 2 >"$OUT/tcp.sink" 2>&1 &
# shellcheck disable=SC2016
in_ns them timeout 60 perl -MIO::Socket::IP -e '
    $| = 1;
    my $socket = IO::Socket::IP->new(LocalHost => $ARGV[0], LocalPort => 7778, Proto => "udp") or die $!;
    print "listening\n";
    while (1) { $socket->recv($_, 65535); print length, "\n" }' "${inside[1]}" >"$OUT/udp.sink" 2>&1 &
for sink in tcp udp; do
    wait_for 10 says "$OUT/$sink.sink" listening || fail "no sink: $(cat "$OUT/$sink.sink")"
done

# stream [SEGMENT]: for three seconds, with segments of at most that many octets. 2 is TCP_MAXSEG.
stream() {
    # shellcheck disable=SC2016
    in_ns us timeout 20 perl -MIO::Socket::IP -MSocket=:all -MTime::HiRes=time -e '
        my ($local, $remote, $segment) = @ARGV;
        my @options = ([SOL_SOCKET, SO_SNDBUF, pack "i", 65536]);
        push @options, [IPPROTO_TCP, 2, pack "i", $segment] if $segment;
        my $peer = IO::Socket::IP->new(LocalHost => $local, PeerHost => $remote, PeerPort => 7777, Proto => "tcp",
            Sockopts => \@options) or die $!;
        my ($some, $begun) = ("x" x 10000, time);
        while (time - $begun < 2.6) { syswrite $peer, $some }
        ' "${inside[@]}" ${1:-} || fail "no connection"
}
streams() { [ "$(grep -c ^stream "$OUT/tcp.sink")" -ge "$1" ]; }
stream
wait_for 20 streams 1 || fail "the stream does not end: $(cat "$OUT/tcp.sink")"
stream $segment
wait_for 20 streams 2 || fail "the stream with its size by hand does not end: $(cat "$OUT/tcp.sink")"
read -r found by_hand <<<"$(sed -n 's/^stream //p' "$OUT/tcp.sink" | tr '\n' ' ')"
note "$((found / 1500)) kB/s, with the size by hand $((by_hand / 1500)) kB/s"
[ "$by_hand" -gt 600000 ] || fail "the measure itself is too slow: $by_hand octets"
[ $((found * 100)) -ge $((by_hand * 90)) ] || fail "$found octets, and with the size by hand $by_hand"

# What may be divided arrives. In transport mode ESP has the whole datagram (RFC 4303 §3.1.1), which is then divided outside.
# Inner IPv6 of 1,280 octets and less counts as a packet that is not divided inside (RFC 8200 §5).
lengths=(1200 4000)
if [ $frags = nofrags ] && [ $encap != tcp ]; then
    if [ $mode = transport ]; then
        lengths=()
        [ $((1200 + 8)) -gt $room ] || lengths=(1200)
    elif [ $ip = 40 ] && [ $path -lt 1364 ]; then
        lengths=()
    fi
fi
for octets in "${lengths[@]}"; do
    # 10 is IP_MTU_DISCOVER, 23 is IPV6_MTU_DISCOVER, and 0 turns path MTU discovery off.
    # shellcheck disable=SC2016
    in_ns us perl -MIO::Socket::IP -MSocket=:all -e '
        my $peer = IO::Socket::IP->new(LocalHost => $ARGV[0], PeerHost => $ARGV[1], PeerPort => 7778, Proto => "udp") or die $!;
        my $inner6 = $ARGV[0] =~ /:/;
        setsockopt $peer, $inner6 ? 41 : 0, $inner6 ? 23 : 10, pack "i", 0 or die $!;
        $peer->send("x" x $ARGV[2]) or die $!;
        ' "${inside[@]}" "$octets" || fail "a datagram of $octets octets cannot be sent"
    wait_for 5 says "$OUT/udp.sink" "$octets" || fail "a datagram of $octets octets is lost"
done
note "datagrams: ${lengths[*]:-none}"
