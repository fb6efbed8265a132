#!/bin/bash
# Runs built test programs many times beside busy processes, and lists the tests that failed.
#   tests/repeat.sh [-n TIMES] [-b BUSY] [-t SECONDS] PACKAGE:PROGRAM[:FILTER]…
#   tests/repeat.sh ike-daemon:it ike-esp:kernel 'ike-tests:wiped'
# -n TIMES    20
# -b BUSY     processes that only count, beside the tests (4)
# -t SECONDS  that one run may take (600); one that takes longer has failed
# PROGRAM     a program of PACKAGE/tests, or `lib` for its unit tests
# FILTER      as for `cargo test`
# Tests that the machine cannot run are ignored, or fail with IKE_KERNEL_TESTS=must. Status 1 if a test failed.
set -euo pipefail
cd "$(dirname "$0")/.."

times=20 busy=4 limit=600
while getopts n:b:t:h opt; do
    case $opt in
    n) times=$OPTARG ;;
    b) busy=$OPTARG ;;
    t) limit=$OPTARG ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { echo "name programs, as PACKAGE:PROGRAM" >&2 && exit 2; }

work=$(mktemp -d)
others=()
finish() {
    [ ${#others[@]} = 0 ] || kill "${others[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

# One build for all, in the whole workspace as in CI, so that features are the same.
chosen=()
for word in "$@"; do
    IFS=: read -r _ program _ <<<"$word"
    if [ "$program" = lib ]; then chosen+=(--lib); else chosen+=(--test "$program"); fi
done
cargo test --workspace --locked --no-run --message-format=json "${chosen[@]}" >"$work/build.json"

# executable PACKAGE PROGRAM
executable() {
    jq -r --arg package "$1" --arg program "$2" 'select(.executable != null and .profile.test)
        | select(.package_id | test("[/#]" + $package + "[#@]"))
        | select(if $program == "lib" then .target.kind[0] != "test" else .target.name == $program end)
        | .executable + " " + .manifest_path' "$work/build.json"
}

for ((i = 0; i < busy; i++)); do
    sh -c 'while :; do :; done' &
    others+=($!)
done

status=0
for word in "$@"; do
    IFS=: read -r package program filter <<<"$word"
    read -r exe manifest < <(executable "$package" "$program") || { echo "$word: no such program" >&2 && exit 2; }
    failed=0 begun=$SECONDS
    : >"$work/failures"
    for ((run = 1; run <= times; run++)); do
        rc=0
        # shellcheck disable=SC2086
        (cd "$(dirname "$manifest")" && timeout -k 5 "$limit" "$exe" $filter) >"$work/output" 2>&1 || rc=$?
        [ $rc = 0 ] && continue
        failed=$((failed + 1))
        cp "$work/output" "${TMPDIR:-/tmp}/repeat-$package-$program-$run.log"
        # The names at the end, or the whole run if it has no end.
        sed -n '/^failures:$/,$s/^    \([a-z_0-9:]*\)$/\1/p' "$work/output" | sort -u >"$work/names"
        [ -s "$work/names" ] || echo "(status $rc)" >"$work/names"
        cat "$work/names" >>"$work/failures"
    done
    summary=$(grep -h '^test result' "$work/output" | tail -n 1 | sed 's/test result: [a-zA-Z]*. //; s/; 0 measured.*//')
    echo "$word: $((times - failed)) of $times ($summary; $((SECONDS - begun)) s)"
    [ $failed = 0 ] || status=1
    sort "$work/failures" | uniq -c | sed 's/^/  failed /'
done
exit $status
