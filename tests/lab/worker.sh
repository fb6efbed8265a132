#!/bin/bash
# Boots guests and has them run cases from run.sh's queue, until it is empty. Called by run.sh: worker.sh NUMBER.
# A line of the queue: SECONDS BOOT NAME SCENARIO CASE PLANE KERNEL [KERNEL_ARGUMENT…], - for no case. BOOT is what
# cases that can share a guest have in common; `own` is for a guest that no other case uses.
set -eu
. "$LAB_SRC/common.sh"
. "$LAB_SRC/guest.sh"
me=$1
# The guest that runs: its BOOT, its folder, the cases it was given.
boot='' folder='' given=()
boots=0

exec {never}<> <(:)
pause() { read -r -t "$1" -u "$never" _ || true; }
now() { echo "${EPOCHREALTIME/./}"; }
# since MICROSECONDS: in seconds, with a tenth.
since() { local took=$((($(now) - $1) / 100000)) && echo "$((took / 10)).$((took % 10))"; }

# take: the next case, in $line. The dearest first; but a guest that is there is kept as long as what it can do is not
# much cheaper than what another guest could begin with.
take() {
    local number
    exec {lock}>"$QUEUE.lock"
    flock "$lock"
    number=$(awk -v boot="$boot" 'NR == 1 { first = $1 } !found && boot != "" && $2 == boot { found = NR; mine = $1 }
        END { if (NR) print (found && mine + 20 >= first ? found : 1) }' "$QUEUE")
    line=
    if [ -n "$number" ]; then
        line=$(sed -n "${number}p" "$QUEUE")
        sed -i "${number}d" "$QUEUE"
    fi
    exec {lock}>&-
    [ -n "$line" ]
}

# wait_file FILE SECONDS: the guest writes it in time.
wait_file() {
    local end=$((SECONDS + $2))
    until [ -e "$1" ]; do
        if ! kill -0 "$guest" 2>/dev/null || [ $SECONDS -ge $end ]; then
            [ -e "$1" ]
            return
        fi
        pause 0.05
    done
}

boot_guest() {
    local from
    from=$(now)
    boots=$((boots + 1))
    boot=$1 folder=$OUT/.guests/$me.$boots given=()
    shift
    mkdir -p "$folder"
    cat >"$folder/env" <<ENV
LAB_RUN="bash /lab/guest/cases.sh"
LAB_LOG=cases.log
LAB_TIMEOUT=0
LAB_MODULES=
ENV
    SHARE=$OUT guest "$folder" 86400 "$@"
    echo "$guest" >"$folder/pid"
    wait_file "$folder/ready" 60 || end_guest
    echo "boot $(since "$from")" >>"$OUT/.guests/times.$me"
}

end_guest() {
    [ -n "$boot" ] || return 0
    kill -KILL "$guest" 2>/dev/null || true
    wait "$guest" 2>/dev/null || true
    boot=
}

# prepare NAME SCENARIO CASE PLANE KERNEL: the folder of the case.
prepare() {
    local name=$1 scenario=$2 case_=$3 plane=$4 kernel=$5
    file=$SCENARIOS/$scenario.sh out=$OUT/$name
    [ "$case_" != - ] || case_=
    mkdir -p "$out"
    limit=$(header "$file" TIMEOUT)
    limit=${limit:-90}
    us=$(header "$file" US)
    them=$(header "$file" THEM)
    us=${us:-${IKE_LAB_US:-daemon}}
    cat >"$out/env" <<ENV
LAB_RUN="bash /lab/guest/scenario.sh"
LAB_LOG=scenario.log
LAB_TIMEOUT=$limit
LAB_MODULES="$(header "$file" MODULES)"
LAB_FILE=/lab/${file#"$LAB_SRC"/}
LAB_SCENARIO=$scenario
CASE=$case_
KERNEL=$kernel
DATA_PLANE=$plane
ROUNDS=${IKE_LAB_ROUNDS:-}
SEED=${IKE_LAB_SEED:-}
US=$us
THEM=${them:-strongswan}
ENV
}

report() {
    local word=$1 name=$2 seconds=$3 log
    echo "case $seconds $name" >>"$OUT/.guests/times.$me"
    if [ "$word" = ok ]; then
        log=
        # Of the kernel, not of what was tested; but somebody should know.
        [ ! -s "$out/complaints" ] || log="  kernel: $(head -n 1 "$out/complaints")"
        printf 'ok   %-46s %5ss%s\n' "$name" "$seconds" "$log"
        return
    fi
    # One write, so that two workers do not mix their lines.
    {
        printf 'FAIL %-46s %5ss\n' "$name" "$seconds"
        [ ${#given[@]} -le 1 ] || printf '  -- the guest had run before: %s\n' "${given[*]::${#given[@]}-1}"
        for log in left complaints case.log scenario.log us.log them.log console.log; do
            [ -s "$out/$log" ] || continue
            printf '  -- %s\n' "$out/$log"
            tail -n 25 "$out/$log" | cut -c 1-300 | sed 's/^/  | /'
        done
    } >"$out/report.txt"
    cat "$out/report.txt"
}

# run_case NAME: in the guest that is there.
run_case() {
    local name=$1 from number rc spent
    from=$(now)
    if [ -z "$boot" ]; then
        echo "FAIL: the guest did not boot" >"$out/scenario.log"
        tail -n 100 "$folder/console.log" >"$out/console.log"
        report FAIL "$name" 0.0
        return
    fi
    given+=("$name")
    number=${#given[@]}
    echo "$name" >"$folder/case.new"
    mv "$folder/case.new" "$folder/case.$number"
    # The guest itself ends a case at its limit. What is beyond is a guest that hangs.
    if wait_file "$folder/done.$number" $((limit + HANGS)); then
        rc=$(cat "$out/status" 2>/dev/null || echo none)
        spent=$(cat "$folder/done.$number")
        # A guest of its own ends with the case, whatever that did to it.
        [ "$boot" = own ] || [ ! -s "$out/left" ] || rc=left
    else
        rc=none spent=spent
        if kill -0 "$guest" 2>/dev/null; then
            echo "FAIL: the guest hangs" >>"$out/scenario.log"
        else
            echo "FAIL: the guest ended without a result" >>"$out/scenario.log"
        fi
        tail -n 100 "$folder/console.log" >"$out/console.log"
    fi
    echo "$rc" >"$out/rc"
    if [ "$rc" = 0 ]; then report ok "$name" "$(since "$from")"; else report FAIL "$name" "$(since "$from")"; fi
    [ "$spent" = again ] || end_guest
}

HANGS=${IKE_LAB_HANGS:-40}
while take; do
    read -r _ wants name scenario case_ plane kernel args <<<"$line"
    prepare "$name" "$scenario" "$case_" "$plane" "$kernel"
    if [ "$us" = daemon ] && [ ! -x "$DAEMON" ]; then
        echo "FAIL: no daemon at $DAEMON (cargo build --release -p ike-daemon)" >"$out/scenario.log"
        report FAIL "$name" 0.0
        continue
    fi
    if [ "$wants" = own ] || [ "$wants" != "$boot" ]; then
        end_guest
        # shellcheck disable=SC2086
        boot_guest "$wants" "$kernel" $args
    fi
    run_case "$name"
    [ "$wants" != own ] || end_guest
done
end_guest
