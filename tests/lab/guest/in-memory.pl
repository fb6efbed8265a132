# in-memory.pl PID: reads an EC private key (DER) and succeeds if its scalar is in the memory of PID.
use strict;
use warnings;

binmode STDIN;
my $der = do { local $/; <STDIN> };
$der =~ /\x02\x01\x01\x04\x20(.{32})/s or die "no P-256 key\n";
my ($key, $reversed) = ($1, scalar reverse $1);
my $pid = shift;
open(my $maps, '<', "/proc/$pid/maps") or die "maps: $!\n";
open(my $mem, '<:raw', "/proc/$pid/mem") or die "mem: $!\n";
my $read = 0;
while (<$maps>) {
    my ($from, $to, $how) = /^([0-9a-f]+)-([0-9a-f]+) (\S+)/ or next;
    next unless $how =~ /^rw/;
    my ($at, $end) = (hex $from, hex $to);
    # Parts overlap by a key.
    while ($at < $end) {
        my $length = $end - $at < 1 << 20 ? $end - $at : 1 << 20;
        sysseek($mem, $at, 0) && sysread($mem, my $part, $length) or last;
        $read += length $part;
        exit 0 if index($part, $key) >= 0 || index($part, $reversed) >= 0;
        $at += $length > 64 && $at + $length < $end ? $length - 64 : $length;
    }
}
die "nothing read\n" unless $read;
exit 1;
