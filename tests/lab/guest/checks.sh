# Traffic, counters, and the checks every scenario ends with.
# shellcheck shell=bash

# ping_from SIDE [FROM TO]: three packets through the tunnel.
ping_from() {
    local side=$1 from=${2:-} to=${3:-}
    if [ -z "$from" ]; then
        case $side in
        us) from=$LEFT_IN to=$RIGHT_IN ;;
        them) from=$RIGHT_IN to=$LEFT_IN ;;
        esac
    fi
    in_ns "$side" ping -q -n -c 3 -i 0.1 -W 3 -I "$from" "$to" >"$STATE/ping.out" 2>&1 || {
        cat "$STATE/ping.out"
        fail "no ping from $side: $from -> $to"
    }
}

# ping_both [LEFT RIGHT]
ping_both() {
    ping_from us "${1:-$LEFT_IN}" "${2:-$RIGHT_IN}"
    ping_from them "${2:-$RIGHT_IN}" "${1:-$LEFT_IN}"
    note "ping both ways"
}

ping_quietly() {
    case $1 in
    us) in_ns us ping -q -n -c 1 -W 1 -I "$LEFT_IN" "$RIGHT_IN" ;;
    them) in_ns them ping -q -n -c 1 -W 1 -I "$RIGHT_IN" "$LEFT_IN" ;;
    esac >/dev/null 2>&1
}

no_ping() {
    ! in_ns us ping -q -n -c 2 -i 0.2 -W 1 -I "$LEFT_IN" "$RIGHT_IN" >/dev/null 2>&1 || fail "ping passed without an SA"
}

# ping_start: packets every 50 ms each way in the background, until ping_end.
# They go in rounds of a fixed count, each of which waits long for every answer:
# ping itself gives up after two round trips, which a busy guest can exceed.
ping_start() {
    local side
    : >"$STATE/pinging"
    refused_by_peer >"$STATE/refused"
    ping_rounds us "$LEFT_IN" "$RIGHT_IN" &
    ping_rounds them "$RIGHT_IN" "$LEFT_IN" &
    for side in us them; do
        wait_for 5 grep -q ' bytes, ' "$OUT/ping.$side.log" || fail "no answer to the ping of $side"
    done
}

ping_rounds() {
    while [ -e "$STATE/pinging" ]; do
        in_ns "$1" fping -c 20 -p 50 -t 5000 -S "$2" "$3" || true
    done >"$OUT/ping.$1.log" 2>&1
    : >"$STATE/ping.$1.done"
}

# Packets that the kernel of the peer refused for want of an SA. charon takes the outbound SA of a rekeyed child away a
# moment before it installs the next. OpenIKED answers, or deletes the old child, before it has loaded the new one: both
# directions have no SA for as long as that takes.
refused_by_peer() {
    case $(kind them) in
    strongswan) in_ns them awk '/^XfrmOut/ { n += $2 } END { print n + 0 }' /proc/net/xfrm_stat ;;
    openiked) in_ns them awk '/^Xfrm(Out|InNoStates|InStateInvalid|AcquireError)/ { n += $2 } END { print n + 0 }' /proc/net/xfrm_stat ;;
    *) echo 0 ;;
    esac
}

# ping_end [N]: nothing sent since ping_start may have been lost or doubled, but for
# what never left the peer (or at most N more lost, where it is known to drop them).
ping_end() {
    local side sent answered refused
    rm "$STATE/pinging"
    for side in us them; do
        wait_for 15 test -e "$STATE/ping.$side.done" || fail "the ping of $side does not end"
    done
    refused=$(($(refused_by_peer) - $(cat "$STATE/refused")))
    [ "$refused" = 0 ] || note "the kernel of them refused $refused packets"
    # Twice 0.3 s. More would hide packets for an SA that the peer has rightly deleted.
    [ "$(kind them)" != openiked ] || [ "$refused" -le 12 ] || fail "the kernel of them refused $refused packets"
    for side in us them; do
        sent=$(sed -n 's|.*xmt/rcv/%loss = \([0-9]*\)/.*|\1|p' "$OUT/ping.$side.log" | paste -sd+ | add)
        answered=$(sed -n 's|.*xmt/rcv/%loss = [0-9]*/\([0-9]*\)/.*|\1|p' "$OUT/ping.$side.log" | paste -sd+ | add)
        note "$side: $answered of $sent pings answered"
        [ "$sent" -gt 0 ] || fail "$side sent no ping"
        [ $((sent - answered)) -le $((${1:-0} + refused)) ] || { note_drops && fail "ping of $side lost packets"; }
        ! grep -q -i -E 'duplicate|ICMP|error' "$OUT/ping.$side.log" || fail "ping of $side saw duplicates or errors"
        rm "$STATE/ping.$side.done"
    done
}

# note_drops: what each kernel dropped, in IPsec and above, for the reader of a log about lost packets.
note_drops() {
    local side
    for side in us them; do
        note "$side dropped:" "$(in_ns $side awk '$2 > 0 { printf "%s %s ", $1, $2 }' /proc/net/xfrm_stat)" \
            "$(in_ns $side nstat -a -s | awk '/Discard|Error|Drop|NoRoutes/ { printf "%s %s ", $1, $2 }')"
    done
}

add() { echo $(($(cat))); }

# counted [N]: both sides count at least N packets in and out of their ESP SAs.
counted() {
    local n=${1:-1} side
    for side in us them; do
        expect "$side" "[.[].\"child-sas\"[]] | length > 0 and all(.\"packets-in\" >= $n and .\"packets-out\" >= $n)"
    done
}

# wire EXPRESSION: packets that went over the wire so far and match.
wire() {
    local side
    # The capture gets a packet a moment after the wire.
    pause 0.1
    for side in us them; do tcpdump -n -r "$OUT/wire.$side.pcap" "$@" 2>/dev/null; done | wc -l
}

seen_on_wire() { [ "$(wire "$1")" -gt 0 ]; }

expect_wire() { wait_for 5 seen_on_wire "$1" || fail "nothing on the wire matches: $1"; }

# ports_seen: the outer ports the NAT has given to IKE and ESP traffic.
ports_seen() { in_ns nat conntrack -L -p udp 2>/dev/null | sed -n 's/.* dport=\([0-9]*\).*/\1/p' | sort -u | tr '\n' ' '; }

# finish NAME: both programs and their namespaces are gone; the logs are kept by that name.
finish() {
    local side ns
    for side in us them; do
        kill -TERM "$(cat "$STATE/$side.pid")" 2>/dev/null || true
        wait_for 10 dead $side || kill -9 "$(cat "$STATE/$side.pid")"
        mv "$(log_of $side)" "$OUT/$1.$side.log"
    done
    for ns in left right; do ip netns del $ns; done
}

dead() { ! alive "$1"; }
alive() {
    local pid
    read -r pid <"$STATE/$1.pid" && kill -0 "$pid" 2>/dev/null
}

# final_checks: of every scenario, also of one that has failed. It fails after all of them.
FINAL_CHECKS=
final_checks() {
    local found wrong
    FINAL_CHECKS=begun
    found=$(wrongs)
    while read -r wrong; do
        [ -z "$wrong" ] || note "FAIL: $wrong"
    done <<<"$found"
    note "final checks are done"
    [ -z "$found" ]
}

# wrongs: what is wrong at the end of a scenario, a line each.
wrongs() {
    local side n
    for side in us them; do
        [ -e "$STATE/$side.pid" ] || continue
        [ -e "$STATE/$side.killed" ] || alive $side || echo "$side died"
        ! grep -q -s "panicked at" "$(log_of $side)" "$OUT/$side.before.log" || echo "$side panicked"
    done
    if [ -s "$OUT/wire.us.pcap" ] && [ "${CLEARTEXT:-no}" = no ]; then
        n=$(wire "$INNER")
        [ "$n" = 0 ] || echo "$n packets of the inner networks went unprotected"
    fi
    true
}

# What must not be on the wire. (With MOBIKE, IKE may try any address of the peer's, those behind it as well.)
INNER="(net 10.0.0.0/8 or net fd00::/8) and not udp port 500 and not udp port 4500"

on_exit() {
    local side
    if [ "$1" = 0 ]; then note "passed"; else
        # What failed must not hide what is worse.
        [ -n "$FINAL_CHECKS" ] || final_checks || true
        note "failed ($1)"
        for side in us them; do
            {
                echo "== $side"
                sas $side | jq . || true
                ip -n "$(netns $side)" -s xfrm state
                ip -n "$(netns $side)" xfrm policy
                ip -n "$(netns $side)" addr
                ip -n "$(netns $side)" route show table all
            } >"$OUT/$side.state" 2>&1
        done
    fi
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    pause 0.2
    exit "$1"
}

# each_side_initiates: in turn, with traffic both ways and a delete.
each_side_initiates() {
    local side
    for side in us them; do
        up "$side"
        installed
        ping_both
        down "$side" ike
        gone
    done
}
