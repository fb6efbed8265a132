# What arrives in clear for addresses that a policy protects does not get in:
# by nf_tables where the kernel has it (the guest's has not; the tests of
# crates/esp show it on the host's), else by the rp_filter that the log asks for.
CLEARTEXT=yes
net_direct
site
ip -n right route add $LEFT_NET via $US_OWN

# Echo requests that our host has heard so far.
heard() {
    in_ns us awk '$1 == "Icmp:" { if (n) print $n; else for (i = 2; i <= NF; i++) if ($i == "InEchos") n = i }' /proc/net/snmp
}
knock() { in_ns them ping -q -n -c 3 -i 0.2 -W 1 -I $RIGHT_IN $LEFT_IN >/dev/null 2>&1 || true; }

# The test can fail: without a policy they get in.
before=$(heard)
knock
[ "$(($(heard) - before))" = 3 ] || fail "the packets in clear do not come so far"

start
if in_ns us nft list ruleset 2>/dev/null | grep -q ike-ike0; then
    note "nf_tables"
else
    expect_log us 'no nf_tables: .*set rp_filter to 1'
    in_ns us sysctl -qw net.ipv4.conf.l0.rp_filter=1
fi
up us
installed
ping_both
# A peer whose kernel has forgotten everything, or somebody with its address.
kill_hard them
forget them
before=$(heard)
knock
expect_wire "icmp[icmptype] = icmp-echo and src $RIGHT_IN and dst $LEFT_IN"
[ "$(heard)" = "$before" ] || fail "packets in clear got in"
