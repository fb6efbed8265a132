# The edits. Each edit changes the model, records which flows may lose packets, and returns the name of its child or
# connection. It returns nothing if it is not possible.
use strict;
use warnings;
use List::Util qw(shuffle);

our ($model, $syntax, $plane, $STATE);
# Of children: what commands have done, by "CONNECTION CHILD"; keys of SAs that a change may have left, by connection.
our (%EDITS, %COMMANDS);
our (%down, %untrapped, %installed, %brought_up, %left, %excused, %secret_at_peer);

# The children with `start` that an edit changes: for each one its connection, and then its keys.
my @begun;

sub any { return $_[rand @_] }
sub child_of { my ($name) = @_; my ($c, $k) = split / /, $name; return $model->{conns}{$c}{children}{$k} }
sub children { return map { my $c = $_; map { "$c $_" } sort keys %{$model->{conns}{$c}{children}} } sort keys %{$model->{conns}} }

# The pairs of networks of a child.
sub pairs_of {
    my ($child) = @_;
    return map { my $l = $_; map { [$l, $_] } @{$child->{remote_ts}} } @{$child->{local_ts}};
}

# sa_may_stay CHILD: no longer expects anything of its SA, which may stay with its present selectors.
sub sa_may_stay {
    my ($name) = @_;
    my ($conn) = split / /, $name;
    $left{$conn}{$_} = 1 for map { keys_of(@$_) } pairs_of(child_of($name));
}

# edited CHILD: the effect of earlier commands on it ends.
sub edited {
    my ($name) = @_;
    sa_may_stay($name);
    push @begun, [$name =~ /(\S+)/, map { keys_of(@$_) } pairs_of(child_of($name))] if action($name) eq 'start';
    # A trap that a command has installed follows the child.
    delete $_->{$name} for \%down, \%untrapped, \%brought_up;
    # A load by swanctl takes down changed children and brings them up again. After a reload a new Child SA comes up beside the old
    # one. In the kernel of the peer both have the same policy, and the kernel drops packets of the older SA.
    $excused{$name} = 1 if action($name) ne 'none';
}

# Whether packets of the child are protected, and whether they are to be answered.
sub is_protected {
    my ($name) = @_;
    my $child = child_of($name) or return 0;
    return 1 if $installed{$name} || $brought_up{$name};
    return 0 if $child->{start_action} eq 'none';
    return !$down{$name} if $child->{start_action} eq 'start';
    return !$untrapped{$name};
}
sub is_served { my ($name) = @_; return is_protected($name) && !$down{$name} }

# sa_is_gone CONNECTION: its SA has ended, with what a command had brought up.
sub sa_is_gone {
    my ($conn) = @_;
    delete $left{$conn};
    delete $brought_up{$_} for grep { /^$conn / } children();
}

# Ways to put a change of connections or of credentials in force by swanctl. Each comes in its turn.
my %WAYS = (
    connections => ['--load-conns', '--load-all', 'reload', '--load-creds, --load-pools, --load-authorities, --load-conns', '--load-all --clear'],
    credentials => ['--load-creds', '--load-all', '--load-creds --clear', 'reload', '--load-all --clear'],
    both => ['--load-creds, --load-conns', '--load-all', 'reload', '--load-all --clear'],
);
sub next_way { my ($changed) = @_; my $ways = $WAYS{$changed}; push @$ways, shift @$ways; return $ways->[-1] }

# put_in_force CHANGED: the file is read again, by ours, or by swanctl with one command or with single ones.
sub put_in_force {
    my ($changed) = @_;
    write_tree('us', our_tree($model, "$STATE/us/vici"));
    my @begun_now = splice @begun;
    my $how = $syntax eq 'toml' ? 'reload' : next_way($changed);
    # An authority whose file is gone stays until all credentials are cleared, as with charon.
    trust_again() if $how =~ /reload|--clear/ || $syntax eq 'toml';
    trust_more() if $how =~ /--load-(all|creds)/;
    if ($how eq 'reload') {
        my $status = ctl('us', 'reload');
        die "reload: status $status\n" if $status != 0 && $status != 6;
        return $how;
    }
    for (split /, /, $how) {
        swan('us', $_, '--file', file_of('us')) == 0 or die "swanctl $_\n";
    }
    # As with charon, the SAs that `start` had begun end when their child changes.
    for (@begun_now) {
        my ($conn, @keys) = @$_;
        delete @{$left{$conn}}{@keys};
    }
    return $how;
}

# Kinds of edits and commands in the order in which they come. All come before one comes again. In half of the cases the second half
# is first, so that ten rounds of both formats have all kinds in each plane, and ten rounds in both planes all kinds in each format.
my @deck;
sub next_kind {
    if (!@deck) {
        @deck = shuffle(sort(keys %EDITS), sort keys %COMMANDS);
        @deck = @deck[@deck / 2 .. $#deck, 0 .. @deck / 2 - 1] if ($plane eq 'userspace') != ($syntax eq 'swanctl');
    }
    return shift @deck;
}

# an_edit: its name, what it is about, and what puts it in force.
sub an_edit {
    my ($what, $on, $how);
    my @not_now;
    until (defined $on) {
        $what = next_kind();
        ($on, $how) = ($COMMANDS{$what} // $EDITS{$what})->();
        push @not_now, $what if !defined $on;
    }
    unshift @deck, @not_now;
    return ($what, $on, $how) if $how;
    my ($conn) = $on =~ /(\S+)/;
    my $changed = $what eq 'add_connection' ? 'both' : $what =~ /^login/ ? 'credentials' : 'connections';
    return ($what, $on, sub { put_in_force($changed) }) if !$model->{conns}{$conn} || $what ne 'trap_added' && rand 2 < 1;
    # What the file asks for is there when the SA has ended.
    $excused{$_} = 1 for grep { /^$conn / } children();
    return ($what, $on, sub {
        my $how = put_in_force($changed);
        peer_deletes($conn);
        sa_is_gone($conn);
        return "$how, and the peer deletes";
    });
}

# commands_again HOST: those whose effect lasts.
sub commands_again {
    my ($host) = @_;
    command($host, 'install', $_) for sort keys %installed;
    command($host, 'uninstall', $_) for sort keys %untrapped;
    command($host, 'down', $_) for sort keys %down;
}

# command HOST VERB CHILD: its status.
sub command {
    my ($host, $verb, $name) = @_;
    my ($conn, $child) = split / /, $name;
    return swan($host, '--initiate', '--ike', $conn, '--child', $child) if $verb eq 'up' && $syntax eq 'swanctl';
    return ctl($host, $verb, '--ike', $conn, '--child', $child) if $verb =~ /^(up|down)$/;
    return swan($host, "--$verb", '--ike', $conn, '--child', $child);
}

# commanded VERB CHILD: what an edit returns that is a command.
sub commanded {
    my ($verb, $name) = @_;
    return ($name, sub {
        my $status = command('us', $verb, $name);
        die "$verb $name: status $status\n" if $status != 0;
        return 'command';
    });
}

sub action { my ($name) = @_; return child_of($name)->{start_action} }

%COMMANDS = (
    up => sub {
        my $name = any(grep { $down{$_} || action($_) eq 'none' && !$installed{$_} } children()) // return;
        delete $down{$name};
        $brought_up{$name} = 1 if action($name) eq 'none';
        sa_may_stay($name);
        return commanded('up', $name);
    },
    down => sub {
        my $name = any(grep { !$untrapped{$_} && !$down{$_} && action($_) ne 'none' } children()) // return;
        $down{$name} = 1;
        return commanded('down', $name);
    },
    install => sub {
        my $name = any(grep { !$down{$_} && ($untrapped{$_} || action($_) eq 'none' && !$installed{$_}) } children()) // return;
        if (!delete $untrapped{$name}) { $installed{$name} = 1 }
        return commanded('install', $name);
    },
    uninstall => sub {
        my $name = any(grep { !$down{$_} && !$untrapped{$_} && (action($_) eq 'trap' || $installed{$_}) } children()) // return;
        sa_may_stay($name);
        delete $brought_up{$name};
        if (!delete $installed{$name}) { $untrapped{$name} = 1 }
        return commanded('uninstall', $name);
    },
    terminate => sub {
        my $name = any(grep { !$untrapped{$_} && !$down{$_} && action($_) ne 'none' } children()) // return;
        # The next packet brings up what has a trap.
        if (action($name) eq 'start') { $down{$name} = 1 } else { $excused{$name} = 1 }
        my ($conn, $child) = split / /, $name;
        # It may have no SA.
        return ($name, sub { swan('us', '--terminate', '--ike', $conn, '--child', $child); 'command' });
    },
    peer_deletes => sub {
        my $conn = any(sort keys %{$model->{conns}});
        delete $left{$conn};
        for (grep { /^$conn / } children()) {
            $excused{$_} = 1;
            delete $brought_up{$_};
        }
        # It may have no SA.
        return ($conn, sub { peer_deletes($conn); 'command' });
    },
);

%EDITS = (
    widen => sub {
        my @single = grep { @{child_of($_)->{remote_ts}} == 1 } children();
        my @possible = grep { child_of($_)->{remote_ts}[0] !~ m{/22$} } @single;
        # Traps of children that are up come first.
        my @trapped = grep { action($_) eq 'trap' && !$down{$_} && !$untrapped{$_} } @possible;
        my $name = any(@trapped ? @trapped : @possible) // return;
        edited($name);
        my $child = child_of($name);
        my $ts = $child->{remote_ts};
        if ($ts->[0] =~ m{/24$} && rand 2 < 1) { push @$ts, $ts->[0] =~ s{(\d+)\.0/\d+$}{($1 + 2) . '.0/24'}er }
        else { s{/2[45]$}{/22} for $child->{any('local_ts', 'remote_ts')}[0] }
        return $name;
    },
    narrow => sub {
        my $name = any(children());
        edited($name);
        my $child = child_of($name);
        if (@{$child->{remote_ts}} == 2) { pop @{$child->{remote_ts}} }
        else {
            for ($child->{any('local_ts', 'remote_ts')}[0]) { m{/22$} ? s{/22$}{/24} : s{/2\d$}{/25} }
        }
        return $name;
    },
    add_child => sub {
        my $conn = any(sort keys %{$model->{conns}});
        my ($n) = $conn =~ /(\d+)/;
        my $k = any(grep { !$model->{conns}{$conn}{children}{"n$_"} } 1 .. 3) // return;
        $model->{conns}{$conn}{children}{"n$k"} = first_child($n, $k, any(qw(none trap start)));
        return "$conn n$k";
    },
    remove_child => sub {
        my $name = any(grep { / n\d/ } children()) // return;
        edited($name);
        delete $installed{$name};
        my ($c, $k) = split / /, $name;
        delete $model->{conns}{$c}{children}{$k};
        return $name;
    },
    add_connection => sub {
        my $n = any(grep { !$model->{conns}{"c$_"} } 0 .. 15) // return;
        $model->{conns}{"c$n"} = first_connection($n);
        $model->{secrets}{"ike-c$n"} = { id => ["c$n.us", "c$n.peer"], secret => $secret_at_peer{"c$n"} // "the first secret of c$n" };
        return "c$n";
    },
    remove_connection => sub {
        my @all = sort keys %{$model->{conns}};
        return if @all < 11;
        my $conn = any(@all);
        for (grep { /^$conn / } children()) {
            edited($_);
            delete $installed{$_};
        }
        delete $model->{conns}{$conn};
        delete $model->{secrets}{"ike-$conn"};
        return $conn;
    },
    start_action => sub {
        my $name = any(children());
        edited($name);
        my $child = child_of($name);
        $child->{start_action} = any(grep { $_ ne $child->{start_action} } qw(none trap start));
        delete $installed{$name} if $child->{start_action} eq 'trap';
        return "$name $child->{start_action}";
    },
    # A child that is up gets a trap, and then its SA ends.
    trap_added => sub {
        my $name = any(grep { $brought_up{$_} || action($_) eq 'start' && !$down{$_} } children()) // return;
        edited($name);
        child_of($name)->{start_action} = 'trap';
        delete $installed{$name};
        return $name;
    },
    # With other proposals a child counts as unchanged: commands that have taken it down stay in force.
    esp_proposals => sub {
        my $name = any(children());
        my @kept = grep { $_->{$name} } \%down, \%untrapped;
        edited($name);
        $_->{$name} = 1 for @kept;
        $_ = $_ eq 'aes256gcm16' ? 'aes128gcm16' : 'aes256gcm16' for child_of($name)->{esp_proposals};
        return $name;
    },
    # The secret changes at this end first, and the peer cannot authenticate with the old one; then it changes at the peer.
    secret => sub {
        my $conn = any(grep { my $net = "$_ net"; child_of($net) && !$down{$net} && !$untrapped{$net} } sort keys %{$model->{conns}}) // return;
        my $secret = 'another secret ' . int rand 1e9;
        $model->{secrets}{"ike-$conn"}{secret} = $secret;
        delete $left{$conn};
        for (grep { /^$conn / } children()) {
            $excused{$_} = 1;
            delete $brought_up{$_};
        }
        $brought_up{"$conn net"} = 1 if action("$conn net") eq 'none' && !$installed{"$conn net"};
        sa_may_stay("$conn net") if action("$conn net") eq 'none';
        return ($conn, sub {
            my $how = put_in_force('credentials');
            peer_deletes($conn);
            command('us', 'up', "$conn net") != 0 or die "$conn: the peer gets in with the secret of before\n";
            $secret_at_peer{$conn} = $secret;
            peer_takes(peer_of($conn), \%secret_at_peer);
            command('us', 'up', "$conn net") == 0 or die "$conn: the peer does not get in with its new secret\n";
            return $how;
        });
    },
    proposals => sub {
        my $conn = any(sort keys %{$model->{conns}});
        if ($syntax eq 'swanctl') {
            for (grep { /^$conn / } children()) {
                sa_may_stay($_);
                $excused{$_} = 1;
            }
        }
        for ($model->{conns}{$conn}{proposals}) { /256gcm/ ? s/256gcm/128gcm/ : s/128gcm/256gcm/ }
        return $conn;
    },
    login_psk => sub { login_edit('psk') },
    login_eap => sub { login_edit('eap') },
    login_ca => sub { login_edit('ca') },
);
1;
