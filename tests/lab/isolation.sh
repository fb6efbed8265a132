#!/bin/bash
# Shows that cases which share a guest do not see each other: what one leaves is gone or fails it, and a guest that dies
# or hangs fails the case it ran and no other.
# usage: isolation.sh
set -eu
. "$(dirname "$0")/common.sh"
skip_if_asked
export IKE_LAB_SCENARIOS=isolation IKE_LAB_HANGS=5
export IKE_LAB_OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/isolation
rm -rf "$IKE_LAB_OUT"
mkdir -p "$IKE_LAB_OUT"

# at_now CASE SIGNAL: for the kernel of the guest that runs the case, once the case says so. One worker boots all guests.
at_now() {
    local guest
    until [ -e "$IKE_LAB_OUT/$1/now" ]; do sleep 0.1; done
    guest=$(cat "$(ls -d "$IKE_LAB_OUT"/.guests/[0-9]* | sort -V | tail -n 1)/pid")
    # Below `timeout` and `unshare`.
    guest=$(pgrep -P "$(pgrep -P "$guest")")
    kill "-$2" "$guest"
}
at_now f-dies KILL &
killer=$!
at_now g-hangs STOP &
stopper=$!
trap 'kill $killer $stopper 2>/dev/null || true' EXIT

rc=0
"$LAB_SRC/run.sh" --keep -j 1 >"$IKE_LAB_OUT.log" || rc=$?
wrong() { cat "$IKE_LAB_OUT.log" && die "$@"; }
[ $rc = 1 ] || wrong "run.sh's status is $rc, and four cases fail"

# verdicts: what each case came to, in the order in which they ran.
verdicts=$(sed -n -E 's/^(ok|FAIL) +([^ ]+) .*/\1 \2/p' "$IKE_LAB_OUT.log")
[ "$verdicts" = "ok a-leaves@processes
ok a-leaves@namespaces
ok a-leaves@files
ok b-pristine
FAIL c-device
FAIL d-clock
ok e-own
FAIL f-dies
FAIL g-hangs
ok h-after
ok i-nic@left
ok i-nic@gone" ] || wrong "other verdicts"

says() { grep -q -E -- "$2" "$IKE_LAB_OUT/$1" || wrong "$1 does not say: $2"; }
says c-device/report.txt 'left behind: /dev/left'
says c-device/report.txt 'the guest had run before: a-leaves@processes a-leaves@namespaces a-leaves@files b-pristine$'
says d-clock/report.txt 'the clock was set by 3[56][0-9]{2} s'
says f-dies/report.txt 'the guest ended without a result'
says g-hangs/report.txt 'the guest hangs'
# Those that pass share a guest until one fails that way; e-own has one to itself.
says ../isolation.log '^12 cases .* 7 boots '
says ../isolation.log '^8 passed, 4 failed$'
say "cases that share a guest are isolated"
