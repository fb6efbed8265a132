# Asks an echo server every 100 ms by UDP and says when each answer came: echoes.pl OWN PEER, or echoes.pl OWN for the
# server. Times are those of the clock that nobody sets, in seconds, as in /proc/uptime. A datagram that cannot be sent is
# one without an answer.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my ($own, $peer) = @ARGV;
$| = 1;
my $socket = IO::Socket::INET->new(Proto => "udp", LocalAddr => $own, LocalPort => 7777) or die "socket: $!";
if (!defined $peer) {
    while (1) {
        # What comes back as an ICMP error is no reason to end.
        my $from = $socket->recv(my $octets, 100);
        $socket->send($octets, 0, $from) if defined $from;
    }
}
my $to = sockaddr_in(7777, inet_aton($peer));
my $select = IO::Select->new($socket);
my $due = clock_gettime(CLOCK_MONOTONIC);
while (1) {
    my $now = clock_gettime(CLOCK_MONOTONIC);
    if ($now >= $due) {
        $socket->send(sprintf("%.2f", $now), 0, $to);
        $due = $now + 0.1;
    }
    next if !$select->can_read($due - $now > 0 ? $due - $now : 0);
    my $from = $socket->recv(my $octets, 100);
    # When it was sent, and when its answer came.
    printf "%s %.2f\n", $octets, clock_gettime(CLOCK_MONOTONIC) if defined $from && length $octets;
}
