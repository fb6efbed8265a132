# Sets the sequence counter of an SA with extended sequence numbers in the
# caller's network namespace: replay.pl DESTINATION SPI in|out VALUE.
# It asks the kernel for the counters (XFRM_MSG_GETAE) and sends them back
# changed (XFRM_MSG_NEWAE); iproute2 can do neither to an SA that exists.
use strict;
use warnings;
use Socket qw(AF_INET AF_INET6 SOCK_RAW inet_pton);

use constant {
    AF_NETLINK => 16, NETLINK_XFRM => 6, NLMSG_ERROR => 2,
    NLM_F_REQUEST => 1, NLM_F_ACK => 4, NLM_F_REPLACE => 0x100,
    NEWAE => 0x1e, GETAE => 0x1f, REPLAY_ESN_VAL => 23,
};

my ($dst, $spi, $which, $value) = @ARGV;
my $family = $dst =~ /:/ ? AF_INET6 : AF_INET;
# struct xfrm_aevent_id: xfrm_usersa_id, source, flags, reqid.
my $id = pack 'a16 H8 S C x a16 L L', inet_pton($family, $dst), substr("0000000$spi", -8), $family, 50, '', 0, 0;

socket my $kernel, AF_NETLINK, SOCK_RAW, NETLINK_XFRM or die "no netlink: $!\n";
my ($type, $body) = ask(GETAE, 0, $id);
die 'no such SA: ' . error($body) . "\n" if $type != NEWAE;

my $esn;
for (my $at = length $id; $at + 4 <= length $body;) {
    my ($length, $kind) = unpack 'S S', substr $body, $at, 4;
    last if $length < 4;
    $esn = substr $body, $at + 4, $length - 4 if $kind == REPLAY_ESN_VAL;
    $at += ($length + 3) & ~3;
}
die "no extended sequence numbers on that SA\n" unless defined $esn;

# struct xfrm_replay_state_esn: bmp_len oseq seq oseq_hi seq_hi replay_window bmp[]
my @field = unpack 'L6 a*', $esn;
my ($low, $high) = $which eq 'out' ? (1, 3) : (2, 4);
@field[$low, $high] = ($value & 0xffffffff, $value >> 32);
$field[6] = "\0" x length $field[6];
$esn = pack 'L6 a*', @field;
($type, $body) = ask(NEWAE, NLM_F_REPLACE | NLM_F_ACK, $id . pack('S S', 4 + length $esn, REPLAY_ESN_VAL) . $esn);
die 'refused: ' . error($body) . "\n" if unpack 'l', $body;

sub ask {
    my ($type, $flags, $body) = @_;
    my $message = pack('L S S L L', 16 + length $body, $type, NLM_F_REQUEST | $flags, 1, 0) . $body;
    # To the kernel: struct sockaddr_nl with port 0.
    send $kernel, $message, 0, pack('S S L L', AF_NETLINK, 0, 0, 0) or die "send: $!\n";
    defined recv $kernel, my $answer, 65536, 0 or die "recv: $!\n";
    return ((unpack 'L S', $answer)[1], substr $answer, 16);
}

sub error {
    local $! = -unpack 'l', shift;
    return "$!";
}
