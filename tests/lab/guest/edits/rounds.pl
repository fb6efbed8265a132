# rounds.pl SYNTAX PLANE ROUNDS SEED: random edits. Each one is put in force, and the result compared with a fresh start.
use strict;
use warnings;
use IO::Handle;
use Time::HiRes qw(sleep);

our ($syntax, $plane, $rounds, $seed) = @ARGV;
our ($DAEMON, $STATE) = ('/bin-under-test/ike-daemon', '/run/lab');
require "/lab/guest/edits/$_.pl" for qw(net model programs compare edits vici logins);
our ($model, %EDITS, %left, %down, %untrapped, %installed, %brought_up, %excused, %secret_at_peer, %pids);
$| = 1;

# flow CHILD: two addresses that all forms of the child's selectors have.
sub flow {
    my ($name) = @_;
    my ($n, $k) = $name =~ /^c(\d+) \w*?(\d*)$/;
    my ($peer, $at) = ($n % 4 + 1, 16 * $n + 4 * ($k || 0));
    return "10.1.$at.5 10.2$peer.$at.5";
}

# inside NETWORK: an address of it by chance.
sub inside {
    my ($network) = @_;
    my ($a, $b, $c, $length) = $network =~ m{^(\d+)\.(\d+)\.(\d+)\.0/(\d+)$};
    return "$a.$b." . ($c + ($length == 22 ? int rand 4 : 0)) . '.' . (6 + int rand 100);
}

my %flowing;
sub flows_on {
    %flowing = map { $_ => 1 } @_;
    traffic_answer('send', sort keys %flowing);
}
sub served { return map { flow($_) } grep { is_served($_) } children() }

# compare: what is wrong in ours, after ten seconds at most.
sub compare {
    my (@wrong, %exact);
    $exact{$_} = 1 for map { keys_of(@$_) } map { pairs_of(child_of($_)) } grep { $down{$_} } children();
    # After an SA without a trap the traffic is blocked, if the file asks for a trap.
    my %may = map { %$_ } values %left;
    $may{$_} = 'block' for map { keys_of(@$_) } map { pairs_of(child_of($_)) } grep { $untrapped{$_} } children();
    my $end = seconds() + 10;
    do {
        sleep 0.1 if @wrong;
        my ($ours, $fresh) = (protected('us'), protected('fresh'));
        @wrong = differences($ours, $fresh, \%may, \%exact);
    } while @wrong && seconds() < $end;
    return @wrong;
}

sub one_round {
    my ($number) = @_;
    my $begin = seconds();
    %excused = ();
    my ($what, $on, $how) = an_edit();
    # Flows that the new file does not protect stop.
    my %then = map { $_ => 1 } served();
    flows_on(grep { $then{$_} } keys %flowing);
    $how = $how->();
    # From now on all flows of the file are protected, also those of children that were just added.
    traffic('once', map { inside($_->[0]) . ' ' . inside($_->[1]) } map { pairs_of(child_of($_)) } grep { is_protected($_) } children());
    daemon_begin('fresh', our_tree($model, "$STATE/fresh/vici"));
    my @silent = traffic_answer('answered', served());
    flows_on(served());
    daemon_answers('fresh');
    commands_again('fresh');
    my @wrong = compare();
    my ($sent, $lost) = (0, 0);
    my %excuse = map { (flow($_) => 1) } keys %excused;
    for (traffic_answer('count')) {
        my ($from, $to, $of, $missing) = split / /;
        $sent += $of;
        $lost += $missing;
        push @wrong, "lost: $missing of $of packets $from $to" if $missing && !$excuse{"$from $to"};
    }
    my $before_logins = seconds();
    push @wrong, logins();
    my $of_logins = sprintf '%.1f', seconds() - $before_logins;
    daemon_end('fresh');
    my $clear = in_clear();
    push @wrong, "in clear: $clear packets" if $clear;
    push @wrong, map { "not up in 10 s: $_" } @silent;
    my $seconds = sprintf '%.1f', seconds() - $begin;
    note("round $number: $what $on, $how: $sent packets, $lost lost, $clear in clear, $seconds s, log-ins $of_logins s");
    return @wrong;
}

mkdir $STATE;
srand $seed;
note("seed $seed, $rounds rounds, $syntax, $plane");
lay_net();
$model = first_model();
trust_again();
login_pki();
peers_begin();
# The test can fail: without the daemon packets go in clear.
traffic_begin();
traffic('once', '10.1.0.5', '10.21.0.5');
wait_for(5, 'a packet in clear', sub { in_clear() });
daemon_begin('us', our_tree($model, "$STATE/us/vici"));
daemon_answers('us');
# A daemon answers before its data plane is there.
wait_for(10, 'the data plane', sub { keys %{protected('us')} >= 30 });
my @silent = traffic_answer('answered', served());
die "not up: @silent\n" if @silent;
flows_on(served());
traffic_answer('count');
reset_counters();
clients_begin();
note('up');
my @wrong;
for my $number (1 .. $rounds) {
    @wrong = one_round($number) or next;
    note("wrong in round $number, seed $seed:\n  " . join "\n  ", @wrong);
    system("ip -n us xfrm policy >/out/us.policy; ip -n us xfrm state >/out/us.states; cp $STATE/us/*.toml $STATE/us/*.conf /out/ 2>/dev/null");
    ctl('us', 'list');
    system("for h in us p1 p2 p3 p4; do echo \$h; ip netns exec \$h awk '\$2 > 0' /proc/net/xfrm_stat; done >/out/dropped");
    last;
}
kill 'TERM', values %pids;
1 while wait > 0;
exit(@wrong ? 1 : 0);
