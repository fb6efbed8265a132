# The daemons, and commands for them.
use strict;
use warnings;
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

our ($model, $syntax, $plane, $STATE, $DAEMON, %trusted);
our %pids;
my $begin = clock_gettime(CLOCK_MONOTONIC);

sub seconds { clock_gettime(CLOCK_MONOTONIC) - $begin }
sub note { printf "%.2f %s\n", clock_gettime(CLOCK_MONOTONIC), "@_" }

# wait_for SECONDS WHAT TEST: until the test is true.
sub wait_for {
    my ($patience, $what, $test) = @_;
    my $end = seconds() + $patience;
    until ($test->()) {
        die "never: $what\n" if seconds() > $end;
        sleep 0.03;
    }
}

sub put_file {
    my ($path, $text) = @_;
    umask 077;
    open my $file, '>', $path or die "$path: $!";
    print $file $text;
    close $file;
}

# background HOST COMMAND...: in the namespace of that host, with its output in /out/HOST.log.
sub background {
    my ($host, @command) = @_;
    $pids{$host} = fork // die "fork: $!";
    return if $pids{$host};
    open STDOUT, '>>', "/out/$host.log";
    open STDERR, '>&', \*STDOUT;
    exec qw(ip netns exec), $host, @command;
}

sub file_of { my ($host) = @_; return "$STATE/$host/" . ($syntax eq 'swanctl' && $host !~ /^[pq]/ ? 'swanctl.conf' : 'ours.toml') }

sub write_tree {
    my ($host, $tree) = @_;
    put_file(file_of($host), file_of($host) =~ /toml$/ ? toml($tree) : swanctl($tree));
    login_files($host, $host eq 'us' ? { map { $_ => 1 } keys %{$model->{logins}{ca}} } : \%trusted) if $host =~ /^(us|fresh)$/;
}

# daemon_begin HOST TREE [PLANE]
sub daemon_begin {
    my ($host, $tree, $its_plane) = @_;
    mkdir "$STATE/$host";
    write_tree($host, $tree);
    local @ENV{qw(NO_COLOR RUST_BACKTRACE)} = (1, 1);
    background($host, $DAEMON, 'run', '--config', file_of($host), '--data-plane', $its_plane // $plane, '--control', "$STATE/$host/ctl");
}

sub daemon_answers {
    my @hosts = @_;
    wait_for(20, "a daemon answers: @hosts", sub { !grep { !-S "$STATE/$_/ctl" } @hosts });
}

sub daemon_end {
    my ($host) = @_;
    kill 'TERM', $pids{$host};
    waitpid delete $pids{$host}, 0;
    unlink "$STATE/$host/ctl", "$STATE/$host/vici";
}

# ctl HOST WORD...: the status of ike-daemon's command.
sub ctl {
    my ($host, @words) = @_;
    return system("timeout 30 $DAEMON --control $STATE/$host/ctl @words >>/out/$host.ctl 2>&1") >> 8;
}

sub charon_begin {
    my ($host, $tree) = @_;
    mkdir "$STATE/$host";
    put_file("$STATE/$host/strongswan.conf", <<END);
charon {
    threads = 64
    load = random nonce openssl kdf aes sha1 sha2 hmac gcm ccm ctr cmac pem pkcs1 pkcs8 x509 pubkey constraints vici kernel-netlink socket-default updown md5 eap-identity eap-md5 eap-mschapv2
    plugins {
        vici { socket = unix://$STATE/$host/vici }
    }
    filelog {
        lab {
            path = /out/$host.charon.log
            time_format = %H:%M:%S
            default = 1
            flush_line = yes
        }
    }
}
swanctl { load = random openssl pem pkcs1 pkcs8 x509 pubkey sha1 }
END
    local $ENV{STRONGSWAN_CONF} = "$STATE/$host/strongswan.conf";
    background($host, 'charon-systemd');
    charon_write($host, $tree);
}

sub charon_write { my ($host, $tree) = @_; put_file("$STATE/$host/swanctl.conf", swanctl($tree)) }

# swan HOST WORD...: the status of swanctl.
sub swan {
    my ($host, @words) = @_;
    local $ENV{STRONGSWAN_CONF} = "$STATE/p4/strongswan.conf";
    local $ENV{SWANCTL_DIR} = "$STATE/$host";
    return system("timeout 30 swanctl @words --uri unix://$STATE/$host/vici >>/out/$host.swanctl 2>&1") >> 8;
}

sub load_all { my ($host) = @_; return swan($host, "--load-all --file $STATE/$host/swanctl.conf") }

# The peers p1 and p2 are ours, p3 and p4 are strongSwan.
sub peers_begin {
    daemon_begin("p$_", peer_tree($_, {})) for 1, 2;
    charon_begin("p$_", peer_tree($_, {})) for 3, 4;
    wait_for(20, 'charon answers', sub { -S "$STATE/p3/vici" && -S "$STATE/p4/vici" });
    load_all("p$_") == 0 or die "swanctl: p$_\n" for 3, 4;
    daemon_answers('p1', 'p2');
}

sub peer_takes {
    my ($peer, $secrets) = @_;
    if ($peer <= 2) {
        write_tree("p$peer", peer_tree($peer, $secrets));
        ctl("p$peer", 'reload') == 0 or die "the peer does not reload\n";
    } else {
        charon_write("p$peer", peer_tree($peer, $secrets));
        load_all("p$peer") == 0 or die "the peer does not load\n";
    }
}

sub peer_deletes {
    my ($conn) = @_;
    my $peer = peer_of($conn);
    return $peer <= 2 ? ctl("p$peer", 'down', '--ike', $conn) : swan("p$peer", '--terminate', '--ike', $conn);
}

# The process that sends, in our namespace.
my ($ask, $answer);
sub traffic_begin {
    pipe(my $in, $ask) or die;
    pipe($answer, my $out) or die;
    $pids{traffic} = fork // die "fork: $!";
    if (!$pids{traffic}) {
        open STDIN, '<&', $in;
        open STDOUT, '>&', $out;
        open STDERR, '>', '/out/traffic.log';
        close $_ for $ask, $answer;
        exec qw(ip netns exec us perl /lab/guest/edits/traffic.pl);
    }
    $ask->autoflush(1);
}
sub traffic { my ($verb, @pairs) = @_; print $ask join(' ', $verb, @pairs), "\n" }
sub traffic_answer { traffic(@_); my $line = <$answer> // die "no traffic any more\n"; chomp $line; return split /;/, $line }
1;
