#!/bin/bash
# Boots one guest for one run of a scenario. Called by run.sh with a line of
# its list: NAME SCENARIO CASE PLANE KERNEL, - for no case.
set -eu
. "$LAB_SRC/common.sh"
. "$LAB_SRC/guest.sh"
read -r name scenario case_ plane kernel <<<"$1"
file=$LAB_SRC/scenarios/$scenario.sh
out=$OUT/$name
[ "$case_" != - ] || case_=

rm -rf "$out"
mkdir -p "$out"
limit=$(header "$file" TIMEOUT)
limit=${limit:-90}
us=$(header "$file" US)
them=$(header "$file" THEM)
us=${us:-${IKE_LAB_US:-daemon}}
them=${them:-strongswan}
cat >"$out/env" <<ENV
LAB_RUN="bash /lab/guest/scenario.sh"
LAB_LOG=scenario.log
LAB_TIMEOUT=$limit
LAB_MODULES="$(header "$file" MODULES)"
LAB_SCENARIO=$scenario
CASE=$case_
KERNEL=$kernel
DATA_PLANE=$plane
US=$us
THEM=$them
ENV
read -r -a kernel_args <<<"$(header "$file" KERNEL_ARGS)"

report() {
    local word=$1 seconds=$2
    if [ "$word" = ok ]; then
        printf 'ok   %-46s %3ss\n' "$name" "$seconds"
        return
    fi
    # One write, so that two failing guests do not mix their lines.
    {
        printf 'FAIL %-46s %3ss\n' "$name" "$seconds"
        for log in scenario us them console; do
            [ -s "$out/$log.log" ] || continue
            printf '  -- %s\n' "$out/$log.log"
            tail -n 25 "$out/$log.log" | cut -c 1-300 | sed 's/^/  | /'
        done
    } >"$out/report.txt"
    cat "$out/report.txt"
}

begin=$(date +%s)
if [ "$us" = daemon ] && [ ! -x "$DAEMON" ]; then
    echo "FAIL: no daemon at $DAEMON (cargo build --release -p ike-daemon)" >"$out/scenario.log"
    report FAIL 0
    exit 1
fi

guest "$out" "$limit" "$kernel" "${kernel_args[@]}"
wait $guest 2>/dev/null || true

rc=$(cat "$out/rc" 2>/dev/null || echo none)
if [ "$rc" = 0 ]; then
    report ok $(($(date +%s) - begin))
else
    [ "$rc" != none ] || echo "FAIL: the guest ended without a result" >>"$out/scenario.log"
    report FAIL $(($(date +%s) - begin))
    exit 1
fi
