# What a side's kernel has: states, policies, sequence numbers.
# shellcheck shell=bash

# modules NAME…: a kernel without modules has all of them built in.
modules() { [ ! -d "/lib/modules/$(uname -r)" ] || modprobe -a "$@"; }

# kernel_states SIDE: number of SAs in that side's kernel.
kernel_states() { ip -n "$(netns "$1")" xfrm state list | grep -c '^src' || true; }

# states SIDE N: there are as many, in time.
has_states() { [ "$(kernel_states "$1")" = "$2" ]; }
states() {
    wait_for "$PATIENCE" has_states "$1" "$2" && return
    ip -n "$(netns "$1")" xfrm state
    fail "$1 has not $2 states"
}

# kernel_policies SIDE: those that are not of a socket, and not IKE's own in a NIC.
kernel_policies() {
    ip -n "$(netns "$1")" xfrm policy | awk '/^src/ { head = / proto udp [sd]port (500|4500) dev / ? "" : $0; next }
        head && !/^\tsocket/ { print head; print; n++ } { head = "" }'
}

# in_kernel SIDE state|policy REGEX
in_kernel() { ip -n "$(netns "$1")" xfrm "$2" | grep -q -E -- "$3"; }
expect_kernel() {
    wait_for "$PATIENCE" in_kernel "$@" && return
    ip -n "$(netns "$1")" xfrm "$2"
    fail "$1 has no $2 like: $3"
}

# kernel_clean SIDE…: no state and no policy is left; of a program that ended
# no route or rule either.
kernel_clean() {
    local side
    for side; do
        wait_for "$PATIENCE" nothing_left "$side" && continue
        left_behind "$side"
        fail "$side left something in its kernel"
    done
}
nothing_left() { [ -z "$(left_behind "$1")" ]; }
left_behind() {
    local ns table
    ns=$(netns "$1")
    ip -n "$ns" xfrm state
    kernel_policies "$1"
    if dead "$1"; then
        ip -n "$ns" xfrm policy
        # Our table, and strongSwan's.
        for table in 7296 220; do
            ip -n "$ns" route show table $table 2>/dev/null
            ip -n "$ns" -6 route show table $table 2>/dev/null
            ip -n "$ns" rule | grep "lookup $table"
            ip -n "$ns" -6 rule | grep "lookup $table"
        done
    fi
    true
}

# replay_from N: both ends go on counting from N, in both directions of the one child.
replay_from() {
    local in out
    in=$(sas us | jq -r '.[0]."child-sas"[0]."spi-in"') out=$(sas us | jq -r '.[0]."child-sas"[0]."spi-out"')
    counter us "$THEM_SEEN" "$out" out "$1"
    counter them "$THEM_OWN" "$out" in "$1"
    counter them "$US_SEEN" "$in" out "$1"
    counter us "$US_OWN" "$in" in "$1"
    note "counters at $1"
}

# counter SIDE DESTINATION SPI in|out N
counter() { in_ns "$1" perl /lab/guest/replay.pl "$2" "$3" "$4" "$5" || fail "the counter of $1 cannot be set"; }

# flow_start: UDP and TCP by iperf3, both ways, in the background, until flow_end.
flow_start() {
    local port
    for port in 5201 5202; do
        in_ns them iperf3 -s -1 -p $port -B "$RIGHT_IN" >"$OUT/iperf.$port.log" 2>&1 &
        wait_for 10 serving $port || fail "no iperf3 server"
    done
    flow_client udp -p 5201 -u -b 1M -l 500
    flow_client tcp -p 5202 -b 4M
    wait_for 10 test -s "$OUT/flow.tcp.log" -a -s "$OUT/flow.udp.log"
}

# They end by themselves: iperf3 gives no figures if it is told to end.
FLOW_SECONDS=12
flow_client() {
    local name=$1
    shift
    rm -f "$STATE/flow.$name.done"
    {
        in_ns us iperf3 -c "$RIGHT_IN" -B "$LEFT_IN" --bidir -t $FLOW_SECONDS --json-stream "$@" || true
        : >"$STATE/flow.$name.done"
    } >"$OUT/flow.$name.log" 2>&1 &
}
serving() { in_ns them ss -Hltn "sport = :$1" | grep -q .; }

# flow_end: no datagram was lost but for want of room in a receiver's socket, which
# a busy machine has to answer for, no packet failed in the kernels' IPsec, and
# the flows went on to the end. That of strongSwan's UDP need not: iperf3 sends no
# more once its kernel has refused one datagram, which strongSwan's may while it
# takes an outbound SA away. Its TCP and pings show that the tunnel stands.
flow_end() {
    local name side sums full least=1001
    for name in udp tcp; do
        wait_for $((FLOW_SECONDS + 20)) test -e "$STATE/flow.$name.done" || fail "the $name flow does not end"
    done
    [ "$(kind them)" = daemon ] || least=1
    full=$(for side in us them; do in_ns $side nstat -a -s -z UdpRcvbufErrors; done | awk '/^Udp/ { n += $2 } END { print n + 0 }')
    sums=$(jq -c 'select(.event == "end").data | [.sum, .sum_bidir_reverse] | map({packets, lost_packets})' "$OUT/flow.udp.log")
    note "udp: $sums, $full for full sockets"
    jq -e "(map(.lost_packets) | add) <= $full" <<<"$sums" >/dev/null || fail "datagrams were lost"
    if ! jq -e 'length == 2 and all(.packets > 1000)' <<<"$sums" >/dev/null; then
        for side in us them; do note "$side:" "$(in_ns $side awk '$2 > 0 { printf "%s %s ", $1, $2 }' /proc/net/xfrm_stat)"; done
        jq -e "length == 2 and .[0].packets > 1000 and .[1].packets >= $least" <<<"$sums" >/dev/null || fail "the UDP flow stopped"
    fi
    sums=$(jq -c 'select(.event == "end").data | [.sum_received, .sum_received_bidir_reverse] | map({bytes, seconds})' "$OUT/flow.tcp.log")
    note "tcp: $sums"
    jq -e "length == 2 and all(.bytes > 1000000 and .seconds >= $FLOW_SECONDS - 1)" <<<"$sums" >/dev/null || fail "the TCP flow stopped"
    no_xfrm_errors
}

# no_xfrm_errors: our kernel has not dropped a packet of IPsec's so far. (That of
# strongSwan does at times: it takes the outbound SA away while packets are in it.)
no_xfrm_errors() {
    local side
    for side in us them; do
        [ "$(kind $side)" = daemon ] || continue
        # shellcheck disable=SC2016
        in_ns $side awk '$2 > 0 { print; n++ } END { exit n > 0 }' /proc/net/xfrm_stat || fail "the kernel of $side dropped packets"
    done
}
