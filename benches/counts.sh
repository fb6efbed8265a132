#!/bin/sh
# Counts the instructions of what must not get slower, under callgrind, and compares them with
# benches/counts.txt. Fails where one has grown by more than 3 %; `benches/counts.sh --store` stores new
# ones. Needs valgrind. See benches/README.md.
set -eu
cd "$(dirname "$0")/.."

stored=benches/counts.txt
tolerance=3
target=${CARGO_TARGET_DIR:-target}
out=$target/counts
mkdir -p "$out"
command -v valgrind >/dev/null || { echo "counts.sh: valgrind is not installed" >&2; exit 2; }
cargo build --release --locked --quiet -p ike-test-lives --example counts
program=$target/release/examples/counts

new=$out/counts.txt
: >"$new"
for case in $("$program"); do
    # Only what the engine does with its inputs, and no C library chosen by the processor.
    GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-AVX512F,-AVX512VL,-ERMS \
        valgrind --tool=callgrind --callgrind-out-file="$out/$case.out" \
        --toggle-collect='ike_proto::endpoint::Endpoint::handle' \
        "$program" "$case" >"$out/$case.times" 2>"$out/$case.log" || {
        cat "$out/$case.log" >&2
        exit 2
    }
    total=$(awk '/^(summary|totals):/ { print $2; exit }' "$out/$case.out")
    times=$(cat "$out/$case.times")
    [ "${total:-0}" -gt 0 ] || { echo "counts.sh: nothing was counted for $case" >&2; exit 2; }
    echo "$case $((total / times))" >>"$new"
done

if [ "${1:-}" = --store ]; then
    cp "$new" "$stored"
    cat "$stored"
    exit 0
fi

awk -v tolerance="$tolerance" '
    NR == FNR { before[$1] = $2; next }
    { now[$1] = $2
      if (!($1 in before)) { printf "%-16s %9d  not stored\n", $1, $2; bad = 1; next }
      change = 100 * ($2 - before[$1]) / before[$1]
      word = ""
      if (change > tolerance) { word = "  TOO MANY"; bad = 1 }
      if (change < -tolerance) { word = "  fewer: store it"; fewer = 1 }
      printf "%-16s %9d  %9d stored  %+6.1f %%%s\n", $1, $2, before[$1], change, word }
    END { for (name in before) if (!(name in now)) { print name " was not counted"; bad = 1 }
          if (bad) print "counts.sh: if this is wanted, benches/counts.sh --store stores the new counts"
          exit bad }
' "$stored" "$new"
