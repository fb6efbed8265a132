#!/bin/bash
# Boots one guest for one scenario[@case]. Called by run.sh.
set -eu
name=$1
file=$LAB_SRC/scenarios/${name%@*}.sh
out=$OUT/$name
case_=${name#*@}
[ "$case_" != "$name" ] || case_=

header() { sed -n "s/^# $1: *//p" "$file" | head -n 1; }

rm -rf "$out"
mkdir -p "$out"
limit=$(header TIMEOUT)
limit=${limit:-90}
us=$(header US)
them=$(header THEM)
us=${us:-${IKE_LAB_US:-daemon}}
them=${them:-strongswan}
cat >"$out/env" <<ENV
LAB_SCENARIO=${name%@*}
CASE=$case_
LAB_TIMEOUT=$limit
LAB_MODULES="$(header MODULES)"
US=$us
THEM=$them
ENV

report() {
    local word=$1 seconds=$2
    if [ "$word" = ok ]; then
        printf 'ok   %-44s %3ss\n' "$name" "$seconds"
        return
    fi
    # One write, so that two failing guests do not mix their lines.
    {
        printf 'FAIL %-44s %3ss\n' "$name" "$seconds"
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

# Own mounts and own process ids: whatever happens in there, nothing stays
# mounted or running when the outer process ends, be it by KILL (unshare sits
# out a TERM).
timeout -s KILL $((limit + 40)) setpriv --pdeathsig KILL \
    unshare -m -p -f --kill-child bash "$LAB_SRC/boot.sh" "$out" >"$out/console.log" 2>&1 </dev/null &
guest=$!
trap 'kill -KILL $guest; exit 130' INT TERM
wait $guest 2>/dev/null || true

rc=$(cat "$out/rc" 2>/dev/null || echo none)
if [ "$rc" = 0 ]; then
    report ok $(($(date +%s) - begin))
else
    [ "$rc" != none ] || echo "FAIL: the guest ended without a result" >>"$out/scenario.log"
    report FAIL $(($(date +%s) - begin))
    exit 1
fi
