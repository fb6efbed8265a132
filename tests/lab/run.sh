#!/bin/bash
# Runs scenarios, each in a guest of its own, and says which passed.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"

usage() {
    cat <<USAGE
usage: run.sh [--list] [--keep] [-j N] [-p PLANE] [-k KERNEL] [SCENARIO[@CASE][:PLANE][:KERNEL]…]
  --list   names only
  --keep   keep the logs of scenarios that passed as well
  -j N     guests at a time (2)
  -p PLANE, -k KERNEL   whatever the scenarios say: the daemon's data plane
           (userspace, kernel), and the guest's kernel (forky, trixie, netdevsim)
IKE_DAEMON names the binary (target/release/ike-daemon), IKE_LAB_OUT the folder
for logs (target/lab), IKE_LAB_US=strongswan puts a second strongSwan in place of
the daemon, IKE_LAB_PLANE is another way to say -p, IKE_LAB=skip leaves the lab out.
USAGE
}

JOBS=2 KEEP=no LIST=no KERNEL='' PLANE=${IKE_LAB_PLANE:-}
WANTED=()
while [ $# -gt 0 ]; do
    case $1 in
    --list) LIST=yes ;;
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

OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}
DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}

# Every run of every scenario, a line for each: NAME SCENARIO CASE PLANE KERNEL.
runs() {
    local file scenario cases planes kernels
    for file in "$LAB_SRC"/scenarios/*.sh; do
        scenario=$(basename "$file" .sh)
        cases=$(header "$file" CASES)
        # shellcheck disable=SC2086
        [ ${#WANTED[@]} -eq 0 ] || cases=$(say $cases $(header "$file" MORE))
        # Only where it is asked for by name.
        [ -n "$cases" ] || [ -z "$(header "$file" MORE)" ] || continue
        planes=${PLANE:-$(header "$file" PLANE)}
        kernels=${KERNEL:-$(header "$file" KERNELS)}
        runs_of "$scenario" "${cases:--}" "${planes:-userspace}" "${kernels:-forky}"
    done
}

# The product of cases, planes and kernels; ESP in user space is the same on
# every kernel, so that it runs on one. What goes without saying is not in the name.
runs_of() {
    local scenario=$1 c plane kernel name
    for c in $2; do
        for plane in $3; do
            for kernel in $4; do
                [ "$plane" = kernel ] || [ "$kernel" = "${4%% *}" ] || continue
                name=$scenario
                [ "$c" = - ] || name+=@$c
                [ "$plane" = "${3%% *}" ] || name+=:$plane
                [ "$kernel" = "${4%% *}" ] || name+=:$kernel
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

# In a line of its own, for an error in a pipe would go unseen. What two patterns
# name runs once, for it has one folder.
chosen=$(select_runs)
chosen=$(say "$chosen" | awk '!seen[$0]++')
names=$(say "$chosen" | cut -d ' ' -f 1)
if [ $LIST = yes ]; then
    say "$names"
    exit
fi

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
for kernel in $(say "$chosen" | awk '{ print $5 }' | sort -u); do need_kernel "$kernel"; done

mkdir -p "$OUT"
export LAB_SRC LAB_DIR LAB_ROOT OUT DAEMON KEEP IKE_LAB_US="${IKE_LAB_US:-}"
rc=0
say "$chosen" | xargs -d '\n' -n 1 -P "$JOBS" "$LAB_SRC/run-one.sh" || rc=$?
[ "$rc" = 0 ] || [ "$rc" = 123 ] || die "the run broke off ($rc)"

passed=0 failed=0
for name in $names; do
    if [ "$(cat "$OUT/$name/rc" 2>/dev/null)" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    [ "$KEEP" = yes ] || [ "$(cat "$OUT/$name/rc" 2>/dev/null)" != 0 ] || rm -rf "${OUT:?}/$name"
done
say "$passed passed, $failed failed"
[ "$failed" = 0 ]
