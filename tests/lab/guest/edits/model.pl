# The model of the configuration, and the files that are written from it.
use strict;
use warnings;

# sections PATH TREE OUT: adds to OUT, for each section, its dotted path and its [key, value] pairs, in order.
sub sections {
    my ($path, $tree, $out) = @_;
    my @own = grep { ref $tree->{$_} ne 'HASH' } sort keys %$tree;
    push @$out, [$path, map { [$_, $tree->{$_}] } @own] if @own;
    sections($path eq '' ? $_ : "$path.$_", $tree->{$_}, $out) for grep { ref $tree->{$_} eq 'HASH' } sort keys %$tree;
    return $out;
}

sub toml {
    my ($tree) = @_;
    my $text = '';
    for (@{sections('', $tree, [])}) {
        my ($path, @keys) = @$_;
        $text .= "[$path]\n" if $path ne '';
        for (@keys) {
            my ($key, $value) = @$_;
            $value = ref $value ? '[' . join(', ', map { "\"$_\"" } @$value) . ']' : $value =~ /^(\d+|true|false)$/ ? $value : "\"$value\"";
            $text .= "$key = $value\n";
        }
    }
    return $text;
}

sub swanctl {
    my ($tree) = @_;
    my $text = '';
    for (sort keys %$tree) {
        my $value = $tree->{$_};
        if (ref $value eq 'HASH') { $text .= "$_ {\n" . swanctl($value) . "}\n" }
        elsif ($_ eq 'id' && ref $value) { my $n = 0; $text .= join '', map { "id-" . ++$n . " = \"$_\"\n" } @$value }
        elsif (ref $value) { $text .= "$_ = " . join(', ', @$value) . "\n" }
        else { $text .= "$_ = \"$value\"\n" }
    }
    return $text;
}

# The connections of our daemon before the first edit. Connection cN leads to peer N mod 4 + 1, with networks of its own.
sub first_model {
    my %model = (conns => {}, secrets => {}, logins => first_logins());
    for my $n (0 .. 9) {
        $model{conns}{"c$n"} = first_connection($n);
        $model{secrets}{"ike-c$n"} = { id => ["c$n.us", "c$n.peer"], secret => "the first secret of c$n" };
    }
    return \%model;
}

sub peer_of { my ($name) = @_; my ($n) = $name =~ /(\d+)$/; return $n % 4 + 1 }

sub first_connection {
    my ($n) = @_;
    return { proposals => 'aes256gcm16-prfsha256-x25519', children => { net => first_child($n, 0, $n % 2 ? 'start' : 'trap') } };
}

# Child number K of connection N, 0 to 3, has quarter K of the networks of the connection.
sub first_child {
    my ($n, $k, $action) = @_;
    my $peer = $n % 4 + 1;
    my $at = 16 * $n + 4 * $k;
    return { local_ts => ["10.1.$at.0/24"], remote_ts => ["10.2$peer.$at.0/24"], start_action => $action, esp_proposals => 'aes256gcm16' };
}

# A wanted child is started again after the peer's Delete.
sub closes { my ($child) = @_; return $child->{start_action} eq 'start' ? 'start' : 'none' }

# our_tree MODEL SOCKET
sub our_tree {
    my ($model, $socket) = @_;
    my %conns;
    for my $name (keys %{$model->{conns}}) {
        my $conn = $model->{conns}{$name};
        $conns{$name} = {
            local_addrs => ['192.0.2.1'], remote_addrs => [$main::ADDRESS{'p' . peer_of($name)}], version => 2,
            proposals => [$conn->{proposals}], keyingtries => 0, dpd_delay => '0s', mobike => 'no',
            local => { auth => 'psk', id => "$name.us" }, remote => { auth => 'psk', id => "$name.peer" },
            children => { map { $_ => { mode => 'tunnel', hold => 'true', %{$conn->{children}{$_}}, close_action => closes($conn->{children}{$_}), esp_proposals => [$conn->{children}{$_}{esp_proposals}] } }
                keys %{$conn->{children}} },
        };
    }
    # The clients log in with many identities from one address at once.
    my %charon = (plugins => { vici => { socket => "unix://$socket" } }, cookie_threshold => 0, cookie_threshold_ip => 0, block_threshold => 0);
    my %tree = (connections => \%conns, secrets => { %{$model->{secrets}} }, charon => \%charon);
    login_sections(\%tree, $model->{logins});
    return \%tree;
}

# The configuration of a peer, which no edit changes except for secrets: a child for all networks of both ends.
sub peer_tree {
    my ($peer, $secrets) = @_;
    my (%conns, %secrets);
    for my $n (grep { $_ % 4 + 1 == $peer } 0 .. 15) {
        $conns{"c$n"} = {
            local_addrs => ["192.0.2.1$peer"], remote_addrs => ['192.0.2.1'], version => 2, dpd_delay => '0s', mobike => 'no',
            proposals => ['aes256gcm16-prfsha256-x25519', 'aes128gcm16-prfsha256-x25519'],
            local => { auth => 'psk', id => "c$n.peer" }, remote => { auth => 'psk', id => "c$n.us" },
            children => { net => { mode => 'tunnel', local_ts => ["10.2$peer.0.0/16"], remote_ts => ['10.1.0.0/16'], start_action => 'none',
                esp_proposals => ['aes256gcm16', 'aes128gcm16'] } },
        };
        $secrets{"ike-c$n"} = { id => ["c$n.peer", "c$n.us"], secret => $secrets->{"c$n"} // "the first secret of c$n" };
    }
    return { connections => \%conns, secrets => \%secrets };
}
1;
