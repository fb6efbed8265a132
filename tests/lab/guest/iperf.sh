#!/bin/bash
# The inside of iperf.sh: pairs of the same program, measured in turns so that
# a busy moment of the machine does not fall on one of them alone.
set -eu
. /out/env
US=none THEM=none
. /lab/guest/lib.sh
capture() { :; }
# Before kernel-netlink: the first to offer ESP provides it.
STRONGSWAN_PLUGINS="kernel-libipsec $STRONGSWAN_PLUGINS"

declare -A SUM
for kind in $KINDS; do SUM[$kind]=0; done

begin() {
    US=${1/plain/daemon} THEM=${1/plain/daemon}
    rm -f "$STATE"/*
    net_direct
    site
    net both esp_proposals "$ESP"
    case $1 in
    strongswan) ike both encap true ;;
    daemon) [ "$ENCAP" = auto ] || ike both encap "$ENCAP" ;;
    plain) ike both encap false ;;
    esac
    start us
    start them
    up us
    installed
    ping_both
}

# mbits DIRECTION: received TCP payload, in Mbit/s.
mbits() {
    in_ns them timeout 60 iperf3 -s -1 -B $RIGHT_IN >"$OUT/iperf.server.log" 2>&1 &
    wait_for 10 listening || fail "no iperf3 server"
    in_ns us timeout $((SECONDS_EACH + 20)) iperf3 -c $RIGHT_IN -B $LEFT_IN -t "$SECONDS_EACH" -O 1 -J $1 >"$OUT/iperf.json" ||
        fail "iperf3: $(jq -r .error "$OUT/iperf.json")"
    wait $! || true
    jq '.end.sum_received.bits_per_second / 1e6 | floor' "$OUT/iperf.json"
}

listening() { in_ns them ss -Hltn 'sport = :5201' | grep -q .; }

{
    for round in $(seq "$ROUNDS"); do
        for kind in $KINDS; do
            begin "$kind" >&2
            there=$(mbits "") back=$(mbits -R)
            finish "$kind"
            echo "round $round  $kind  $there Mbit/s there, $back Mbit/s back"
            SUM[$kind]=$((SUM[$kind] + there + back))
        done
    done
    for kind in $KINDS; do
        echo "$kind: $((SUM[$kind] / (2 * ROUNDS))) Mbit/s ($ESP, mean of $((2 * ROUNDS)) runs of $SECONDS_EACH s)"
    done
    if [ -n "${SUM[plain]:-}" ] && [ -n "${SUM[daemon]:-}" ]; then
        echo "ratio of the daemon, default / plain ESP: $(jq -n "${SUM[daemon]} / ${SUM[plain]} * 100 | round / 100")"
    fi
    if [ -n "${SUM[strongswan]:-}" ] && [ -n "${SUM[daemon]:-}" ]; then
        ratio=$(jq -n "${SUM[daemon]} / ${SUM[strongswan]} * 100 | round / 100")
        echo "ratio ike-daemon / strongSwan kernel-libipsec: $ratio"
        [ -z "$MIN" ] || [ "$(jq -n "$ratio >= $MIN")" = true ] || fail "below $MIN"
    fi
} 2>"$OUT/iperf.log" || {
    tail -n 20 "$OUT/iperf.log" >&2
    exit 1
}
