# A road warrior protects both families, and its gateway grants IPv4 alone. IPv6
# is not carried, and does not leave in clear: not while the tunnel is up, and
# not after the gateway has died, by a block of the daemon. `down` frees it.
# Fault: in `via` of the kernel's plane, return None for a shunt; in `route` of
# ESP in user space, install no unreachable route.
# PLANE: userspace kernel
CLEARTEXT=yes
net_direct
site
ike us mobike no
ike us dpd_delay 1s
conf us charon.retransmit_timeout 0.5
conf us charon.retransmit_base 1.0
conf us charon.retransmit_tries 3
ike us vips 0.0.0.0
net us local_ts dynamic
net us remote_ts "$RIGHT_NET, $RIGHT_NET6"
net us close_action start
ike them pools four
conf them pools.four.addrs 10.9.0.0/24
net them local_ts "$RIGHT_NET"
net them remote_ts dynamic
ip -n left route add $RIGHT_NET6 via 2001:db8::2
ip -n right route add $LEFT_NET6 via 2001:db8::1
six() { in_ns us ping -q -n -c 1 -W 1 -I $LEFT_IN6 $RIGHT_IN6 >/dev/null 2>&1; }
# The test can fail: without a tunnel IPv6 goes in clear.
wait_for 5 six || fail "no way for IPv6 in clear"
held() {
    ! six || fail "IPv6 leaves in clear: $1"
    # From whatever address the host chooses.
    ! in_ns us ping -q -n -c 1 -W 1 $RIGHT_IN6 >/dev/null 2>&1 || fail "IPv6 leaves in clear: $1"
    [ "$(wire "$INNER")" = "$clear" ] || fail "packets in clear: $1"
}
start
up us
installed
ping_from us 10.9.0.1 $RIGHT_IN
clear=$(wire "$INNER")
held "up"
kill_hard them
gone us
held "the gateway is dead"
forget them
start them
up us
installed
held "up again"
down us ike
gone us
wait_for 5 six || fail "held although it was taken down"
