# NAT on our gateway translates what a child protects, or translates into it, and nothing leaves in clear: not while the
# tunnel is up, nor when the peer has died, until it is back.
# masquerade: of all that leaves by the outer link, without an exemption for the tunnel; with ESP in the kernel the packets
# are dropped, also after a crash of our daemon, until there is the exemption that docs/security.md demands. virtual: a network
# behind a road warrior, into its virtual IP. netmap: a network into the one that the child protects, address by address.
# Faults: in `rules::write` (crates/esp), make no chain `before-snat`, and in `Routed::set`, install no route (user space);
# in `SecondLine::start` (crates/ike-daemon), begin none (kernel, masquerade).
# CASES: masquerade virtual netmap
# PLANE: userspace kernel
# KERNELS: travel
CLEARTEXT=yes
net_direct
new_ns lan
join left lan0 10.7.0.1/16 lan lan1 10.7.0.77/16
ip -n lan route add default via 10.7.0.1
in_ns us sysctl -qw net.ipv4.ip_forward=1
for at in all default l0 lan0; do in_ns us sysctl -qw net.ipv4.conf.$at.rp_filter=0; done
ip -n left route add default via $THEM_OWN
ip -n right route add 10.7.0.0/16 via $US_OWN
site
ike us mobike no
ike us dpd_delay 1s
ike us keyingtries 0
conf us charon.retransmit_timeout 0.3
conf us charon.retransmit_base 1.0
conf us charon.retransmit_tries 2
net us start_action start
nft_us() { in_ns us nft -f -; }
case $CASE in
masquerade)
    net us local_ts 10.7.0.0/16
    net them remote_ts 10.7.0.0/16
    nft_us <<<'table ip site { chain nat { type nat hook postrouting priority srcnat; oifname l0 masquerade; }; }'
    ;;
virtual)
    ike us vips 0.0.0.0
    net us local_ts dynamic
    net us remote_ts 0.0.0.0/0
    ike them pools four
    conf them pools.four.addrs 10.9.0.0/24
    net them local_ts 0.0.0.0/0
    net them remote_ts dynamic
    nft_us <<<'table ip site { chain nat { type nat hook postrouting priority srcnat; ip saddr 10.7.0.0/16 snat to 10.9.0.1; }; }'
    ;;
netmap)
    nft_us <<<'table ip site {
        chain nat { type nat hook postrouting priority srcnat; ip saddr 10.7.0.0/16 ip daddr 10.2.0.0/16 snat ip prefix to 10.1.0.0/16; }
        chain back { type nat hook prerouting priority dstnat; ip saddr 10.2.0.0/16 ip daddr 10.1.0.0/16 dnat ip prefix to 10.7.0.0/16; }
    }'
    ;;
esac
lan_to_peer() { in_ns lan ping -q -n -c 1 -W 1 $RIGHT_IN >/dev/null 2>&1; }
CLEAR="icmp and dst net 10.2.0.0/16"
# The test can fail: without a tunnel they go in clear.
in_ns lan ping -q -n -c 1 -W 1 $RIGHT_IN >/dev/null 2>&1 || true
expect_wire "$CLEAR"
start them us
installed
in_ns lan ping -q -n -i 0.02 $RIGHT_IN >/dev/null 2>&1 &
pinging=$!
clear=$(wire "$CLEAR")
if [ "$CASE:$DATA_PLANE" = masquerade:kernel ]; then
    dropped() { in_ns us nft list table inet ike-xfrm | grep -q -E 'packets [0-9]{2,} .*drop'; }
    wait_for 5 dropped || fail "the packets are not dropped"
    kill_hard us
    pause 0.5
    [ "$(wire "$CLEAR")" = "$clear" ] || fail "$(($(wire "$CLEAR") - clear)) packets in clear after a crash"
    rm -f "$STATE"/us.{pid,killed,ctl}
    start us
    installed
    ! says "$(log_of us)" 'table ike-xfrm not made' || fail "the table of the run that crashed cannot be replaced"
    # The table of the run that crashed holds until the policies of this one are there.
    owned() { in_ns us nft list table inet ike-xfrm | grep -q 'flags owner'; }
    wait_for 15 owned || fail "the new table has no owner"
    in_ns us nft insert rule ip site nat rt ipsec exists accept
fi
wait_for 5 lan_to_peer || fail "the LAN does not reach the peer"
note "the peer has died"
kill_hard them
forget them
gone us
pause 0.5
start them
PATIENCE=30
installed
wait_for 5 lan_to_peer || fail "the LAN does not reach the peer again"
kill $pinging
[ "$(wire "$CLEAR")" = "$clear" ] || fail "$(($(wire "$CLEAR") - clear)) packets in clear"
if [ "$CASE:$DATA_PLANE" = masquerade:kernel ]; then
    stop us
    no_table() { ! in_ns us nft list table inet ike-xfrm >/dev/null 2>&1; }
    wait_for 5 no_table || fail "a stop leaves the table"
fi
