# Pings between chosen pairs of addresses, and counts what is not answered. Commands on standard input, a line each:
#   send FROM TO [FROM TO]...   these pairs from now on, every 50 ms each; answers once the packets before have their answers
#   once FROM TO [FROM TO]...   one packet for each pair, which nobody waits for
#   count                       waits for the answers of what was sent, and answers with a line: FROM TO SENT LOST; ...
#   answered FROM TO...         one packet for each pair every 50 ms until all are answered, at most 10 s; the pairs that are not
use strict;
use warnings;
use Socket;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

$| = 1;
my $GAP = 0.05;
# Answers come within a second, also on a busy machine.
my $LATE = 2;
my (%sockets, @flows, %sent, %lost, %waits, $number, $due);

sub now { clock_gettime(CLOCK_MONOTONIC) }

sub source {
    my ($from) = @_;
    $sockets{$from} //= do {
        socket(my $socket, PF_INET, SOCK_RAW, 1) or die "socket: $!";
        bind($socket, sockaddr_in(0, inet_aton($from))) or die "bind $from: $!";
        $socket;
    };
}

sub checksum {
    my ($octets) = @_;
    my $sum = 0;
    $sum += $_ for unpack "n*", $octets;
    $sum = ($sum & 0xffff) + ($sum >> 16) while $sum >> 16;
    return ~$sum & 0xffff;
}

# What cannot be sent is a packet without an answer.
sub ping {
    my ($pair, $counts) = @_;
    my ($from, $to) = split / /, $pair;
    $number++;
    my $body = pack "C2 n n2 N", 8, 0, 0, 0x4545, $number & 0xffff, $number;
    substr($body, 2, 2) = pack "n", checksum($body);
    send(source($from), $body, 0, sockaddr_in(0, inet_aton($to)));
    $waits{$number} = [$pair, now(), $counts];
    $sent{$pair}++ if $counts;
}

# The pairs whose answers come within that time.
sub receive {
    my ($wait) = @_;
    my ($mask, @pairs) = ('');
    vec($mask, fileno $_, 1) = 1 for values %sockets;
    return select(undef, undef, undef, $wait) && () if !%sockets;
    return if select($mask, undef, undef, $wait) <= 0;
    for my $socket (grep { vec $mask, fileno $_, 1 } values %sockets) {
        while (defined recv $socket, my $packet, 200, MSG_DONTWAIT) {
            my $header = 4 * (ord($packet) & 15);
            my ($type, undef, undef, $id, undef, $which) = unpack "C2 n n2 N", substr $packet, $header;
            next if $type != 0 || $id != 0x4545;
            my $found = delete $waits{$which // 0} or next;
            push @pairs, $found->[0];
        }
    }
    return @pairs;
}

sub tick {
    receive($due - now() > 0 ? $due - now() : 0);
    return if now() < $due;
    $due = now() + $GAP;
    ping($_, 1) for @flows;
}

sub pairs { my @words = @_; my @all; push @all, join ' ', splice @words, 0, 2 while @words; return @all }

sub settle {
    my $end = now() + $LATE;
    my $waiting = sub { scalar grep { $_->[2] } values %waits };
    receive(0.02) while now() < $end && $waiting->();
    my @left = keys %waits;
    for (@left) {
        my ($pair, $at, $counts) = @{delete $waits{$_}};
        next if !$counts;
        $lost{$pair}++;
        printf STDERR "%.2f lost %s\n", $at, $pair;
    }
}

# Waits for what is on its way, so that no change that follows meets it. What is lost has no answer.
sub await_answers {
    my $end = now() + 0.2;
    receive(0.01) while now() < $end && grep { now() - $_->[1] < 0.2 } values %waits;
}

sub until_answered {
    my %open = map { $_ => 1 } @_;
    my $end = now() + 10;
    my $next = 0;
    while (%open && now() < $end) {
        if (now() >= $next) {
            ping($_, 0) for sort keys %open;
            $next = now() + $GAP;
        }
        delete @open{receive(0.01)};
    }
    return join ';', sort keys %open;
}

$due = now();
my $rest = '';
while (1) {
    my $mask = '';
    vec($mask, fileno STDIN, 1) = 1;
    if (select($mask, undef, undef, 0) > 0) {
        sysread(STDIN, $rest, 65536, length $rest) or exit 0;
    }
    while ($rest =~ s/^(.*)\n//) {
        my ($verb, @words) = split / /, $1;
        if ($verb eq 'send') { @flows = pairs(@words); await_answers(); print "\n"; $due = now() }
        elsif ($verb eq 'once') { ping($_, 0) for pairs(@words) }
        elsif ($verb eq 'answered') { print until_answered(pairs(@words)), "\n" }
        elsif ($verb eq 'count') {
            settle();
            printf STDERR "%.2f counted\n", now();
            print join(';', map { "$_ $sent{$_} " . ($lost{$_} // 0) } sort keys %sent), "\n";
            (%sent, %lost) = ();
        }
    }
    tick();
}
