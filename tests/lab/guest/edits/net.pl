# The namespaces, and what the kernel has there.
use strict;
use warnings;

our %ADDRESS = (us => '192.0.2.1', fresh => '192.0.2.1', q1 => '192.0.2.31', q2 => '192.0.2.32', map { ("p$_" => "192.0.2.1$_") } 1 .. 4);
# Of the fresh start, and of the clients on the same link.
our %ASIDE = (fresh => '198.51.100.1', q1 => '198.51.100.31', q2 => '198.51.100.32');

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

# attach HOST DEVICE BRIDGE: the device of the host leads to the bridge of this name, in the namespace of the same name.
sub attach {
    my ($host, $device, $bridge) = @_;
    run(qw(ip link add), $device, 'netns', $host, qw(type veth peer name), $host, 'netns', $bridge);
    feed("link set $host up\nlink set $host master br0\n", qw(ip -n), $bridge, qw(-batch -));
}

# The namespace us, the peers p1 to p4, the clients q1 and q2, and a bridge between them. The namespace `fresh` is as us, but its
# link leads to the clients alone. All networks of the peers can be reached in clear.
sub lay_net {
    my @ends = ('us', 'fresh', map { "p$_" } 1 .. 4);
    feed(join('', map { "netns add $_\n" } @ends, qw(q1 q2 wire void)), qw(ip -batch -));
    feed("link add br0 type bridge\nlink set br0 up\n", qw(ip -n), $_, qw(-batch -)) for qw(wire void);
    attach($_, 'eth0', $_ eq 'fresh' ? 'void' : 'wire') for @ends, qw(q1 q2);
    attach($_, 'eth1', 'void') for qw(q1 q2);
    for my $host (@ends) {
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
    feed("addr add $ASIDE{fresh}/24 dev eth0\n", qw(ip -n fresh -batch -));
    feed(<<END, qw(ip -n), $_, qw(-batch -)) for qw(q1 q2);
link set lo up
addr add $ADDRESS{$_}/24 dev eth0
addr add $ASIDE{$_}/24 dev eth1
link set eth0 up
link set eth1 up
END
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
