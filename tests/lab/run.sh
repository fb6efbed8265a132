#!/bin/bash
# Runs scenarios in guests, and says which passed and what they took.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/peer-faults.sh"

usage() {
    cat <<USAGE
usage: run.sh [--list] [--all] [--own] [--keep] [-j N] [-p PLANE] [-k KERNEL] [SCENARIO[@CASE][:PLANE][:KERNEL]…]
  --list   names only
  --all    also the cases that otherwise run only by name
  --own    a guest for each case, that no other has used
  --keep   keep the logs of scenarios that passed as well
  -j N     guests at a time ($JOBS)
  -p PLANE, -k KERNEL   whatever the scenarios say: the daemon's data plane
           (userspace, kernel), and the guest's kernel (travel, forky, trixie, netdevsim)
IKE_DAEMON names the binary (target/release/ike-daemon), IKE_LAB_OUT the folder
for logs (target/lab), IKE_LAB_US=strongswan puts a second strongSwan in place of
the daemon, IKE_LAB_PLANE is another way to say -p, IKE_LAB=skip leaves the lab out.
USAGE
}

JOBS=4 KEEP=no LIST=no ALL=no OWN=no KERNEL='' PLANE=${IKE_LAB_PLANE:-}
WANTED=()
while [ $# -gt 0 ]; do
    case $1 in
    --list) LIST=yes ;;
    --all) ALL=yes ;;
    --own) OWN=yes ;;
    --keep) KEEP=yes ;;
    -k) KERNEL=$2 && shift ;;
    -p) PLANE=$2 && shift ;;
    -j) JOBS=$2 && shift ;;
    -j*) JOBS=${1#-j} ;;
    -h | --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) WANTED+=("$1") ;;
    esac
    shift
done

# A folder of scenarios in the lab's; isolation.sh has others.
SCENARIOS=$LAB_SRC/${IKE_LAB_SCENARIOS:-scenarios}
OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}
# What runs the cases: guests, or for second-tries.sh a program that only writes their folders.
WORKER=${IKE_LAB_WORKER:-$LAB_SRC/worker.sh}
DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
# What runs only where it is asked for is there to be asked for.
[ ${#WANTED[@]} -eq 0 ] || ALL=yes

# What the tops of the scenarios say, a line for each: SCENARIO|CASES|MORE|PLANE|KERNELS|KERNEL_ARGS|BOOT.
headers() {
    awk 'function row() { if (name != "") print name "|" v["CASES"] "|" v["MORE"] "|" v["PLANE"] "|" v["KERNELS"] "|" v["KERNEL_ARGS"] "|" v["BOOT"] }
        FNR == 1 { row(); name = FILENAME; sub(/.*\//, "", name); sub(/\.sh$/, "", name); split("", v) }
        /^# [A-Z_]+:/ { word = substr($2, 1, length($2) - 1)
                        if (!(word in v)) { sub(/^# [A-Z_]+: */, ""); v[word] = $0 } }
        END { row() }' "$SCENARIOS"/*.sh
}

# Every run of every scenario, a line for each: NAME SCENARIO CASE PLANE KERNEL.
runs() {
    local scenario cases more planes kernels rest
    while IFS='|' read -r scenario cases more planes kernels rest; do
        cases=$(listed "$cases") more=$(listed "$more")
        if [ $ALL = yes ]; then
            cases=$cases${more:+ $more}
        elif [ -z "$cases" ] && [ -n "$more" ]; then
            continue
        fi
        planes=${PLANE:-$planes}
        kernels=${KERNEL:-$kernels}
        runs_of "$scenario" "${cases:--}" "${planes:-userspace}" "${kernels:-travel}"
    done <<<"$HEADERS"
}

# listed CASES: prints the cases. `!PROGRAM ARGUMENTS` in their place runs a program of this folder that prints them.
listed() {
    case $1 in
    !*) (cd "$LAB_SRC" && ./${1#!} | tr '\n' ' ') ;;
    *) say "$1" ;;
    esac
}

# The product of cases, planes and kernels; ESP in user space is the same on
# every kernel, so that it runs on one. What goes without saying is not in the name.
# KERNEL@CASE,CASE: by default only these run there as well.
runs_of() {
    local scenario=$1 c plane kernel name only first=${4%% *}
    first=${first%@*}
    for c in $2; do
        for plane in $3; do
            for kernel in $4; do
                only=
                case $kernel in *@*) only=,${kernel#*@}, kernel=${kernel%@*} ;; esac
                [ $ALL = yes ] || [ -z "$only" ] || [[ $only == *,$c,* ]] || continue
                [ "$plane" = kernel ] || [ "$kernel" = "$first" ] || continue
                name=$scenario
                [ "$c" = - ] || name+=@$c
                [ "$plane" = "${3%% *}" ] || name+=:$plane
                [ "$kernel" = "$first" ] || name+=:$kernel
                say "$name $scenario $c $plane $kernel"
            done
        done
    done
}

# What is wanted is a name, a scenario, a scenario@case, or a pattern over all three.
select_runs() {
    local want name rest matched all
    [ ${#WANTED[@]} -gt 0 ] || { runs && return; }
    all=$(runs)
    for want in "${WANTED[@]}"; do
        matched=no
        while read -r name rest; do
            # shellcheck disable=SC2053
            if [[ $name == $want || ${name%%:*} == $want || ${name%%[@:]*} == $want ]]; then
                say "$name $rest"
                matched=yes
            fi
        done <<<"$all"
        [ $matched = yes ] || die "no scenario $want (run.sh --list)"
    done
}

# The queue of worker.sh: what each took once and which guest it needs, the dearest first.
queue() {
    local name scenario rest boot took_ args_ own_
    declare -A took most args own
    # By seconds.txt; what it does not know is as dear as the dearest of its scenario.
    while read -r took_ name; do
        scenario=${name%%[@:]*} took[$name]=$took_
        [ "${most[$scenario]:-0}" -ge "$took_" ] || most[$scenario]=$took_
    done <"$LAB_SRC/seconds.txt"
    while IFS='|' read -r scenario _ _ _ _ args_ own_; do
        args[$scenario]=$args_ own[$scenario]=$own_
    done <<<"$HEADERS"
    while read -r name scenario rest; do
        args_=${args[$scenario]}
        boot=${rest##* }${args_:+,${args_// /,}}
        [ "$OWN${own[$scenario]}" = no ] || boot=own
        say "${took[$name]:-${most[$scenario]:-10}} $boot $name $scenario $rest $args_"
    done | sort -s -k 1,1nr
}

HEADERS=$(headers)
# In a line of its own, for an error in a pipe would go unseen. What two patterns
# name runs once, for it has one folder.
chosen=$(select_runs)
chosen=$(say "$chosen" | awk '!seen[$0]++')
names=$(say "$chosen" | cut -d ' ' -f 1)
if [ $LIST = yes ]; then
    say "$names"
    exit
fi

for name in $(say "$names" | sed 's/[@:].*//' | sort -u); do complete_header "$SCENARIOS/$name.sh"; done

if [ -z "${IKE_LAB_WORKER:-}" ]; then
    skip_if_asked
    [ "$(id -u)" = 0 ] || die "needs root"
    for kernel in $(say "$chosen" | awk '{ print $5 }' | sort -u); do need_kernel "$kernel"; done
fi

# A kernel that this machine cannot run is nobody's fault, but its cases are not passed either.
ignored=0
for kernel in $LAB_KERNELS; do
    kernel_runs "$kernel" && continue
    lost=$(awk -v kernel="$kernel" '$5 == kernel { print $1 }' <<<"$chosen")
    [ -n "$lost" ] || continue
    for name in $lost; do say "ignored $name: $WHY_NOT"; done
    ignored=$((ignored + $(wc -l <<<"$lost")))
    chosen=$(awk -v kernel="$kernel" '$5 != kernel' <<<"$chosen")
done
names=$(say "$chosen" | cut -d ' ' -f 1)
[ -n "$chosen" ] || { say "0 passed, 0 failed, $ignored ignored" && exit; }

mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
for name in .guests .again $names; do rm -rf "${OUT:?}/$name"; done
mkdir "$OUT/.guests"
QUEUE=$OUT/.guests/queue
say "$chosen" | queue >"$QUEUE"
export LAB_SRC LAB_DIR LAB_ROOT OUT DAEMON QUEUE SCENARIOS IKE_LAB_US="${IKE_LAB_US:-}"
begin=$EPOCHSECONDS
workers=()
for number in $(seq "$JOBS"); do
    setpriv --pdeathsig KILL "$WORKER" "$number" &
    workers+=($!)
done
trap 'kill -KILL "${workers[@]}" 2>/dev/null; exit 130' INT TERM
for worker in "${workers[@]}"; do wait "$worker" || say "a worker broke off ($?)"; done

status_of() { cat "$OUT/$1/rc" 2>/dev/null || echo none; }

# What a known fault of the peer explains runs once more, in a guest of its own.
again=()
while read -r name scenario case_ _; do
    [ "$(status_of "$name")" != 0 ] && [ "${IKE_LAB_AGAIN:-}" != no ] || continue
    why=$(header "$SCENARIOS/$scenario.sh" AGAIN)
    [ -n "$why" ] || continue
    if second_try "$case_" "$SCENARIOS/$scenario.sh" "$OUT/$name"; then
        say "again: $name: $why"
        again+=("$name")
    else
        say "no second try: $name: $WHY_NOT"
    fi
done <<<"$chosen"
passed_again=()
if [ ${#again[@]} -gt $MOST_SECOND_TRIES ]; then
    say "no second try: ${#again[@]} cases ask for one, and a run has at most $MOST_SECOND_TRIES"
    again=()
elif [ ${#again[@]} -gt 0 ]; then
    # Its lines are not those of this run.
    IKE_LAB_AGAIN=no IKE_LAB_OUT=$OUT/.again "$LAB_SRC/run.sh" --own --keep -j "$JOBS" ${PLANE:+-p "$PLANE"} \
        ${KERNEL:+-k "$KERNEL"} "${again[@]}" 2>&1 | sed 's/^/second try: /' || true
    for name in "${again[@]}"; do
        [ "$(cat "$OUT/.again/$name/rc" 2>/dev/null)" = 0 ] || continue
        passed_again+=("$name")
        say "passed at its second try: $name; its first try is in $OUT/$name"
    done
fi

passed=0 failed=0
for name in $names; do
    if [ "$(status_of "$name")" = 0 ]; then
        passed=$((passed + 1))
        [ "$KEEP" = yes ] || rm -rf "${OUT:?}/$name"
    elif [[ " ${passed_again[*]} " == *" $name "* ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
cat "$OUT"/.guests/times.* >"$OUT/times"
[ "$KEEP" = yes ] || rm -rf "$OUT/.guests"
say "the ten dearest:"
sed -n 's/^case //p' "$OUT/times" | sort -s -k 1,1nr | head -n 10 | sed 's/^/  /'
awk -v wall=$((EPOCHSECONDS - begin)) -v jobs="$JOBS" '{ n[$1]++; sum[$1] += $2 }
    END { printf "%d cases %d s, %d boots %d s, together %d s with %d guests at a time\n",
              n["case"], sum["case"], n["boot"], sum["boot"], wall, jobs }' "$OUT/times"
[ "${IKE_LAB_AGAIN:-}" = no ] || say "second tries: ${#again[@]}, passed: ${#passed_again[@]}"
[ -z "${IKE_LAB_SECOND_TRIES:-}" ] || printf '%s\n' "${again[@]}" | sed '/^$/d' >>"$IKE_LAB_SECOND_TRIES"
say "$passed passed, $failed failed$([ $ignored = 0 ] || say ", $ignored ignored")"
[ "$failed" = 0 ]
