#!/bin/bash
# The inside of links.sh: one link, pair and suite.
# shellcheck disable=SC2154
set -eu
. /out/env
. /lab/guest/lib.sh
shopt -s extglob

BENCH=/bin-under-test/ike-bench
SHEET=$OUT/handshakes.csv
INITIATOR=${PAIR%%-*} RESPONDER=${PAIR##*-}
STRONGSWAN_LOG=1
with_certificates

trap 'rc=$?; trap - EXIT; kill $(jobs -p) 2>/dev/null; exit $rc' EXIT

# A second pair of interfaces, without impairment, for what the responder tells.
new_ns left right
join left l0 192.0.2.1/24 right r0 192.0.2.2/24
join left lc 198.51.100.1/24 right rc 198.51.100.2/24

charon=(--charon "fragment_size=$FRAGMENT_SIZE")
for option in $CHARON; do charon+=(--charon "$option"); done
conf both charon.fragment_size "$FRAGMENT_SIZE"
conf both charon.install_routes no

# strongswan SIDE ROLE
strongswan() {
    mkdir -p "$STATE/$1.d"
    cp -r "$OUT/bundle/$2/." "$STATE/$1.d/"
    sed -i "s/RESPONDER/$THEM_OWN/" "$STATE/$1.d/swanctl.conf"
    charon_start "$1"
    charon_load "$1" "$STATE/$1.d/swanctl.conf"
}

case $RESPONDER in
strongswan) strongswan them responder ;;
ours)
    in_ns them "$BENCH" serve --bundle "$OUT/bundle" --suite "$SUITE" --port 4500 --ike-port 500 \
        --rules "$RULES" "${charon[@]}" >"$(log_of them)" 2>&1 &
    echo $! >"$STATE/them.pid"
    wait_for 20 grep -q 'serving' "$(log_of them)" || fail "the responder did not start: $(cat "$(log_of them)")"
    ;;
esac

impair us "$LEFT"
impair them "$RIGHT"
in_ns us ping -q -c 3 -i 0.2 -W 2 $THEM_OWN || true

if [ "$INITIATOR" = ours ]; then
    case $RESPONDER in
    ours) counts=(--counts-host 198.51.100.2) ;;
    *) counts=(--counts-port 0 --counts-pid "$(cat "$STATE/them.pid")") ;;
    esac
    in_ns us "$BENCH" links --to $THEM_OWN --port 500 --local-port 500 --bundle "$OUT/bundle" --suite "$SUITE" \
        --runs "$RUNS" --give-up "$LIMIT" --rules "$RULES" "${charon[@]}" --link "$LINK" --pair "$PAIR" \
        --rtt "$RTT" --handshakes "$SHEET" "${counts[@]}" 2>&1
    exit
fi

strongswan us initiator
. /lab/guest/links-strongswan.sh
strongswan_handshakes
