# Stands between the ends of TCP connections and reads what passes as RFC 9329
# has it, knowing nothing of either program: tcp-relay.pl PORT HOST PORT
# A line per connection that ends, and "WRONG" with what is wrong.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;

my ($port, $host, $to) = @ARGV;
$| = 1;
my $listener = IO::Socket::INET->new(LocalPort => $port, Listen => 16, ReuseAddr => 1)
    or die "listen: $!";
print "listening\n";
while (my $client = $listener->accept) {
    next if fork;
    my $server = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $to) or die "connect: $!";
    my %end = (
        originator => { from => $client, to => $server, prefix => 6 },
        responder  => { from => $server, to => $client, prefix => 0 },
    );
    my $select = IO::Select->new($client, $server);
    pass: while (1) {
        for my $socket ($select->can_read) {
            my ($name) = grep { $end{$_}{from} == $socket } keys %end;
            my $end = $end{$name};
            my $read = sysread $socket, my $octets, 65536;
            last pass unless $read;
            $end->{buffer} .= $octets;
            frames($name, $end);
            my $sent = 0;
            $sent += syswrite($end->{to}, $octets, $read - $sent, $sent) // last pass while $sent < $read;
        }
    }
    for my $name (sort keys %end) {
        my $end = $end{$name};
        printf "%s: %d IKE, %d ESP, %d keepalives\n", $name, map { $end->{$_} // 0 } qw(ike esp alive);
    }
    exit;
}

sub frames {
    my ($name, $end) = @_;
    if ($end->{prefix}) {
        return if length $end->{buffer} < 6;
        my $prefix = substr $end->{buffer}, 0, 6, '';
        wrong($name, 'no prefix') if $prefix ne 'IKETCP';
        $end->{prefix} = 0;
    }
    while (length $end->{buffer} >= 2) {
        my $length = unpack 'n', $end->{buffer};
        return wrong($name, "length $length") if $length < 2;
        return if length $end->{buffer} < $length;
        my $message = substr substr($end->{buffer}, 0, $length, ''), 2;
        if ($message eq "\xff") {
            $end->{alive}++;
        } elsif (substr($message, 0, 4) eq "\0\0\0\0") {
            my $ike = substr $message, 4;
            my ($version, $size) = unpack 'x17Cx6N', $ike;
            wrong($name, 'IKE of another length or version')
                if length $ike < 28 || $size != length $ike || $version != 0x20;
            $end->{ike}++;
        } else {
            wrong($name, 'ESP too short') if length $message < 8 + 8 + 4 + 16;
            $end->{esp}++;
        }
    }
}

sub wrong { print "WRONG: $_[0]: $_[1]\n" }
