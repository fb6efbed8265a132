# Paths with small links. The cases differ in which link is small, IPv4 and IPv6 outside and inside, the encapsulation of ESP, the
# mode, and whether the routers send ICMP and carry fragments. From one second after its first packet, a stream has at least 90 % of
# the rate of a stream whose segment size is set by hand. Datagrams that may be divided arrive.
# CASES: !path-cover.py
# MORE: !path-cover.py all
# KERNEL_ARGS: time-travel=inf-cpu
# TIMEOUT: 150
IFS=- read -r link family encap mode icmp frags <<<"$CASE"
path=1400
case $link in mid*) path=${link#mid} ;; esac
case $link in mid*) net_narrow "$path" ;; *) net_narrow 1500 ;; esac
routed_ipv6
# small NS IF NS IF: the link between these has the size of the path.
small() {
    ip -n "$1" link set "$2" mtu $path
    ip -n "$3" link set "$4" mtu $path
}
case $link in own | both) small left l0 r1 in0 ;; esac
case $link in both) small right r0 r2 in0 ;; esac
if [ "$icmp" = silent ]; then
    for router in r1 r2; do ip -n $router rule add pref 10 ipproto icmp blackhole; done
    without_icmpv6
fi
[ "$frags" = frags ] || without_fragments
. /lab/guest/rate.sh
slow_link

inside=(${LEFT_IN} ${RIGHT_IN}) ip=20 outside=20
case $family in *in6) US_OWN=2001:db8::1 US_SEEN=2001:db8::1 THEM_OWN=2001:db8:2::2 THEM_SEEN=2001:db8:2::2 outside=40 ;; esac
case $family in 6in*) inside=($LEFT_IN6 $RIGHT_IN6) ip=40 ;; esac
ours_too
site
if [ $mode = transport ]; then
    length=32
    [ $outside = 20 ] || length=128
    transport
    net us local_ts "$US_OWN/$length"
    net us remote_ts "$THEM_OWN/$length"
    net them local_ts "$THEM_OWN/$length"
    net them remote_ts "$US_OWN/$length"
    inside=("$US_OWN" "$THEM_OWN")
elif [ $ip = 40 ]; then
    net us local_ts $LEFT_NET6
    net us remote_ts $RIGHT_NET6
    net them local_ts $RIGHT_NET6
    net them remote_ts $LEFT_NET6
fi
case $encap in
plain) ike both encap false ;;
udp) ike us encap true ;;
tcp)
    conf them charon.listen_tcp true
    ike us enable_tcp yes
    ike both separate_transports no
    ;;
esac
# They start while the daemons do.
sink "${inside[1]}"
# shellcheck disable=SC2016
in_ns them timeout 140 perl -e "$SOCKETS"'
    my $socket = from(SOCK_DGRAM, $ARGV[0], 7778);
    print "listening\n";
    while (1) { recv $socket, my $data, 65535, 0; print length $data, "\n" }' "${inside[1]}" >"$OUT/udp.sink" 2>&1 &
start
up us
installed
listening tcp
listening udp

# What fits the path in one packet of ESP: SPI, number, IV, padding to 4 octets, two octets and ICV are 34 and more.
udp=0
[ $encap != udp ] || udp=8
room=$((path - outside - udp - 34))
room=$((room - (room + 2) % 4))
case $encap-$mode in
tcp-*) segment=1200 ;;
*-tunnel) segment=$((room - ip - 20)) ;;
*) segment=$((room - 20)) ;;
esac

# round: $share is what a stream whose path is not known has, in percent of one whose segments fit by hand.
rounds=0
round() {
    rounds=$((rounds + 1))
    stream "${inside[@]}" 0 $segment
    fast_enough "${octets[1]}"
    share=$((octets[0] * 100 / octets[1]))
    note "round $rounds: $((octets[0] / 2000)) kB/s, with the size by hand $((octets[1] / 2000)) kB/s, $share %"
}
# afresh: a daemon that has not seen the path.
afresh() {
    local ns
    # The Delete does not wait behind what the stream has left in the queue of the slow link.
    sleep 1
    stop us
    gone them
    wait_for 20 daemon_ended us || fail "the daemon does not end"
    rm -f "$STATE"/us.{pid,killed,ctl}
    for ns in left right; do
        ip -n $ns route flush cache
        ip -6 -n $ns route flush cache
    done
    start us
    up us
    installed
}
# One round is enough if it is good. If not, the median of three counts, for a busy machine takes time from either stream.
round
shares=$share
if [ "$share" -lt 90 ]; then
    for _ in 1 2; do
        afresh
        round
        shares+=" $share"
    done
    # shellcheck disable=SC2086
    share=$(median $shares)
fi
note "rate: $share % ($shares)"
[ "$share" -ge 90 ] || fail "$share % of the rate with the size by hand"

# What may be divided arrives. In transport mode ESP has the whole datagram (RFC 4303 §3.1.1), which is then divided outside.
# Inner IPv6 of 1,280 octets and less counts as a packet that is not divided inside (RFC 8200 §5).
lengths=(1200 4000)
if [ $frags = nofrags ] && [ $encap != tcp ]; then
    if [ $ip = 40 ] && [ $path -lt 1364 ]; then
        lengths=()
    elif [ $mode = transport ]; then
        lengths=()
        [ $((1200 + 8)) -gt $room ] || lengths=(1200)
    fi
fi
# 10 is IP_MTU_DISCOVER, 23 is IPV6_MTU_DISCOVER, and 0 turns path MTU discovery off.
# shellcheck disable=SC2016
[ ${#lengths[@]} = 0 ] || in_ns us perl -e "$SOCKETS"'
    my ($local, $remote, @lengths) = @ARGV;
    my $socket = from(SOCK_DGRAM, $local, 0);
    setsockopt $socket, $six ? 41 : 0, $six ? 23 : 10, pack "i", 0 or die $!;
    for (@lengths) { send $socket, "x" x $_, 0, end($remote, 7778) or die "$_ octets: $!" }
    ' "${inside[@]}" "${lengths[@]}" || fail "a datagram cannot be sent"
for length in "${lengths[@]}"; do
    wait_for 5 says "$OUT/udp.sink" "$length" || fail "a datagram of $length octets is lost"
done
note "datagrams: ${lengths[*]:-none}"
