# A BGP session with TTL security (RFC 5082) between two hosts over transport mode: each end sends with TTL 255 and takes nothing
# that came with less. A router speaks BGP on port 179, and so does this.
# CASES: plain4 udp4
# MORE: plain6 udp6
# PLANE: userspace kernel
# KERNELS: forky
CLEARTEXT=yes
net_direct
length=32
case $CASE in *6) ipv6_outer && length=128 ;; esac
site
transport
net us local_ts "$US_OWN/$length"
net us remote_ts "$THEM_OWN/$length"
net them local_ts "$THEM_OWN/$length"
net them remote_ts "$US_OWN/$length"
case $CASE in udp*) ike us encap true ;; esac
start
up us
installed
# IP_TTL is 2, IP_MINTTL 21; IPV6_UNICAST_HOPS is 16, IPV6_MINHOPCOUNT 73, both of IPPROTO_IPV6, which is 41.
# shellcheck disable=SC2016
SECURE='use IO::Socket::IP;
    use Socket qw(:all);
    sub secure {
        my ($socket, $ttl) = @_;
        my ($level, $send, $least) = $ARGV[0] =~ /:/ ? (41, 16, 73) : (0, 2, 21);
        setsockopt $socket, $level, $send, pack "i", $ttl or die "TTL: $!";
        setsockopt $socket, $level, $least, pack "i", 255 or die "least TTL: $!";
    }
    $| = 1;
    my ($local, $remote, $ttl) = @ARGV;'
# The listener answers each line with the same line, and ends.
# shellcheck disable=SC2016
in_ns them timeout 80 perl -e "$SECURE"'
    my $socket = IO::Socket::IP->new(LocalHost => $local, LocalPort => 179, Proto => "tcp", Listen => 2) or die $!;
    secure $socket, 255;
    print "listening\n";
    while (my $peer = $socket->accept) { secure $peer, 255; while (<$peer>) { print $peer $_; print "got ", length, "\n" } }
    ' "$THEM_OWN" >"$OUT/bgp.them" 2>&1 &
wait_for 10 says "$OUT/bgp.them" listening || fail "no listener: $(cat "$OUT/bgp.them")"
# session TTL: 20 messages as large as those of BGP, 4,096 octets, and 20 keepalives.
session() {
    # shellcheck disable=SC2016
    in_ns us timeout 10 perl -e "$SECURE"'
        socket my $socket, $remote =~ /:/ ? AF_INET6 : AF_INET, SOCK_STREAM, 6 or die $!;
        bless $socket, "IO::Socket::IP";
        secure $socket, $ttl;
        my $to = $remote =~ /:/ ? pack_sockaddr_in6(179, inet_pton AF_INET6, $remote) : pack_sockaddr_in(179, inet_aton $remote);
        connect $socket, $to or die "connect: $!";
        $socket->autoflush(1);
        for my $length ((4096, 19) x 20) {
            my $line = "x" x ($length - 1) . "\n";
            print $socket $line or die $!;
            <$socket> eq $line or die "another answer";
        }
        print "done\n"' "$US_OWN" "$THEM_OWN" "$1" >"$OUT/bgp.us" 2>&1
}
session 255 || fail "no session: $(cat "$OUT/bgp.us")"
counted 40
# The test can fail: a peer that is one hop farther has no session.
! session 254 || fail "TTL 254 is taken"
says "$OUT/bgp.us" connect || [ ! -s "$OUT/bgp.us" ] || fail "another error: $(cat "$OUT/bgp.us")"
rekey us child
session 255 || fail "no session after a rekey: $(cat "$OUT/bgp.us")"
