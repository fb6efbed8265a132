# A road warrior protects both families, its host has IPv6 switched off when the tunnel comes up, and on later: IPv6 does not
# leave in clear, neither then nor when the gateway has died.
# Fault: in `Table::hold` (crates/routes), set no route (user space); in `via` of the kernel's plane, return None for a shunt.
# PLANE: userspace kernel
CLEARTEXT=yes
net_direct
six_off() { in_ns us sysctl -qw net.ipv6.conf.all.disable_ipv6="$1" net.ipv6.conf.default.disable_ipv6="$1"; }
six_way() {
    ip -n left -6 addr add 2001:db8::1/64 dev l0 nodad
    ip -n left -6 addr add $LEFT_IN6/64 dev inner0 nodad
    ip -n left route add $RIGHT_NET6 via 2001:db8::2
}
six() { in_ns us ping -q -n -c 1 -W 1 $RIGHT_IN6 >/dev/null 2>&1; }
ip -n left route add $RIGHT_NET6 via 2001:db8::2
ip -n right route add $LEFT_NET6 via 2001:db8::1
# The test can fail: without a tunnel IPv6 goes in clear.
wait_for 5 six || fail "no way for IPv6 in clear"
six_off 1
site
ike us mobike no
ike us dpd_delay 1s
conf us charon.retransmit_timeout 0.3
conf us charon.retransmit_base 1.0
conf us charon.retransmit_tries 2
ike us vips 0.0.0.0
net us local_ts dynamic
net us remote_ts "$RIGHT_NET, $RIGHT_NET6"
net us start_action start
ike them pools four
conf them pools.four.addrs 10.9.0.0/24
net them local_ts "$RIGHT_NET"
net them remote_ts dynamic
SIX="icmp6[icmp6type] = icmp6-echo and dst net $RIGHT_NET6"
start
installed
ping_from us 10.9.0.1 $RIGHT_IN
clear=$(wire "$SIX")
six_off 0
six_way
held() {
    ! six || fail "IPv6 leaves in clear: $1"
    ! in_ns us ping -q -n -c 3 -i 0.2 -W 1 -I $LEFT_IN6 $RIGHT_IN6 >/dev/null 2>&1 || fail "IPv6 leaves in clear: $1"
    [ "$(wire "$SIX")" = "$clear" ] || fail "packets in clear: $1"
}
held "switched on"
installed
kill_hard them
forget them
gone us
held "the gateway is dead"
