# The namespaces, and what the kernel has there.
use strict;
use warnings;

our %ADDRESS = (us => '192.0.2.1', fresh => '192.0.2.1', map { ("p$_" => "192.0.2.1$_") } 1 .. 4);

# run COMMAND...: dies if that fails.
sub run { system(@_) == 0 or die "failed: @_\n" }

# feed INPUT COMMAND...
sub feed {
    my ($input, @command) = @_;
    open my $pipe, '|-', @command or die "@command: $!";
    print $pipe $input;
    close $pipe or die "failed: @command\n$input";
}

sub output {
    my @command = @_;
    open my $pipe, '-|', @command or die "@command: $!";
    my @lines = <$pipe>;
    close $pipe;
    chomp @lines;
    return @lines;
}

# The namespace us, the peers p1 to p4 and a bridge between them. The namespace `fresh` is as us, but its link leads nowhere.
# All networks of the peers can be reached in clear.
sub lay_net {
    my @hosts = ('us', 'fresh', map { "p$_" } 1 .. 4);
    feed(join('', map { "netns add $_\n" } @hosts, 'wire', 'void'), qw(ip -batch -));
    feed(<<'END', qw(ip -n wire -batch -));
link add br0 type bridge
link set br0 up
END
    for my $host (@hosts) {
        my $wire = $host eq 'fresh' ? 'void' : 'wire';
        run(qw(ip link add eth0 netns), $host, qw(type veth peer name), $host, 'netns', $wire);
        feed("link set $host up\n" . ($wire eq 'wire' ? "link set $host master br0\n" : ''), qw(ip -n), $wire, qw(-batch -));
        my $number = $host =~ /^p(.)/ ? $1 : 0;
        my @ways = $number ? "route add 10.1.0.0/16 via 192.0.2.1\nroute add local 10.2$number.0.0/16 dev lo\n"
            : map { "route add 10.2$_.0.0/16 via 192.0.2.1$_\n" } 1 .. 4;
        my $inner = $number ? "10.2$number.0.1" : '10.1.0.1';
        feed(<<END . join('', @ways) . ($number ? '' : "route add local 10.1.0.0/16 dev lo\n"), qw(ip -n), $host, qw(-batch -));
link set lo up
addr add $ADDRESS{$host}/24 dev eth0
link set eth0 up
addr add $inner/32 dev lo
END
    }
    feed(<<'END', qw(ip netns exec wire nft -f -));
table netdev clear {
    chain from_us {
        type filter hook ingress device us priority 0;
        ip daddr 10.0.0.0/8 counter comment "clear"
    }
}
END
}

# in_clear: packets for the inner networks that we have sent unprotected so far.
sub in_clear {
    my ($count) = join(' ', output(qw(ip netns exec wire nft list table netdev clear))) =~ /counter packets (\d+)/;
    return $count // die "no counter\n";
}

sub reset_counters { output(qw(ip netns exec wire nft reset rules)) }

# policies NAMESPACE: of the kernel, without those of sockets.
sub policies {
    my ($ns) = @_;
    my (@all, $one);
    for (output('ip', '-n', $ns, qw(xfrm policy))) {
        if (/^src (\S+) dst (\S+)/) { $one = { src => $1, dst => $2, head => $_ } }
        elsif (/^\tdir (\S+) (?:action (\S+) )?.*priority (\d+)/) {
            @$one{qw(dir action priority)} = ($1, $2 // 'allow', $3);
            push @all, $one;
        }
        elsif (/^\t\tproto esp (?:spi (\S+) )?reqid (\d+) mode (\S+)/) { @$one{qw(spi reqid mode)} = ($1, $2, $3) }
    }
    return @all;
}
1;
