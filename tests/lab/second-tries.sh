#!/bin/bash
# Shows which failed cases run.sh runs a second time, and that no fault of ours is among them. A stub in place of
# worker.sh writes what a first try leaves (second-tries/worker.sh): no guest, no root, some seconds.
# usage: second-tries.sh
set -eu
. "$(dirname "$0")/common.sh"
unset IKE_LAB IKE_LAB_AGAIN IKE_LAB_SCENARIOS IKE_LAB_US IKE_LAB_PLANE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export IKE_LAB_WORKER=$LAB_SRC/second-tries/worker.sh IKE_LAB_OUT=$work/out
export FAULTS=$work/faults IKE_LAB_SECOND_TRIES=$work/tries

wrong() {
    cat "$work/said" >&2
    die "$what: $*"
}

# run STATUS PASSED FAILED TRIES PASSED_AGAIN CASE=FAULT,…: a run of these cases, and what it has to come to.
run() {
    local status=$1 passed=$2 failed=$3 tries=$4 again=$5 rc=0 word names=()
    shift 5
    : >"$FAULTS"
    : >"$IKE_LAB_SECOND_TRIES"
    for word; do
        names+=("${word%%=*}")
        say "${word%%=*} $(tr , ' ' <<<"${word#*=}")" >>"$FAULTS"
    done
    what=$*
    "$LAB_SRC/run.sh" -j 1 "${names[@]}" >"$work/said" 2>&1 || rc=$?
    [ $rc = "$status" ] || wrong "the status is $rc, not $status"
    [ "$(tail -n 2 "$work/said")" = "second tries: $tries, passed: $again
$passed passed, $failed failed" ] || wrong "not: second tries: $tries, passed: $again; $passed passed, $failed failed"
    # The second tries have a sum too, and it must not be taken for that of the run.
    [ "$(grep -c -x '[0-9]* passed, [0-9]* failed' "$work/said")" = 1 ] || wrong "there are other sums"
    [ "$(wc -l <"$IKE_LAB_SECOND_TRIES")" = "$tries" ] || wrong "other second tries are counted for CI"
    # The first try stays: its folder says that it failed.
    for word in "${names[@]}"; do
        grep -q -v -x 0 "$IKE_LAB_OUT/$word/rc" || wrong "the first try of $word is gone"
    done
}
says() { grep -q -F -- "$1" "$work/said" || wrong "run.sh does not say: $1"; }

# What the faults of the peers explain.
run 0 1 0 1 1 path-mtu@us-1000=smaller_pieces
says "passed at its second try: path-mtu@us-1000; its first try is in $IKE_LAB_OUT/path-mtu@us-1000"
run 0 2 0 2 2 path-mtu@us-1400=smaller_pieces dpd-restart@them:kernel=no_route
run 1 1 1 2 1 path-mtu@us-1400=smaller_pieces,always dpd-restart@them:kernel=no_route

# Three are no chance.
run 1 0 3 0 0 path-mtu@us-1000=smaller_pieces path-mtu@us-1400=smaller_pieces dpd-restart@them:kernel=no_route
says "no second try: 3 cases ask for one, and a run has at most 2"

# A fault that is not there, ours at both ends, a case that the fault cannot meet, a scenario that names no fault.
run 1 0 5 0 0 dpd-restart@them=no_route,route dpd-restart@them:kernel=no_route,no_restart \
    path-mtu@ours-1000=smaller_pieces,ours dpd-restart@us:kernel=no_route nat@us=smaller_pieces
says "no second try: dpd-restart@them: the fault of the peer is not to be seen"
says "no second try: dpd-restart@them:kernel: the fault of the peer is not to be seen"
says "no second try: path-mtu@ours-1000: AGAIN_CASES leaves it out"
says "no second try: dpd-restart@us:kernel: AGAIN_CASES leaves it out"

# Each case of fault.sh: what was wrong in the first try, and why there is no second.
cases=(
    # What is worse than the fault of the peer, alone and beside it.
    "a-clear-alone=clear_packets: 3 packets of the inner networks went unprotected"
    "a-clear=smaller_pieces,clear_packets: 3 packets of the inner networks went unprotected"
    "a-panic=smaller_pieces,panic: thread 'main' panicked at"
    "a-former-panic=smaller_pieces,former_panic: thread 'main' panicked at"
    "a-leak=smaller_pieces,leak: ==71==ERROR: LeakSanitizer"
    "a-died=smaller_pieces,died: us died"
    "a-left=smaller_pieces,left: left: left behind: /dev/left"
    "a-complaint=smaller_pieces,complaint: complaints: BUG: "
    # What the fault does not explain.
    "a-check=smaller_pieces,other_check: another check failed"
    "a-checks=smaller_pieces,two_checks: another check failed"
    "a-hangs=smaller_pieces,hangs: its status is 124"
    "a-unfinished=smaller_pieces,unfinished: the final checks did not run"
    # A fault that is not there.
    "a-not-ignored=smaller_pieces,not_ignored: the fault of the peer is not to be seen"
    "a-older=smaller_pieces,older: the fault of the peer is not to be seen"
    "a-unanswered=smaller_pieces,unanswered: the fault of the peer is not to be seen"
    "a-same-size=smaller_pieces,same_size: the fault of the peer is not to be seen"
    "a-not-reminded=smaller_pieces,not_reminded: the fault of the peer is not to be seen"
    "a-no-capture=smaller_pieces,no_capture: the fault of the peer is not to be seen"
    # No peer, and a case that AGAIN_CASES leaves out.
    "a-ours=smaller_pieces,ours: both ends are ours"
    "other=smaller_pieces: AGAIN_CASES leaves it out"
)
export IKE_LAB_SCENARIOS=second-tries
faults=()
for case_ in "${cases[@]}"; do faults+=("fault@${case_%%: *}"); done
run 1 0 ${#cases[@]} 0 0 "${faults[@]}"
for case_ in "${cases[@]}"; do says "no second try: fault@${case_%%=*}: ${case_#*: }"; done
say "second tries are for faults of the peer alone"
