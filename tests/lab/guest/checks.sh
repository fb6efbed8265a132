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

no_ping() {
    ! in_ns us ping -q -n -c 2 -i 0.2 -W 1 -I "$LEFT_IN" "$RIGHT_IN" >/dev/null 2>&1 || fail "ping passed without an SA"
}

# ping_start [COUNT]: one packet every 50 ms each way in the background. A
# fixed count, so that the end does not cut off a packet still on its way.
ping_start() {
    local count=${1:-100} side
    for side in us them; do
        local from=$LEFT_IN to=$RIGHT_IN
        [ $side = us ] || { from=$RIGHT_IN to=$LEFT_IN; }
        ip netns exec "$(netns $side)" ping -n -O -c "$count" -i 0.05 -W 5 -I $from $to >"$OUT/ping.$side.log" 2>&1 &
        echo $! >"$STATE/ping.$side.pid"
    done
    sleep 0.5
}

# ping_end: all answered, and still running when called, so that whatever
# happened since ping_start happened under traffic.
ping_end() {
    local side summary
    for side in us them; do
        kill -0 "$(cat "$STATE/ping.$side.pid")" 2>/dev/null || fail "the ping of $side ended too early to prove anything"
    done
    for side in us them; do
        wait "$(cat "$STATE/ping.$side.pid")" || true
        summary=$(grep 'packets transmitted' "$OUT/ping.$side.log") || fail "no ping summary of $side"
        note "$side: $summary"
        case $summary in
        *" 0% packet loss"*) ;;
        *) fail "ping of $side lost packets" ;;
        esac
        ! grep -q 'DUP!' "$OUT/ping.$side.log" || fail "ping of $side saw duplicates"
    done
}

# counted [N]: both sides count at least N packets in and out of their ESP SAs.
counted() {
    local n=${1:-1} side
    for side in us them; do
        expect "$side" "[.[].\"child-sas\"[]] | length > 0 and all(.\"packets-in\" >= $n and .\"packets-out\" >= $n)"
    done
}

# kernel_states SIDE: number of SAs in that side's kernel.
kernel_states() { ip -n "$(netns "$1")" xfrm state list | grep -c '^src' || true; }

# wire EXPRESSION: packets on the wire so far that match.
wire() { tcpdump -n -r "$OUT/wire.pcap" "$@" 2>/dev/null | wc -l; }

expect_wire() {
    local n
    wait_for 5 eval '[ "$(wire "$1")" -gt 0 ]' || { n=$(wire "$1"); fail "$n packets on the wire match: $1"; }
}

alive() { kill -0 "$(cat "$STATE/$1.pid")" 2>/dev/null; }

# Runs after every scenario that came to its end.
final_checks() {
    local side n
    for side in us them; do
        [ -e "$STATE/$side.pid" ] || continue
        [ -e "$STATE/$side.killed" ] || alive $side || fail "$side died"
        ! grep -q "panicked at" "$(log_of $side)" 2>/dev/null || fail "$side panicked"
    done
    # The kernel shows packets it decrypted on the interface they came by, so
    # clear text can be told from ESP only where user space does the ESP.
    if [ "$US" = daemon ] && [ -s "$OUT/wire.pcap" ] && [ "${CLEARTEXT:-no}" = no ]; then
        n=$(wire "net 10.0.0.0/8 or net fd00::/8")
        [ "$n" = 0 ] || fail "$n packets of the inner networks went unprotected"
    fi
}

on_exit() {
    local side
    if [ "$1" = 0 ]; then note "passed"; else
        note "failed ($1)"
        for side in us them; do
            [ -e "$STATE/$side.pid" ] && [ -e "$STATE/$(netns $side)" ] || true
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
    kill $(jobs -p) 2>/dev/null
    sleep 0.2
    exit "$1"
}
