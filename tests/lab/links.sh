#!/bin/bash
# Handshakes over netem between real programs, in guests: this project's and
# strongSwan's, as initiator and as responder. One table.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/guest.sh"

# name, round-trip time in ms, netem of what each end sends; after a slash, that
# of the responder, if it is another. FL-PA to JPN-SWI are measuredSwan's Table 2.
LINKS='
clean-10    10   delay 5ms
clean-100   100  delay 50ms
clean-600   600  delay 300ms
loss1-10    10   delay 5ms loss 1%
loss5-10    10   delay 5ms loss 5%
loss8-10    10   delay 5ms loss 8%
loss12-10   10   delay 5ms loss 12%
loss20-10   10   delay 5ms loss 20%
loss5-100   100  delay 50ms loss 5%
loss10-100  100  delay 50ms loss 10%
FL-PA-2     31.4 delay 15.7ms loss gemodel 0.3% 12.8%
LA-NY-1     66   delay 33ms loss gemodel 0.4% 8.1%
FL-PA-1     31.4 delay 15.7ms loss gemodel 0.25% 4.31%
JPN-SWI     259  delay 129.7ms loss gemodel 0.06% 0.77%
LA-NY-2     66   delay 33ms loss gemodel 0.9% 8.2%
rate-9600   1    delay 0.5ms rate 9600bit
rate-64k    20   delay 10ms rate 64kbit
psk-rsa     100  delay 100ms 20ms distribution normal loss 1% / delay 0ms
'

usage() {
    cat <<USAGE
usage: links.sh [OPTION]…
  -l LINK     a link of those below, or NAME:RTT_MS:NETEM (several times; loss5-10)
  -p PAIR     INITIATOR-RESPONDER, each ours or strongswan (several times;
              ours-ours, ours-strongswan, strongswan-strongswan)
  -s SUITE    of ike-bench serve (several times; mlkem768-ecdsa, mlkem1024-rsa4096)
  -n RUNS     handshakes of each (100)
  -w SECONDS  after which one is given up (165)
  -r RULES    of our ends: ours or strongswan (ours)
  -o OPTION   one more of our [charon], KEY=VALUE (several times)
  -f OCTETS   fragment_size of both ends (1280)
  -j GUESTS   at a time (2)
  -k KERNEL   one of: $LAB_KERNELS (forky)
  -c FILE     the table as CSV, too
  -H FILE     the handshakes as CSV, a line each
links:$(printf '%s' "$LINKS" | sed 's/^/  /')
The table goes to standard output, logs to IKE_LAB_OUT (target/lab)/links. IKE_BENCH
is ike-bench (target/release/ike-bench).
USAGE
}

links=() pairs=() suites=() options=()
runs=100 limit=165 rules=ours size=1280 guests=2 kernel=forky csv='' handshakes=''
while getopts l:p:s:n:w:r:o:f:j:k:c:H:h opt; do
    case $opt in
    l) links+=("$OPTARG") ;;
    p) pairs+=("$OPTARG") ;;
    s) suites+=("$OPTARG") ;;
    n) runs=$OPTARG ;;
    w) limit=$OPTARG ;;
    r) rules=$OPTARG ;;
    o) options+=("$OPTARG") ;;
    f) size=$OPTARG ;;
    j) guests=$OPTARG ;;
    k) kernel=$OPTARG ;;
    c) csv=$OPTARG ;;
    H) handshakes=$OPTARG ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
[ ${#links[@]} != 0 ] || links=(loss5-10)
[ ${#pairs[@]} != 0 ] || pairs=(ours-ours ours-strongswan strongswan-strongswan)
[ ${#suites[@]} != 0 ] || suites=(mlkem768-ecdsa mlkem1024-rsa4096)

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
need_kernel "$kernel"
BENCH=${IKE_BENCH:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-bench}
[ -x "$BENCH" ] || die "no ike-bench at $BENCH (cargo build --release -p ike-bench)"
DAEMON=
OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/links
rm -rf "$OUT"
mkdir -p "$OUT"
export LAB_SRC LAB_DIR LAB_ROOT DAEMON BENCH

# link NAME: "name|rtt|netem|netem of the responder", or nothing.
link() {
    case $1 in
    *:*:*) printf '%s' "$1" | tr : ' ' ;;
    *) printf '%s' "$LINKS" | awk -v name="$1" '$1 == name' ;;
    esac | awk '{ name = $1; rtt = $2; $1 = $2 = ""; sub(/^ +/, ""); n = split($0, part, / *\/ */)
                  print name "|" rtt "|" part[1] "|" (n > 1 ? part[2] : part[1]) }'
}

# One for each suite: the CAs of others would make certificate requests longer.
for suite in "${suites[@]}"; do
    "$BENCH" serve --only-bundle --bundle "$OUT/bundle.$suite" --suite "$suite" 2>"$OUT/bundle.log" ||
        die "$(cat "$OUT/bundle.log")"
done

# one LINK PAIR SUITE: in a guest of its own.
one() {
    local link=$1 pair=$2 suite=$3 name rtt left right out
    IFS='|' read -r name rtt left right < <(link "$link")
    out=$OUT/$name.$pair.$suite
    mkdir -p "$out"
    cp -r "$OUT/bundle.$suite" "$out/bundle"
    cat >"$out/env" <<ENV
LAB_RUN="bash /lab/guest/links.sh"
LAB_LOG=links.log
LAB_TIMEOUT=$((120 + runs * (limit + 2)))
LAB_MODULES="sch_netem"
LAB_SCENARIO=links
LINK="$name"
LEFT="$left"
RIGHT="$right"
RTT=$rtt
PAIR=$pair
SUITE=$suite
RUNS=$runs
LIMIT=$limit
RULES=$rules
CHARON="${options[*]}"
FRAGMENT_SIZE=$size
US=none
THEM=none
ENV
    guest "$out" $((120 + runs * (limit + 2))) "$kernel"
    wait $guest 2>/dev/null || true
    rm -rf "$out/bundle"
    [ "$(cat "$out/rc" 2>/dev/null)" = 0 ] || {
        say "lab: $name $pair $suite failed; the end of $out/links.log:" >&2
        tail -n 15 "$out/links.log" "$out/console.log" >&2
        return 1
    }
    say "$name $pair $suite: done" >&2
}

for l in "${links[@]}"; do
    [ "$(link "$l")" != "" ] || die "no link $l (links.sh -h)"
done
failed=0
for l in "${links[@]}"; do
    for suite in "${suites[@]}"; do
        for pair in "${pairs[@]}"; do
            while [ "$(jobs -rp | wc -l)" -ge "$guests" ]; do wait -n || failed=1; done
            one "$l" "$pair" "$suite" &
        done
    done
done
while [ "$(jobs -p | wc -l)" -gt 0 ]; do wait -n || failed=1; done

files=() all=$OUT/handshakes.csv
for l in "${links[@]}"; do
    IFS='|' read -r name _ < <(link "$l")
    for suite in "${suites[@]}"; do
        for pair in "${pairs[@]}"; do
            [ ! -s "$OUT/$name.$pair.$suite/handshakes.csv" ] || files+=("$OUT/$name.$pair.$suite/handshakes.csv")
        done
    done
done
[ ${#files[@]} != 0 ] || die "nothing was measured"
awk 'NR == 1 || FNR > 1' "${files[@]}" >"$all"
[ -z "$handshakes" ] || cp "$all" "$handshakes"
rm -rf "$OUT"/bundle.*
"$BENCH" links --from "$all" ${csv:+--csv "$csv"}
exit $failed
