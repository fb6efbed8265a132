# Namespaces, addresses, impairment, NAT.
# shellcheck shell=bash disable=SC2034

# The networks behind each peer, and the peer's own address in them.
LEFT_NET=10.1.0.0/16 LEFT_IN=10.1.0.1
RIGHT_NET=10.2.0.0/16 RIGHT_IN=10.2.0.1
LEFT_NET2=10.3.0.0/16 LEFT_IN2=10.3.0.1
RIGHT_NET2=10.4.0.0/16 RIGHT_IN2=10.4.0.1
LEFT_NET3=10.5.0.0/16 LEFT_IN3=10.5.0.1
RIGHT_NET3=10.6.0.0/16 RIGHT_IN3=10.6.0.1
LEFT_NET6=fd01::/64 LEFT_IN6=fd01::1
RIGHT_NET6=fd02::/64 RIGHT_IN6=fd02::1

# Addresses the peers use for themselves (own) and for each other (seen).
US_OWN=192.0.2.1 US_SEEN=192.0.2.1
THEM_OWN=192.0.2.2 THEM_SEEN=192.0.2.2
US_IF=l0 THEM_IF=r0

# Many commands of ip go through one process.
new_ns() {
    local ns
    printf 'netns add %s\n' "$@" | ip -batch -
    for ns; do ip -n "$ns" link set lo up; done
}

# join NS IF ADDRESS NS IF ADDRESS: an address may be several.
join() {
    ip link add "$2" netns "$1" type veth peer name "$5" netns "$4"
    device_up "$1" "$2" "$3"
    device_up "$4" "$5" "$6"
}

# device_up NS IF ADDRESSES
device_up() {
    local addr
    {
        for addr in $3; do
            case $addr in
            *:*) echo "addr add $addr dev $2 nodad" ;;
            *) echo "addr add $addr dev $2" ;;
            esac
        done
        echo "link set $2 up"
    } | ip -n "$1" -batch -
}

inner_networks() {
    inner_network left $LEFT_IN/16 $LEFT_IN2/16 $LEFT_IN3/16 $LEFT_IN6/64
    inner_network right $RIGHT_IN/16 $RIGHT_IN2/16 $RIGHT_IN3/16 $RIGHT_IN6/64
}

# inner_network NS IPv4 IPv4 IPv4 IPv6. Not every kernel has dummy devices; a veth pair serves as one.
inner_network() {
    ip -n "$1" -batch - <<IP
link add inner0 type veth peer name inner1
link set inner0 up
link set inner1 up
addr add $2 dev inner0
addr add $3 dev inner0
addr add $4 dev inner0
addr add $5 dev inner0 nodad
IP
}

# left 192.0.2.1 ── 192.0.2.2 right
net_direct() {
    new_ns left right
    join left l0 "192.0.2.1/24 2001:db8::1/64" right r0 "192.0.2.2/24 2001:db8::2/64"
    inner_networks
    capture
}

# ipv6_outer: the peers reach each other by IPv6. Before site.
ipv6_outer() { US_OWN=2001:db8::1 US_SEEN=2001:db8::1 THEM_OWN=2001:db8::2 THEM_SEEN=2001:db8::2; }

# net_nat SIDE: that side sits behind a router that rewrites its address and port.
#   inside 172.16.0.2 ── 172.16.0.1 nat 192.0.2.254 ── 192.0.2.x outside
net_nat() {
    local inside outside in_if out_if pub
    inside=$(netns "$1")
    case $1 in
    us) outside=right in_if=l0 out_if=r0 pub=192.0.2.2 US_OWN=172.16.0.2 US_SEEN=192.0.2.254 ;;
    them) outside=left in_if=r0 out_if=l0 pub=192.0.2.1 THEM_OWN=172.16.0.2 THEM_SEEN=192.0.2.254 ;;
    esac
    new_ns left right nat
    join "$inside" $in_if 172.16.0.2/24 nat in0 172.16.0.1/24
    join nat out0 192.0.2.254/24 "$outside" $out_if $pub/24
    ip -n "$inside" route add default via 172.16.0.1
    in_ns nat sysctl -qw net.ipv4.ip_forward=1
    nat_nftables 2>/dev/null || nat_tc
    inner_networks
    capture
}

# net_narrow MTU [silent]: two routers, and between them a link of that MTU. Silent, neither says so
# to who sends more: a black hole.
#   left 192.0.2.1 ── r1 ──(MTU)── r2 ── 198.51.100.2 right
net_narrow() {
    local router
    THEM_OWN=198.51.100.2 THEM_SEEN=198.51.100.2
    new_ns left right r1 r2
    join left l0 192.0.2.1/24 r1 in0 192.0.2.254/24
    join r1 mid1 203.0.113.1/24 r2 mid2 203.0.113.2/24
    join right r0 198.51.100.2/24 r2 in0 198.51.100.254/24
    ip -n r1 link set mid1 mtu "$1"
    ip -n r2 link set mid2 mtu "$1"
    ip -n left route add default via 192.0.2.254
    ip -n right route add default via 198.51.100.254
    ip -n r1 route add default via 203.0.113.2
    ip -n r2 route add default via 203.0.113.1
    for router in r1 r2; do
        in_ns $router sysctl -qw net.ipv4.ip_forward=1
        [ "${2:-}" != silent ] || ip -n $router rule add pref 10 ipproto icmp blackhole
    done
    inner_networks
    capture
}

# net_hole MTU: as net_narrow MTU silent, over IPv4 and IPv6, and the routers drop fragments, too.
net_hole() {
    net_narrow "$1" silent
    routed_ipv6
    without_icmpv6
    without_fragments
}

# routed_ipv6: IPv6 between the two routers of net_narrow, too.
routed_ipv6() {
    local router
    device_up left l0 2001:db8::1/64
    device_up r1 in0 2001:db8::fe/64
    device_up r1 mid1 2001:db8:1::1/64
    device_up r2 mid2 2001:db8:1::2/64
    device_up r2 in0 2001:db8:2::fe/64
    device_up right r0 2001:db8:2::2/64
    ip -n left route add default via 2001:db8::fe
    ip -n right route add default via 2001:db8:2::fe
    ip -n r1 route add default via 2001:db8:1::2
    ip -n r2 route add default via 2001:db8:1::1
    for router in r1 r2; do in_ns $router sysctl -qw net.ipv6.conf.all.forwarding=1; done
}

without_icmpv6() {
    local router
    for router in r1 r2; do ip -6 -n $router rule add pref 10 ipproto ipv6-icmp blackhole; done
}

without_fragments() {
    local router dev family
    modules sch_ingress cls_flower act_gact
    for router in r1 r2; do
        for dev in in0 mid${router#r}; do
            tc -n $router qdisc add dev $dev clsact
            for family in ip ipv6; do
                tc -n $router filter add dev $dev ingress protocol $family flower ip_flags frag action drop
            done
        done
    done
}

# Ports are random, for a mapping that was forgotten must not come back as it was.
nat_nftables() {
    in_ns nat nft -f - <<NFT
table ip nat {
    chain post {
        type nat hook postrouting priority srcnat
        oifname out0 meta l4proto { tcp, udp } masquerade to :20000-29999 fully-random
    }
}
NFT
}

# Debian's kernels have no nat chain of nftables here; the connection tracking action of
# tc does the same rewriting, on the outer interface in both directions.
nat_tc() {
    modules sch_ingress cls_flower act_ct nf_nat nf_conntrack
    tc -n nat qdisc add dev out0 clsact
    tc -n nat filter add dev out0 egress protocol ip prio 1 flower ip_proto udp src_ip 172.16.0.0/24 \
        action ct commit nat src addr 192.0.2.254 port 20000-29999 pipe action pass
    tc -n nat filter add dev out0 ingress protocol ip prio 1 flower ip_proto udp dst_ip 192.0.2.254 \
        action ct nat pipe action pass
}

# forget_nat: the router loses its table, as after a restart; the next packet
# from inside gets another port.
forget_nat() { in_ns nat conntrack -F >/dev/null 2>&1; }

# impair SIDE ARGUMENTS: netem on what that side sends.
impair() {
    local side=$1 dev
    shift
    case $side in us) dev=$US_IF ;; them) dev=$THEM_IF ;; esac
    modules sch_netem
    # shellcheck disable=SC2068
    tc -n "$(netns "$side")" qdisc replace dev $dev root netem $@
}

# capture: what each side puts on the wire. What it takes from there is not looked
# at, for a kernel shows packets it decrypted on the interface they came by.
capture() {
    local side
    for side in us them; do begin_capture $side; done
    for side in us them; do captured $side; done
}

capture_at() {
    begin_capture "$1"
    captured "$1"
}

begin_capture() {
    local dev
    case $1 in us) dev=$US_IF ;; them) dev=$THEM_IF ;; esac
    in_ns "$1" tcpdump --immediate-mode -q -U -Z root -n -s 256 -Q out -i "$dev" -w "$OUT/wire.$1.pcap" >/dev/null 2>"$OUT/tcpdump.$1.log" &
}

captured() { wait_for 10 says "$OUT/tcpdump.$1.log" listening || fail "no capture: $(cat "$OUT/tcpdump.$1.log")"; }

# says FILE WORD: without a process.
says() {
    local lines
    [ -e "$1" ] && mapfile -t lines <"$1" && [[ "${lines[*]}" == *"$2"* ]]
}

# half_open SIDE: leaves a half-open IKE SA at that side, by an IKE_SA_INIT
# request (AES-GCM-16-256, PRF SHA-256, x25519) that nobody goes on with.
half_open() {
    local host hex
    case $1 in us) host=$US_SEEN ;; them) host=$THEM_SEEN ;; esac
    hex=$(random_hex 8)0000000000000000212022080000000000000090
    hex+=2200002800000024010100030300000c01000014800e0100030000080200000500000008040000 # SA
    hex+=1f28000028001f0000$(random_hex 32)                                            # KE
    hex+=00000024$(random_hex 32)                                                      # Nonce
    # shellcheck disable=SC2059
    printf "$(printf '%s' "$hex" | sed 's/../\\x&/g')" >"$STATE/half-open"
    # shellcheck disable=SC2016
    in_ns "$(other "$1")" bash -c 'cat "$1" >"/dev/udp/$2/500"' - "$STATE/half-open" "$host"
    note "half-open IKE SA at $1"
    # charon takes back no cookie while its clock, which starts with the
    # guest's, is below the ten seconds a cookie lives.
    [ "$(kind "$1")" != strongswan ] || wait_for 30 uptime_over 14
}

random_hex() { od -An -v -tx1 -N "$1" /dev/urandom | tr -d ' \n'; }

uptime_over() { [ "$(cut -d. -f1 /proc/uptime)" -gt "$1" ]; }
