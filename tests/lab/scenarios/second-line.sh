# ESP in the kernel, and another program that removes all XFRM policies again and again while there is traffic: nothing that a
# child protects leaves in clear, and all else goes on. There is a way for packets in clear.
# flush: while our daemon runs. killed: after it was killed, until it is there again, and from then on until the peer answers, although
# the child has no `hold`; a stop then leaves nothing on the host.
# if-id: a child of an XFRM interface, inside the selectors of a wider child, is not cut off, and neither is the wider one. mark: packets without the child's mark leave as before. pass: an exemption
# inside the protected range. nat: a network that is translated into the protected range, and a host in it that sends from the
# port of IKE. host: all traffic of a host, with the ESP of the tunnel in the selectors, and IP-TFS, whose ESP packets are new
# ones; and ESP in UDP of another program, on a port of its own.
# Faults: in `chains::hooks` (crates/esp), leave the jumps to LEAVE out (flush, killed, mark, pass, host), or that of `after`
# alone, or jump to OWN_SOURCE in `after` (nat); in `Server::begin`, set `due` to None (killed); in `kernel::blocked`
# (crates/ike-daemon), leave out what the second line has left (killed); in `changes`, take policies of XFRM interfaces, or in
# `chains::passes`, let no device pass (if-id); in `Shape::fields`, leave the mark out (mark); in `verdict`, let nothing pass (pass); in `chains::write`, let
# no ESP pass, or no UDP with the note (host).
# CASES: flush killed if-id pass nat host
# MORE: mark
# PLANE: kernel
# KERNELS: travel
CLEARTEXT=yes
net_direct
site
net us start_action start
ip -n left route add default via $THEM_OWN src $LEFT_IN
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
PINGS=(ping -q -n -i 0.01 -I $LEFT_IN $RIGHT_IN)
FROM=us TRIED=$RIGHT_IN
CLEAR="icmp and dst host $RIGHT_IN"
CHILDREN=1
case $CASE in
killed)
    net us hold no
    ike us keyingtries 0
    conf us charon.retransmit_timeout 0.5
    conf us charon.retransmit_base 1.0
    ;;
if-id)
    net us if_id_in 42
    net us if_id_out 42
    ip -n left link add ipsec0 type xfrm dev l0 if_id 42
    ip -n left link set ipsec0 up
    # Policies without a number do not hold on it.
    in_ns us sysctl -qw net.ipv4.conf.ipsec0.disable_xfrm=1
    conf us charon.install_routes no
    for option in 'start_action start' "local_ts $LEFT_NET" 'remote_ts 10.0.0.0/8' 'esp_proposals aes256gcm16-x25519'; do
        # shellcheck disable=SC2086
        conf us connections.site.children.wide.${option}
    done
    net them local_ts 10.0.0.0/8
    ip -n right addr add 10.4.0.1/32 dev lo
    CHILDREN=2
    CLEAR="icmp and (dst host $RIGHT_IN or dst host 10.4.0.1)"
    ;;
mark)
    net us mark_out 42
    # Told apart by its length from what has no mark.
    PINGS=(ping -q -n -i 0.01 -s 100 -m 42 -I $LEFT_IN $RIGHT_IN)
    CLEAR="$CLEAR and ip[2:2] = 128"
    ;;
pass)
    for option in 'mode pass' 'start_action trap' "local_ts $LEFT_NET" 'remote_ts 10.2.9.0/24'; do
        # shellcheck disable=SC2086
        conf us connections.site.children.dmz.${option}
    done
    ;;
nat)
    new_ns lan
    join left lan0 10.7.0.1/16 lan lan1 10.7.0.77/16
    ip -n lan route add default via 10.7.0.1
    in_ns us sysctl -qw net.ipv4.ip_forward=1
    for at in all default l0 lan0; do in_ns us sysctl -qw net.ipv4.conf.$at.rp_filter=0; done
    in_ns us nft -f - <<<'table ip site { chain nat { type nat hook postrouting priority srcnat; ip saddr 10.7.0.0/16 ip daddr 10.2.0.0/16 snat to 10.1.0.1; }; }'
    FROM=lan PINGS=(ping -q -n -i 0.01 $RIGHT_IN)
    CLEAR="dst host $RIGHT_IN"
    from_ike_port() {
        in_ns lan perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(Proto => "udp", LocalPort => 4500, PeerAddr => $ARGV[0],
            PeerPort => 7) or die; for (1 .. $ARGV[1]) { $s->send("test"); select undef, undef, undef, 0.01 }' $RIGHT_IN "$1"
    }
    ;;
host)
    conf us charon.plugins.bypass-lan.load no
    net both mode iptfs
    net us local_ts dynamic
    net us remote_ts 0.0.0.0/0
    net them local_ts 0.0.0.0/0
    net them remote_ts dynamic
    ip -n right route del $LEFT_NET
    ip -n left route replace default via $THEM_OWN
    PINGS=(ping -q -n -i 0.02 -s 3000 $RIGHT_IN)
    # Fragments as well.
    CLEAR="dst host $RIGHT_IN"
    ;;
esac
reached() { in_ns $FROM "${PINGS[@]}" -c 1 -W 1 >/dev/null 2>&1; }
clear_so_far() { wire "$CLEAR"; }
# The test can fail: without a tunnel they go in clear.
[ "$CASE" = if-id ] || reached || fail "no way in clear"
if [ "$CASE" = if-id ]; then
    in_ns us "${PINGS[@]}" -c 1 -W 1 >/dev/null 2>&1 || fail "no way in clear"
    ip -n left route add $RIGHT_NET dev ipsec0 src $LEFT_IN
fi
if [ "$CASE" = nat ]; then
    from_ike_port 3
    expect_wire "udp and src port 4500 and dst host $RIGHT_IN"
fi
expect_wire "$CLEAR"
start
PATIENCE=30
installed $CHILDREN
wait_for 5 reached || fail "not through the tunnel"
wide_reached() { in_ns us ping -q -n -c 1 -W 1 -I $LEFT_IN 10.4.0.1 >/dev/null 2>&1; }
if [ "$CASE" = if-id ]; then
    wait_for 5 wide_reached || fail "not through the tunnel of the wider child"
    in_ns us ping -q -n -i 0.01 -I $LEFT_IN 10.4.0.1 >/dev/null 2>&1 &
    wide=$!
fi
# tcpdump writes a packet down up to a second later.
written() { pause 1.5; }
written
clear=$(clear_so_far)
in_ns $FROM "${PINGS[@]}" >/dev/null 2>&1 &
pinging=$!
[ "$CASE" != nat ] || from_ike_port 1000 &
pause 0.5
table() { in_ns us nft list table inet ike-xfrm; }
if [ "$CASE" = host ]; then
    ip -n left addr add 10.8.0.1/32 dev lo
    other=(src $US_OWN dst $THEM_OWN proto esp)
    ip -n left xfrm state add "${other[@]}" spi 0x4600 reqid 46 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x00112233445566778899aabbccddeeff00112233 128 encap espinudp 4600 4600 0.0.0.0
    ip -n left xfrm policy add src 10.8.0.1 dst 10.9.0.1 dir out priority 1 tmpl "${other[@]}" reqid 46 mode tunnel
    in_ns us ping -q -n -c 3 -i 0.05 -W 0.1 -I 10.8.0.1 10.9.0.1 >/dev/null 2>&1 || true
    written
    [ "$(wire 'udp and src port 4600')" = 3 ] || fail "ESP in UDP of another program does not leave: $(wire 'udp and src port 4600') of 3"
    ip -n left xfrm state delete "${other[@]}" spi 0x4600
fi
flushes() {
    local n
    for n in $(seq 10); do
        ip -n left xfrm policy flush
        pause 0.1
    done
}
none_in_clear() {
    written
    [ "$(clear_so_far)" = "$clear" ] || fail "$(($(clear_so_far) - clear)) packets in clear: $1"
}
flushes
none_in_clear "policies flushed"
case $CASE in
flush)
    dropped() { table | sed -n '/leave-clear/,/}/p' | grep -q -E 'packets [1-9][0-9]* .*drop'; }
    dropped || fail "nothing was dropped: nothing was tested"
    ;;
killed)
    kill_hard us
    flushes
    pause 2
    none_in_clear "killed, and policies flushed"
    rm -f "$STATE"/us.{pid,killed,ctl}
    in_ns them nft -f - <<<'table inet deaf { chain in { type filter hook input priority -400; udp dport { 500, 4500 } drop; meta l4proto esp drop; }; }'
    start us
    pause 13
    # Now the table of the earlier run is not there any more.
    flushes
    pause 6
    none_in_clear "started again, and the peer is silent"
    in_ns them nft delete table inet deaf
    installed
    none_in_clear "started again"
    flushes
    none_in_clear "started again, and policies flushed"
    owned() { table | grep -q 'flags owner'; }
    wait_for 15 owned || fail "the table of the run that was killed stays"
    flushes
    none_in_clear "policies flushed with a new table"
    ;;
mark)
    other="icmp and dst host $RIGHT_IN and ip[2:2] = 84"
    before=$(wire "$other")
    in_ns us ping -q -n -c 3 -i 0.1 -W 0.2 -I $LEFT_IN $RIGHT_IN >/dev/null 2>&1 || true
    written
    [ "$(wire "$other")" -ge $((before + 3)) ] || fail "packets without the mark do not leave"
    ;;
pass)
    for round in put-back removed; do
        [ $round = put-back ] || ip -n left xfrm policy flush
        before=$(wire 'icmp and dst host 10.2.9.1')
        in_ns us ping -q -n -c 3 -i 0.05 -W 0.2 -I $LEFT_IN 10.2.9.1 >/dev/null 2>&1 || true
        written
        [ "$(wire 'icmp and dst host 10.2.9.1')" -ge $((before + 3)) ] || fail "the exemption does not hold: $round"
    done
    ;;
esac
# Policies are back, and so is the traffic; IKE goes on meanwhile.
wait_for 10 reached || fail "no traffic after that"
[ "$CASE" != if-id ] || wait_for 10 wide_reached || fail "no traffic of the wider child after that"
rekey us ike
[ "$CASE" = if-id ] || rekey us child
wait_for 10 reached || fail "no traffic after rekeys"
kill $pinging ${wide:-}
none_in_clear "rekeyed"
stop us
wait_for 10 dead us || fail "us does not end"
! table >/dev/null 2>&1 || fail "a stop leaves the table"
kernel_clean us
[ -z "$(ip -n left route show table 7296 2>/dev/null)" ] || fail "a stop leaves routes"
! { ip -n left rule; ip -n left -6 rule; } | grep -q -E 'lookup 7296|proto 122' || fail "a stop leaves rules"
