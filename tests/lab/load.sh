#!/bin/bash
# What a handshake costs the responder, this project's daemon beside strongSwan,
# on this machine's own kernel, both without SAs in it. One table.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<USAGE
usage: load.sh [OPTION]…
  -s SUITE    of ike-bench serve (several times; psk-x25519, psk-mlkem768,
              ecdsa-x25519, ecdsa-mlkem768, rsa-x25519)
  -n COUNT    handshakes of each round (2000)
  -r ROUNDS   of each, in turns; the one that took least counts (3)
  -c COUNT    handshakes at a time (16)
  -i COUNT    initiators, with an identity and a certificate each (64)
  -m RATIO    fail if ours costs more than RATIO of strongSwan's, rsa-x25519 aside
  -f FACTOR   fail if rsa-x25519 costs more than FACTOR of its public-key operations
  -j FILE     all figures as JSON, too
The responder runs on CPU 0, the initiator, ours for both, on CPU 1. IKE_DAEMON and
IKE_BENCH name the binaries (target/release); logs go to IKE_LAB_OUT (target/lab)/load.
USAGE
}

suites=() count=2000 rounds=3 concurrency=16 initiators=64 ratio='' factor='' json=
while getopts s:n:r:c:i:m:f:j:h opt; do
    case $opt in
    s) suites+=("$OPTARG") ;;
    n) count=$OPTARG ;;
    r) rounds=$OPTARG ;;
    c) concurrency=$OPTARG ;;
    i) initiators=$OPTARG ;;
    m) ratio=$OPTARG ;;
    f) factor=$OPTARG ;;
    j) json=$OPTARG ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
[ ${#suites[@]} != 0 ] || suites=(psk-x25519 psk-mlkem768 ecdsa-x25519 ecdsa-mlkem768 rsa-x25519)

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
[ "$(nproc)" -ge 2 ] || die "needs two CPUs"
[ -e "$LAB_ROOT/usr/lib/ipsec/plugins/libstrongswan-fake-kernel.so" ] ||
    die "strongSwan has no fake kernel; run tests/lab/setup.sh --load"
target=${CARGO_TARGET_DIR:-$LAB_TOP/target}/release
DAEMON=${IKE_DAEMON:-$target/ike-daemon} BENCH=${IKE_BENCH:-$target/ike-bench}
[ -x "$DAEMON" ] || die "no daemon at $DAEMON (cargo build --release -p ike-daemon)"
[ -x "$BENCH" ] || die "no ike-bench at $BENCH (cargo build --release -p ike-bench)"
OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/load
rm -rf "$OUT"
mkdir -p "$OUT"

"$BENCH" serve --only-bundle --bundle "$OUT/bundle" --initiators "$initiators" \
    "${suites[@]/#/--suite=}" 2>"$OUT/bundle.log" || die "$(cat "$OUT/bundle.log")"
cat >"$OUT/env" <<ENV
SUITES="${suites[*]}"
COUNT=$count
ROUNDS=$rounds
CONCURRENCY=$concurrency
ENV
export LAB_SRC LAB_ROOT DAEMON BENCH
# Own mounts, network and process ids: nothing is left behind, however it ends.
timeout -s KILL $((120 + rounds * ${#suites[@]} * (10 + count / 50))) \
    unshare -m -p -n -f --kill-child bash "$LAB_SRC/chroot.sh" "$OUT" bash /lab/guest/load.sh || {
    tail -n 20 "$OUT"/*.log >&2
    die "the measurement failed; logs are in $OUT"
}
rm -rf "$OUT/bundle"

# The least of the rounds: whatever else the machine does only adds.
jq -s --arg suites "${suites[*]}" '
    def least(key): map(select(key != null)) | min_by(key);
    . as $all | $suites | split(" ") | map(. as $suite |
        ($all | map(select(.suite == $suite))) as $these |
        ($these | map(select(.who == "ours")) | least(.cpu_us)) as $ours |
        ($these | map(select(.who == "strongswan")) | least(.cpu_us)) as $theirs |
        ($these | map(.floor_us) | map(values) | min) as $floor |
        { suite: $suite, floor_us: $floor, ours: $ours, strongswan: $theirs,
          ratio: ($ours.cpu_us / $theirs.cpu_us), of_floor: ($ours.cpu_us / $floor) })' \
    "$OUT"/round.*.json >"$OUT/load.json"
[ -z "$json" ] || cp "$OUT/load.json" "$json"
jq -r '
    def r(n): . * pow(10; n) | round / pow(10; n);
    ["suite", "floor us", "ours us", "strongSwan us", "ratio", "ours/floor", "ours /s", "strongSwan /s"],
    (.[] | [.suite, (.floor_us | r(0)), (.ours.cpu_us | r(1)), (.strongswan.cpu_us | r(1)), (.ratio | r(3)),
            (.of_floor | r(2)), (.ours.per_second | r(0)), (.strongswan.per_second | r(0))]) | @tsv' \
    "$OUT/load.json" | column -t -s "$(printf '\t')"
say "CPU time of the responder for a handshake, least of $rounds rounds of $count; failed:" \
    "$(jq -s 'map(.failed) | add' "$OUT"/round.*.json)"

verdict=0
over() { # over FILTER MESSAGE
    local names
    names=$(jq -r "[.[] | select($1) | .suite] | join(\", \")" "$OUT/load.json")
    [ -z "$names" ] || { say "lab: $2: $names" >&2 && verdict=1; }
}
[ -z "$ratio" ] || over ".suite != \"rsa-x25519\" and .ratio > $ratio" "more than $ratio of strongSwan's"
[ -z "$factor" ] || over ".suite == \"rsa-x25519\" and .of_floor > $factor" "more than $factor of the floor"
exit $verdict
