# A client of VICI: one request on each socket, so that many are under way at once.
use strict;
use warnings;
use Socket;

my ($SECTION, $SECTION_END, $KEY, $LIST, $ITEM, $LIST_END) = 1 .. 6;
my ($REQUEST, $RESPONSE) = (0, 1);

# vici_ask SOCKET COMMAND TREE: the handle for `vici_answer`.
sub vici_ask {
    my ($path, $command, $tree) = @_;
    socket(my $socket, PF_UNIX, SOCK_STREAM, 0) or die "socket: $!";
    connect($socket, sockaddr_un($path)) or die "connect $path: $!";
    my $packet = pack('C C/a*', $REQUEST, $command) . vici_message($tree);
    $packet = pack 'N/a*', $packet;
    syswrite($socket, $packet) == length $packet or die "write $path: $!";
    return $socket;
}

sub vici_message {
    my ($tree) = @_;
    my $octets = '';
    for (sort keys %$tree) {
        my $value = $tree->{$_};
        if (ref $value eq 'HASH') { $octets .= pack('C C/a*', $SECTION, $_) . vici_message($value) . pack 'C', $SECTION_END }
        elsif (ref $value) { $octets .= pack('C C/a*', $LIST, $_) . join('', map { pack 'C n/a*', $ITEM, $_ } @$value) . pack 'C', $LIST_END }
        else { $octets .= pack 'C C/a* n/a*', $KEY, $_, $value }
    }
    return $octets;
}

# vici_answer HANDLE: the keys and values of the answer that are in no section.
sub vici_answer {
    my ($socket) = @_;
    my $length = unpack 'N', octets_of($socket, 4);
    my $packet = octets_of($socket, $length);
    my ($type, $rest) = unpack 'C a*', $packet;
    die "VICI: answer of type $type\n" if $type != $RESPONSE;
    my %found;
    while ($rest ne '' && ord($rest) == $KEY) {
        (undef, my ($key, $value), $rest) = unpack 'C C/a* n/a* a*', $rest;
        $found{$key} = $value;
    }
    return \%found;
}

sub octets_of {
    my ($socket, $count) = @_;
    my $octets = '';
    while (length $octets < $count) {
        sysread($socket, $octets, $count - length $octets, length $octets) or die "VICI: the daemon closes the connection\n";
    }
    return $octets;
}

# vici SOCKET COMMAND TREE: dies if it is refused.
sub vici {
    my ($path, $command, $tree) = @_;
    my $answer = vici_answer(vici_ask($path, $command, $tree));
    die "VICI $command: $answer->{errmsg}\n" if ($answer->{success} // 'yes') ne 'yes';
}
1;
