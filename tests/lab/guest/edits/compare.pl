# Reads from the kernel what is protected, and compares our daemon with a fresh start.
use strict;
use warnings;

our $plane;

# protected NAMESPACE: what is there, as { key => kind }.
sub protected { return $plane eq 'kernel' ? by_policies(@_) : by_routes(@_) }

# The kind is trap, block, or sa for the policy of an SA. Those of a Child SA have an SPI in the outgoing one.
sub by_policies {
    my ($ns) = @_;
    my @all = grep { $_->{src} ne '0.0.0.0/0' && $_->{src} !~ /:/ } policies($ns);
    my %of_sa = map { ("$_->{reqid} $_->{priority}" => 1) } grep { $_->{spi} } @all;
    my %found;
    for (@all) {
        my $kind = $_->{action} eq 'block' ? 'block' : $of_sa{"$_->{reqid} $_->{priority}"} ? 'sa' : 'trap';
        my $key = "$_->{dir} $_->{src} $_->{dst}";
        $found{$key} = $found{$key} && $found{$key} ne $kind ? 'several' : $kind;
    }
    return \%found;
}

sub by_routes {
    my ($ns) = @_;
    my %found;
    for (output('ip', '-n', $ns, qw(route show table 7296))) {
        my ($kind, $to) = /^(prohibit |unreachable |)(\S+)/ or next;
        $kind =~ s/ //;
        if ($kind eq '') { $found{"route $to"} = s/^\S+ //r =~ s/ +$//r }
        else { $found{"fallback $to"} = $kind eq 'unreachable' ? 'sa' : 'block' }
    }
    my $chain = '';
    for (output(qw(ip netns exec), $ns, qw(nft list table inet ike-ike0))) {
        $chain = $1 if /chain (\S+)/;
        $found{"nft $chain " . network($1) . ' ' . network($2)} = 'drop' if /ip saddr (\S+) ip daddr (\S+) .*drop/;
    }
    return \%found;
}

# network FIRST-LAST: as a prefix.
sub network {
    my ($range) = @_;
    my ($first, $last) = split /-/, $range;
    return $first if !$last;
    my ($low, $high) = map { my @o = split /\./; $o[0] << 24 | $o[1] << 16 | $o[2] << 8 | $o[3] } $first, $last;
    my $length = 32;
    my $size = $high - $low + 1;
    while ($size > 1) { $size >>= 1; $length-- }
    return "$first/$length";
}

# keys_of FROM TO: the keys under which a pair of networks is found.
sub keys_of {
    my ($from, $to) = @_;
    return ("out $from $to", "in $to $from", "fwd $to $from") if $plane eq 'kernel';
    return ("route $to", "fallback $to", "nft leave-clear $from $to", "nft clear $to $from");
}

# differences OURS FRESH MAY EXACT: what is wrong in ours. MAY has the keys of SAs that may have survived a change, and the kind of
# policy that may follow each SA. EXACT has the keys of children that are down. For all others an SA may stand in the place of a trap
# or block.
sub differences {
    my ($ours, $fresh, $may, $exact) = @_;
    my @wrong;
    for (sort keys %$fresh) {
        my ($is, $wanted) = ($ours->{$_}, $fresh->{$_});
        next if defined $is && ($is eq $wanted || $is eq 'sa' && !$exact->{$_});
        next if defined $is && $may->{$_};
        push @wrong, "missing: $_ ($wanted)" if !defined $is;
        push @wrong, "other: $_ is $is, a fresh start has $wanted" if defined $is;
    }
    for (sort grep { !defined $fresh->{$_} } keys %$ours) {
        my $is = $ours->{$_};
        push @wrong, "left: $_ ($is)" if !$may->{$_} || $is =~ /^(trap|block)$/ && $is ne $may->{$_};
    }
    return @wrong;
}
1;
