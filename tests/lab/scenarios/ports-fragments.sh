# Datagrams of 1,373, 3,000 and 20,000 octets under selectors with a port arrive, in both directions. strongSwan's ESP is the kernel's.
# in4, in6: the addresses inside. udp: ESP in UDP. narrow: a link of 1,300 octets is on the path. Linux divides IPv6 before ESP, and
# sends later fragments under such selectors. They are discarded (RFC 4301 §7.3), so the kernel's answers are short with in6.
# CASES: in4 in6 udp-in4 narrow-in4
# MORE: narrow-in6 narrow-udp-in4 ours-in4 ours-in6
case $CASE in
narrow*) net_narrow 1300 && routed_ipv6 ;;
*) net_direct ;;
esac
case $CASE in ours*) ours_too ;; esac
# charon installs no routes for selectors with ports.
case $CASE in
narrow*) ;;
*) ip -n right route add default via 192.0.2.1 && ip -6 -n right route add default via 2001:db8::1 ;;
esac
site
inside=($LEFT_IN $RIGHT_IN) left=$LEFT_NET right=$RIGHT_NET
case $CASE in *in6) inside=($LEFT_IN6 $RIGHT_IN6) left=$LEFT_NET6 right=$RIGHT_NET6 ;; esac
net us local_ts "$left[udp]"
net us remote_ts "$right[udp/7777]"
net them local_ts "$right[udp/7777]"
net them remote_ts "$left[udp]"
case $CASE in *udp*) ike us encap true ;; esac
start
up us
installed
answer=same
case $CASE in ours*) ;; *in6) answer=short ;; esac
# It answers each datagram with the same one, or with its length.
# shellcheck disable=SC2016
in_ns them timeout 80 perl -MIO::Socket::IP -MSocket=:all -e '
    $| = 1;
    my $socket = IO::Socket::IP->new(LocalHost => $ARGV[0], LocalPort => 7777, Proto => "udp") or die $!;
    setsockopt $socket, $ARGV[0] =~ /:/ ? 41 : 0, $ARGV[0] =~ /:/ ? 23 : 10, pack "i", 0 or die $!;
    print "listening\n";
    while (my $from = $socket->recv($_, 65535)) { 
        print length, "\n";
        $socket->send($ARGV[1] eq "same" ? $_ : length, 0, $from) or print "$!\n";
    }' "${inside[1]}" $answer >"$OUT/udp.sink" 2>&1 &
wait_for 10 says "$OUT/udp.sink" listening || fail "no sink: $(cat "$OUT/udp.sink")"
# A datagram that leaves before the path is known may be lost for a moment, as anywhere, so each is sent until it is answered.
# shellcheck disable=SC2016
in_ns us timeout 60 perl -MIO::Socket::IP -MSocket=:all -e '
    $| = 1;
    my $peer = IO::Socket::IP->new(LocalHost => $ARGV[0], PeerHost => $ARGV[1], PeerPort => 7777, Proto => "udp") or die $!;
    setsockopt $peer, $ARGV[0] =~ /:/ ? 41 : 0, $ARGV[0] =~ /:/ ? 23 : 10, pack "i", 0 or die $!;
    $SIG{ALRM} = sub { die "no answer\n" };
    LENGTH: for my $length (100, 1372, 1373, 3000, 20000) {
        my $all = join "", map chr rand 256, 1 .. $length;
        for my $try (1 .. 5) {
            $peer->send($all) or die "$length: $!";
            # The answer to an earlier try may be late.
            my $wanted = $ARGV[2] eq "same" ? $all : $length;
            my $came = eval { alarm 2; do { $peer->recv($_, 65535) } until $_ eq $wanted; alarm 0; 1 };
            next unless $came;
            print "$length after $try\n";
            next LENGTH;
        }
        die "$length octets: no answer\n";
    }' "${inside[@]}" $answer >"$OUT/udp.source" 2>&1 || fail "$(tail -n 1 "$OUT/udp.source"); the peer had: $(tr '\n' ' ' <"$OUT/udp.sink")"
note "answered: $(tr '\n' ' ' <"$OUT/udp.source")"
# All but the first that needs the size of the path, at the first try.
[ "$(grep -c -v 'after 1$' "$OUT/udp.source")" -le 1 ] || fail "datagrams are lost"
