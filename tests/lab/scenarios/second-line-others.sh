# ESP in the kernel, and what others have on the host: nothing that a child protects leaves in clear, and the second line stands in
# nobody's way. There is a way for packets in clear.
# class: all packets get a traffic class, those of a network behind this host as well, and all traffic of that network and of this
# host is protected, ESP in the selectors. offload: the same with a NIC that does all of ESP, and sees the
# class. vrf: what is protected leaves through a VRF with a queue of its own; a child of a VRF has no second line, and the log says
# so. foreign: another program's policy lets it leave, and was there first. bare: the same, with a child that has neither a trap nor
# `hold`. owned: another process owns the table. plane: a run with ESP in user space, after one with ESP in the kernel was killed.
# Faults: in `chains::write` (crates/esp), leave the rules `has_own_source` out (class), or jump to no BY_DEVICE (offload); in
# `chains::hooks`, note also what has a class (offload), or leave the rules for a VRF out, or in `SecondLine::follow` (crates/ike-daemon) look at no interface (vrf); in `Policies::install` (crates/xfrm), bar nothing (foreign), or in `Driver::event` (crates/ike-tokio), tell the shunts nothing (bare); in
# `KernelPlane::apply` (crates/ike-daemon), ignore the error of `SecondLine::remove`, or in `kernel::remove_all`, remove no second
# line, or in `end` of run.rs, return Ok (owned); in `plane::start`, do not make way (plane).
# CASES: class offload vrf foreign bare owned plane
# PLANE: kernel
# KERNELS: travel
CLEARTEXT=yes
case $CASE in offload) net_netdevsim packet ;; *) net_direct ;; esac
site
net us start_action start
ip -n left route add default via $THEM_OWN src $LEFT_IN
ip -n right route add $LEFT_NET via $US_OWN src $RIGHT_IN
PINGS=(ping -q -n -i 0.01 -I $LEFT_IN $RIGHT_IN)
FROM=us
CLEAR="icmp and dst host $RIGHT_IN"
table() { in_ns us nft list table inet ike-xfrm; }
reached() { in_ns $FROM "${PINGS[@]}" -c 1 -W 1 >/dev/null 2>&1; }
# tcpdump writes a packet down up to a second later.
clear_now() {
    pause 1.2
    wire "$CLEAR"
}
class() {
    in_ns us nft -f - <<'NFT'
table inet site {
    chain out { type route hook output priority mangle; meta priority set "1:10"; }
    chain post { type filter hook postrouting priority mangle; meta priority set "1:10"; }
}
NFT
}
sees_class() {
    local watched
    in_ns us nft -f - <<'NFT'
table netdev watch {
    chain out { type filter hook egress device l0 priority 0; ip protocol icmp meta priority "1:10" counter accept; ip protocol icmp counter; }
}
NFT
    in_ns us "${PINGS[@]}" -c 20 >/dev/null 2>&1 || fail "packets lost"
    watched=$(in_ns us nft list table netdev watch)
    grep -q -E '1:10 counter packets [1-9]' <<<"$watched" || fail "the device sees no packets of the class: $watched"
    grep -q -E 'icmp counter packets 0' <<<"$watched" || fail "the device sees another class: $watched"
}
PATIENCE=30
case $CASE in
class)
    new_ns lan
    join left lan0 10.7.0.1/16 lan lan1 10.7.0.77/16
    ip -n lan route add default via 10.7.0.1
    ip -n right route add 10.7.0.0/16 via $US_OWN
    in_ns us sysctl -qw net.ipv4.ip_forward=1
    conf us charon.plugins.bypass-lan.load no
    # A route for all traffic would take that of the network behind this host as well.
    conf us charon.install_routes no
    net us local_ts "10.7.0.0/16,$US_OWN/32"
    net us remote_ts 0.0.0.0/0
    net them local_ts 0.0.0.0/0
    net them remote_ts "10.7.0.0/16,$US_OWN/32"
    FROM=lan PINGS=(ping -q -n -i 0.01 $RIGHT_IN)
    class
    ;;
offload)
    net both esp_proposals aes128gcm16-x25519
    net both hw_offload packet
    class
    ;;
vrf)
    conf us charon.install_routes no
    ip -n left link add red type vrf table 10
    ip -n left link set red up
    ip -n left link add v0 type dummy
    ip -n left link set v0 master red
    ip -n left link set v0 up
    # What leaves by an interface of the VRF goes to the device of the VRF, and from there by the table of the VRF.
    ip -n left route add $RIGHT_NET dev v0 src $LEFT_IN
    ip -n left route add $RIGHT_NET via $THEM_OWN dev l0 onlink table 10
    in_ns us tc qdisc add dev red root tbf rate 1gbit burst 1mbit latency 50ms
    for option in 'start_action trap' 'interface red' "local_ts $LEFT_NET" 'remote_ts 10.4.0.0/16'; do
        # shellcheck disable=SC2086
        conf us connections.site.children.red.${option}
    done
    ;;
foreign | bare)
    net us start_action trap
    ip -n left xfrm policy add src $LEFT_NET dst $RIGHT_NET dir out priority 1 action allow
    if [ "$CASE" = bare ]; then
        for option in 'start_action start' 'hold no' "local_ts $LEFT_NET" 'remote_ts 10.4.0.0/16' 'esp_proposals aes256gcm16-x25519'; do
            # shellcheck disable=SC2086
            conf us connections.site.children.bare.${option}
        done
        net them local_ts "$RIGHT_NET,10.4.0.0/16"
        ip -n left xfrm policy add src $LEFT_NET dst 10.4.0.0/16 dir out priority 1 action allow
        ip -n right addr add 10.4.0.1/32 dev lo
        CLEAR="icmp and (dst host $RIGHT_IN or dst host 10.4.0.1)"
    fi
    ;;
owned)
    mkfifo "$STATE/nft"
    in_ns us nft -i <"$STATE/nft" >/dev/null 2>&1 &
    owner=$!
    exec 7>"$STATE/nft"
    echo 'add table inet ike-xfrm { flags owner; }' >&7
    owned() { in_ns us nft list tables | grep -q ike-xfrm; }
    wait_for 5 owned || fail "no table of another process"
    ;;
esac
# The test can fail: without a tunnel they go in clear.
reached || fail "no way in clear"
expect_wire "$CLEAR"
case $CASE in
class | offload | vrf)
    start
    installed
    wait_for 5 reached || fail "not through the tunnel"
    ;;
esac
case $CASE in
class | vrf)
    table >/dev/null || fail "no second line"
    [ "$CASE" != vrf ] || expect_log us 'interface red of a child is a VRF'
    clear=$(clear_now)
    in_ns $FROM "${PINGS[@]}" -c 20 >"$OUT/ping.log" 2>&1 || true
    grep -q ' 0% packet loss' "$OUT/ping.log" || fail "packets lost: $(cat "$OUT/ping.log")"
    in_ns $FROM "${PINGS[@]}" >/dev/null 2>&1 &
    pinging=$!
    for n in 1 2 3; do
        ip -n left xfrm policy flush
        pause 0.2
    done
    [ "$(clear_now)" = "$clear" ] || fail "packets in clear: policies flushed"
    wait_for 10 reached || fail "no traffic after that"
    kill $pinging
    ;;
offload)
    in_kernel us policy "offload parameters: dev l0 mode packet" || fail "no policy in the NIC"
    table | grep -q 'jump by-device' || fail "no second line"
    sees_class
    ;;
foreign | bare)
    start
    expect_log us 'another program has a policy for packets'
    dropped() { table | sed -n '/leave-clear/,/}/p' | grep -q drop; }
    has_value() { table | grep -q "10.1.0.0 . $1"; }
    wait_for 5 dropped || fail "no second line"
    if [ "$CASE" = bare ]; then
        expect_log us 'the data plane has refused the child'
        wait_for 5 has_value 10.4.0.0 || fail "no second line for a child without a trap"
    fi
    clear=$(clear_now)
    [ "$CASE" = foreign ] || ! in_ns us ping -q -n -i 0.01 -I $LEFT_IN 10.4.0.1 -c 20 -W 0.2 >/dev/null 2>&1 || fail "it is answered"
    ! in_ns us "${PINGS[@]}" -c 20 -W 0.2 >/dev/null 2>&1 || fail "it is answered"
    [ "$(clear_now)" = "$clear" ] || fail "packets in clear by the policy of another program"
    ip -n left xfrm policy delete src $LEFT_NET dst $RIGHT_NET dir out
    [ "$CASE" = foreign ] || ip -n left xfrm policy delete src $LEFT_NET dst 10.4.0.0/16 dir out
    wait_for "$PATIENCE" reached || fail "no traffic once that policy is gone"
    [ "$(clear_now)" = "$clear" ] || fail "packets in clear once that policy is gone"
    ;;
owned)
    start
    installed
    wait_for 5 reached || fail "not through the tunnel"
    stop us
    wait_for 10 dead us || fail "us does not end"
    status=0
    wait "$(cat "$STATE/us.pid")" || status=$?
    [ $status = 1 ] || fail "the stop has status $status"
    log_has us 'ike-daemon unblock' || fail "the stop does not tell how to remove what stays"
    log_has us 'table ike-xfrm not removed' || fail "the stop does not tell that the table stays"
    in_ns us $DAEMON --control "$STATE/none.ctl" unblock >"$OUT/unblock.log" 2>&1 && fail "unblock tells nothing"
    grep -q 'table ike-xfrm not removed' "$OUT/unblock.log" || fail "unblock: $(cat "$OUT/unblock.log")"
    kill $owner
    exec 7>&-
    not_owned() { ! owned; }
    wait_for 5 not_owned || fail "the table of another process stays"
    # Of a run before.
    in_ns us nft add table inet ike-xfrm
    in_ns us $DAEMON --control "$STATE/none.ctl" unblock >"$OUT/unblock.log" 2>&1 || fail "unblock: $(cat "$OUT/unblock.log")"
    grep -q '^1 removed' "$OUT/unblock.log" || fail "not counted: $(cat "$OUT/unblock.log")"
    ! table >/dev/null 2>&1 || fail "unblock leaves the table"
    ;;
plane)
    start
    installed
    wait_for 5 reached || fail "not through the tunnel"
    kill_hard us
    wait_for 10 dead us || fail "us does not end"
    ip -n left xfrm policy flush
    ip -n left xfrm state flush
    table >/dev/null || fail "the table does not outlive its process"
    rm -f "$STATE"/us.{pid,killed,ctl}
    DATA_PLANE=userspace
    start us
    installed
    wait_for 10 reached || fail "ESP in user space carries nothing"
    ! table >/dev/null 2>&1 || fail "the table stays"
    DATA_PLANE=kernel
    ;;
esac
