#!/bin/bash
# Runs scenarios, each in a guest of its own, and says which passed.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<USAGE
usage: run.sh [--list] [--keep] [-j N] [SCENARIO[@CASE]…]
  --list   names only
  --keep   keep the logs of scenarios that passed as well
  -j N     guests at a time (2)
IKE_DAEMON names the binary (target/release/ike-daemon), IKE_LAB_OUT the folder
for logs (target/lab), IKE_LAB_US=strongswan puts a second strongSwan in place of
the daemon, IKE_LAB=skip leaves the lab out.
USAGE
}

JOBS=2 KEEP=no LIST=no
WANTED=()
while [ $# -gt 0 ]; do
    case $1 in
    --list) LIST=yes ;;
    --keep) KEEP=yes ;;
    -j) JOBS=$2 && shift ;;
    -j*) JOBS=${1#-j} ;;
    -h | --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) WANTED+=("$1") ;;
    esac
    shift
done

OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}
DAEMON=${IKE_DAEMON:-$LAB_TOP/target/release/ike-daemon}

# header FILE WORD: what follows "# WORD:" at the top of a scenario.
header() { sed -n "s/^# $2: *//p" "$1" | head -n 1; }

# Every scenario, one line for each of its cases.
names() {
    local file name cases c
    for file in "$LAB_SRC"/scenarios/*.sh; do
        name=$(basename "$file" .sh)
        cases=$(header "$file" CASES)
        [ -n "$cases" ] || { say "$name" && continue; }
        for c in $cases; do say "$name@$c"; done
    done
}

# A wanted name is a scenario, a scenario@case, or a pattern over both.
select_names() {
    local all want n matched
    all=$(names)
    [ ${#WANTED[@]} -gt 0 ] || { say "$all" && return; }
    for want in "${WANTED[@]}"; do
        matched=no
        for n in $all; do
            # shellcheck disable=SC2053
            if [[ $n == $want || ${n%@*} == $want ]]; then
                say "$n"
                matched=yes
            fi
        done
        [ $matched = yes ] || die "no scenario $want (run.sh --list)"
    done
}

if [ $LIST = yes ]; then
    select_names
    exit
fi

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
[ -e "$LAB_ROOT/usr/bin/linux.uml" ] || die "no root folder; run tests/lab/setup.sh"

chosen=$(select_names)
mkdir -p "$OUT"
export LAB_SRC LAB_ROOT OUT DAEMON KEEP IKE_LAB_US="${IKE_LAB_US:-}"
rc=0
say "$chosen" | xargs -n 1 -P "$JOBS" "$LAB_SRC/run-one.sh" || rc=$?
[ "$rc" = 0 ] || [ "$rc" = 123 ] || die "the run broke off ($rc)"

passed=0 failed=0
for name in $chosen; do
    if [ "$(cat "$OUT/$name/rc" 2>/dev/null)" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    [ "$KEEP" = yes ] || [ "$(cat "$OUT/$name/rc" 2>/dev/null)" != 0 ] || rm -rf "${OUT:?}/$name"
done
say "$passed passed, $failed failed"
[ "$failed" = 0 ]
