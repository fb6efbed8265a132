#!/bin/sh
# Counts the instructions of what must not get slower, under callgrind, and compares them with the bases of
# benches/counts.txt. Fails where a count exceeds its base by more than 3 % and its allowance, where a base is more than
# 1 % too high, and where bases differ from their history. Needs valgrind and the history.
# See benches/README.md.
set -eu
cd "$(dirname "$0")/.."
[ $# = 0 ] || { echo "usage: benches/counts.sh; a person edits benches/counts.txt" >&2; exit 2; }

target=${CARGO_TARGET_DIR:-target}
out=$target/counts
mkdir -p "$out"
benches/bases.py
command -v valgrind >/dev/null || { echo "counts.sh: valgrind is not installed" >&2; exit 2; }
# An incremental build inlines less: counts would be 3 to 9 % higher.
CARGO_INCREMENTAL=0 cargo build --release --locked --quiet -p ike-test-lives --example counts --example guard
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

"$target/release/examples/guard" benches/counts.txt "$new"
