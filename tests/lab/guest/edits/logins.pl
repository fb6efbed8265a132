# Log-ins: pre-shared keys, users (EAP) and certificates of authorities that the file of our daemon has or had. After each round
# two clients try all of them, one of ours and one of strongSwan, at our daemon and at the fresh start. They make IKE SAs without
# children, so that policies stay as they are.
use strict;
use warnings;

our ($model, $syntax, $STATE, $DAEMON, %ADDRESS, %ASIDE);

my $PKI = "$STATE/pki";
my @CLIENTS = qw(q1 q2);
# The addresses at which each client logs in, by the names of the hosts there. One client is enough for the fresh start.
my %TARGETS = (q1 => { us => $ADDRESS{us}, fresh => $ASIDE{fresh} }, q2 => { us => $ADDRESS{us} });
# The secrets that a log-in no longer has, by kind and name. The first one was never valid.
my %former;
# The authorities that our daemon trusts.
our %trusted;

# trust_again: those of the file. trust_more: those of the file, and those of before.
sub trust_again { %trusted = (); trust_more() }
sub trust_more { $trusted{$_} = 1 for keys %{$model->{logins}{ca}} }

# The kinds of log-ins, and what is there before the first edit: the name and the secret, or the name of the authority.
sub first_logins {
    my %logins = (psk => {}, eap => {}, ca => {});
    for my $n (0 .. 2) {
        $logins{psk}{"l$n"} = "the first key of l$n";
        $logins{eap}{"u$n"} = "the first password of u$n";
        $logins{ca}{"ca$n"} = '';
    }
    for my $kind (qw(psk eap)) {
        $former{$kind}{$_} = ['never valid'] for keys %{$logins{$kind}};
    }
    return \%logins;
}

# login_edit KIND: changes a secret, or takes a log-in away or puts it back. The first edit of a secret changes it.
sub login_edit {
    my ($kind) = @_;
    my $logins = $model->{logins}{$kind};
    my $name = any(sort keys %{first_logins_named($kind)});
    my $now = $logins->{$name};
    my $is_new = $kind ne 'ca' && @{$former{$kind}{$name}} == 1;
    push @{$former{$kind}{$name}}, $now if defined $now && $kind ne 'ca';
    if (defined $now && ($kind eq 'ca' || !$is_new && rand 2 < 1)) { delete $logins->{$name} }
    else { $logins->{$name} = $kind eq 'ca' ? '' : 'another secret ' . int rand 1e9 }
    return "$kind $name";
}

sub first_logins_named {
    my ($kind) = @_;
    return { map { $_ => 1 } map { { psk => "l$_", eap => "u$_", ca => "ca$_" }->{$kind} } 0 .. 2 };
}

# login_sections TREE MODEL: adds to the tree of our daemon what the log-ins need.
sub login_sections {
    my ($tree, $logins) = @_;
    my %common = (version => 2, proposals => ['aes256gcm16-prfsha256-x25519'], dpd_delay => '0s', mobike => 'no');
    my %by_certificate = (auth => 'pubkey', certs => ['gateway.pem']);
    $tree->{connections}{"login-$_->[0]"} = { %common, local => $_->[1], remote => $_->[2] } for
        ['psk', { auth => 'psk', id => 'gw-psk.example.org' }, { auth => 'psk', id => '%any' }],
        ['eap', { %by_certificate, id => 'gw-eap.example.org' }, { auth => 'eap-mschapv2', id => '%any', eap_id => '%any' }],
        ['ca', { %by_certificate, id => 'gw-ca.example.org' }, { auth => 'pubkey', id => '%any' }];
    for (keys %{$logins->{psk}}) {
        $tree->{secrets}{"ike-$_"} = { id => ["$_.example.org", 'gw-psk.example.org'], secret => $logins->{psk}{$_} };
    }
    $tree->{secrets}{"eap-$_"} = { id => [$_], secret => $logins->{eap}{$_} } for keys %{$logins->{eap}};
}

sub pki { run("$DAEMON pki @_ >>/out/pki.log 2>&1") }

# login_pki: the authorities, one certificate of each, and that of our daemon.
sub login_pki {
    mkdir $PKI;
    for my $ca (qw(gwca ca0 ca1 ca2)) {
        my $leaf = $ca eq 'gwca' ? 'gateway' : "of-$ca";
        my @names = $ca eq 'gwca' ? map { "gw-$_.example.org" } qw(eap ca) : "$leaf.example.org";
        pki("--gen --type ecdsa --size 256 --out $PKI/$_.key") for $ca, $leaf;
        pki("--self --ca --in $PKI/$ca.key --dn 'O=lab, CN=$ca' --out $PKI/$ca.pem");
        pki("--issue --in $PKI/$leaf.key --cacert $PKI/$ca.pem --cakey $PKI/$ca.key --dn 'O=lab, CN=$leaf'",
            (map { "--san $_" } @names), "--out $PKI/$leaf.pem");
    }
}

# login_files HOST AUTHORITIES: the certificates and authorities of our daemon in the folders beside its file.
sub login_files {
    my ($host, $has) = @_;
    mkdir "$STATE/$host/$_" for qw(x509 x509ca private);
    put_file("$STATE/$host/x509/gateway.pem", content("$PKI/gateway.pem"));
    put_file("$STATE/$host/private/gateway.key", content("$PKI/gateway.key"));
    for (keys %{first_logins_named('ca')}) {
        my $file = "$STATE/$host/x509ca/$_.pem";
        if ($has->{$_}) { put_file($file, content("$PKI/$_.pem")) }
        else { unlink $file }
    }
}

sub content {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!";
    local $/;
    return <$file>;
}

# clients_begin: the clients, with everything that no edit changes.
sub clients_begin {
    daemon_begin('q1', { charon => { plugins => { vici => { socket => "unix://$STATE/q1/vici" } } } }, 'none');
    charon_begin('q2', {});
    wait_for(20, 'the clients answer', sub { -S "$STATE/q1/vici" && -S "$STATE/q2/vici" });
    for my $client (@CLIENTS) {
        my $path = "$STATE/$client/vici";
        vici($path, 'load-cert', { type => 'X509', flag => 'CA', data => content("$PKI/gwca.pem") });
        vici($path, 'load-key', { type => 'any', data => content("$PKI/of-$_.key") }) for qw(ca0 ca1 ca2);
        for my $kind (qw(psk eap ca)) {
            for my $name (sort keys %{first_logins_named($kind)}) {
                my $targets = $TARGETS{$client};
                vici($path, 'load-conn', { "$_-$name" => try_connection($kind, $name, $targets->{$_}) }) for sort keys %$targets;
            }
        }
    }
}

# tries ROUND: what is tried at once, as lists of kind, name, secret, and whether it gets in. There is one secret for each log-in
# in a round, because a client has one for each identity. There are no more tries when the list is empty.
sub tries {
    my ($round) = @_;
    my $logins = $model->{logins};
    my @all = $round ? () : map { ['ca', $_, '', $trusted{$_}] } sort keys %{first_logins_named('ca')};
    for my $kind (qw(psk eap)) {
        for my $name (sort keys %{$former{$kind}}) {
            my $now = $logins->{$kind}{$name};
            my @secrets = ((defined $now ? $now : ()), reverse @{$former{$kind}{$name}});
            push @all, [$kind, $name, $secrets[$round], defined $now && $round == 0] if $round < @secrets;
        }
    }
    return @all;
}

# The connection of a client for tries at an address.
sub try_connection {
    my ($kind, $name, $address) = @_;
    my $own = $kind eq 'ca' ? "of-$name.example.org" : "$name.example.org";
    my %local = (auth => { psk => 'psk', eap => 'eap-mschapv2', ca => 'pubkey' }->{$kind}, id => $own);
    $local{eap_id} = $name if $kind eq 'eap';
    $local{certs} = [content("$PKI/of-$name.pem")] if $kind eq 'ca';
    return {
        version => 2, remote_addrs => [$address], proposals => ['aes256gcm16-prfsha256-x25519'], keyingtries => 1, childless => 'force',
        dpd_delay => 0, mobike => 'no', unique => 'never', 'local-1' => \%local,
        'remote-1' => { auth => $kind eq 'psk' ? 'psk' : 'pubkey', id => "gw-$kind.example.org" },
    };
}

# try_all PATH TARGETS TRIES: begins them at one client. Returns the handles by the names of connections.
sub try_all {
    my ($path, $targets, @tries) = @_;
    my (@loads, %begun);
    for (@tries) {
        my ($kind, $name, $secret) = @$_;
        my @owners = $kind eq 'psk' ? ("$name.example.org", 'gw-psk.example.org') : ($name);
        push @loads, vici_ask($path, 'load-shared', { id => "$kind-$name", type => $kind eq 'psk' ? 'IKE' : 'EAP', data => $secret, owners => \@owners })
            if $kind ne 'ca';
    }
    for (@loads) {
        my $answer = vici_answer($_);
        die "a client refuses: $answer->{errmsg}\n" if $answer->{success} ne 'yes';
    }
    for my $try (@tries) {
        $begun{"$_-$try->[1]"} = vici_ask($path, 'initiate', { ike => "$_-$try->[1]", timeout => 25000, loglevel => -1 }) for sort keys %$targets;
    }
    return \%begun;
}

# logins: what is wrong.
sub logins {
    my @wrong;
    for (my $round = 0; my @tries = tries($round); $round++) {
        my %begun = map { $_ => try_all("$STATE/$_/vici", $TARGETS{$_}, @tries) } @CLIENTS;
        for my $client (@CLIENTS) {
            push @wrong, map { judged($client, $_, $begun{$client}, @tries) } sort keys %{$TARGETS{$client}};
        }
        end_tries("$STATE/$_/vici", $TARGETS{$_}, @tries) for @CLIENTS;
    }
    return @wrong;
}

# judged CLIENT HOST HANDLES TRIES: what is wrong with the answers.
sub judged {
    my ($client, $host, $begun, @tries) = @_;
    my @wrong;
    for (@tries) {
        my ($kind, $name, $secret, $may) = @$_;
        my $answer = vici_answer($begun->{"$host-$name"});
        my $is_in = $answer->{success} eq 'yes' ? 1 : 0;
        next if $is_in == ($may ? 1 : 0);
        my $what = $kind eq 'ca' ? 'a certificate' : "the secret \"$secret\"";
        push @wrong, "log-in at $host from $client as $kind $name with $what: " . ($is_in ? 'gets in' : "refused, $answer->{errmsg}");
    }
    return @wrong;
}

# end_tries PATH TARGETS TRIES: ends the IKE SAs that the tries have made.
sub end_tries {
    my ($path, $targets, @tries) = @_;
    my @asked = map { my $try = $_; map { vici_ask($path, 'terminate', { ike => "$_-$try->[1]", timeout => -1, loglevel => -1 }) } sort keys %$targets } @tries;
    # A try that was refused has no SA.
    vici_answer($_) for @asked;
    vici($path, 'unload-shared', { id => "$_->[0]-$_->[1]" }) for grep { $_->[0] ne 'ca' } @tries;
}
1;
