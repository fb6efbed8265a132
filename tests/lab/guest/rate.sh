# The rate of TCP streams from us to the peer. A scenario that measures sources this file.
# shellcheck shell=bash disable=SC2034

# slow_link: 20 ms there and back between the two routers of net_narrow, and 2 Mbit/s: a twentieth of what a guest on a busy machine
# can send. The queue has room for all that the socket of a stream may have on its way, so no packet is lost for lack of room, and the
# link stays busy while a busy machine keeps the guest waiting for a quarter of a second.
slow_link() {
    local side
    modules sch_netem
    tc -n r1 qdisc add dev mid1 root netem delay 10ms rate 2mbit limit 200
    tc -n r2 qdisc add dev mid2 root netem delay 10ms rate 2mbit limit 200
    # A stream knows nothing of the streams before it.
    for side in left right; do in_ns $side sysctl -qw net.ipv4.tcp_no_metrics_save=1; done
}

# What the programs have in common. A module is many files, and each costs a guest some milliseconds.
# shellcheck disable=SC2016
SOCKETS='
    use Socket qw(:all);
    use Time::HiRes qw(time alarm);
    $| = 1;
    my $six = $ARGV[0] =~ /:/;
    sub end { my ($ip, $port) = @_; $six ? pack_sockaddr_in6($port, inet_pton AF_INET6, $ip) : pack_sockaddr_in($port, inet_aton $ip) }
    sub from {
        my ($kind, $ip, $port) = @_;
        socket my $socket, $six ? AF_INET6 : AF_INET, $kind, 0 or die $!;
        bind $socket, end($ip, $port) or die "$ip: $!";
        return $socket;
    }
'

# sink ADDRESS: for streams to port 7777 of the peer. A stream begins with the time of its first packet. The sink prints for each
# stream how many octets came in the two seconds that begin one second later, and ends it.
sink() {
    # shellcheck disable=SC2016
    in_ns them timeout 140 perl -e "$SOCKETS"'
        my $socket = from(SOCK_STREAM, $ARGV[0], 7777);
        listen $socket, 2 or die $!;
        print "listening\n";
        while (accept my $peer, $socket) {
            my ($all, $head, $begun, $end) = (0, "", undef, time + 4);
            while ((my $left = $end - time) > 0) {
                vec(my $ready = "", fileno $peer, 1) = 1;
                select $ready, undef, undef, $left or last;
                my $some = sysread $peer, my $data, 65536 or last;
                if (!defined $begun) {
                    $head .= $data;
                    next if length $head < 8;
                    $begun = unpack "d", $head;
                    $end = $begun + 3;
                }
                $all += $some if time >= $begun + 1;
            }
            print "stream $all\n";
        }' "$1" >"$OUT/tcp.sink" 2>&1 &
}
listening() { wait_for 20 says "$OUT/$1.sink" listening || fail "no sink: $(cat "$OUT/$1.sink")"; }

# stream FROM TO SEGMENT…: streams in turn, with segments of at most that many octets; 0 is for any. What came of each at the sink in
# two seconds is in $octets. 2 is TCP_MAXSEG.
begun_streams=0
stream() {
    # shellcheck disable=SC2016
    in_ns us timeout 30 perl -e "$SOCKETS"'
        $SIG{PIPE} = "IGNORE";
        my ($local, $remote, @segments) = @ARGV;
        for my $segment (@segments) {
            my $socket = from(SOCK_STREAM, $local, 0);
            setsockopt $socket, SOL_SOCKET, SO_SNDBUF, pack "i", 65536 or die $!;
            !$segment or setsockopt $socket, IPPROTO_TCP, 2, pack "i", $segment or die $!;
            connect $socket, end($remote, 7777) or die "no connection: $!";
            # The sink ends the stream. Where nothing comes there, the time does.
            eval {
                local $SIG{ALRM} = sub { die };
                alarm 5;
                my $some = pack("d", time) . "x" x 9992;
                1 while syswrite $socket, $some;
            };
            alarm 0;
            close $socket;
        }' "$@" || fail "no connection"
    begun_streams=$((begun_streams + $# - 2))
    wait_for 20 sunk $begun_streams || fail "a stream does not end: $(cat "$OUT/tcp.sink")"
    mapfile -t octets <<<"$(sed -n "s/^stream //p" "$OUT/tcp.sink" | tail -n $(($# - 2)))"
}
sunk() { [ "$(grep -c ^stream "$OUT/tcp.sink")" -ge "$1" ]; }

# fast_enough OCTETS: the link carries 500,000 octets in two seconds, headers among them. A reference that is far from that says
# nothing.
fast_enough() { [ "$1" -gt 350000 ] || fail "the measure itself is too slow: $1 octets in 2 s"; }

# median NUMBER NUMBER NUMBER
median() { printf '%s\n' "$@" | sort -n | sed -n 2p; }
