#!/bin/bash
# Runs the tests of crates/xfrm that need a kernel with ESP (tests/guest)
# on the lab's kernels, each test in a network namespace of its own.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/guest.sh"

usage() {
    cat <<USAGE
usage: kernel-tests.sh [-k KERNEL]… [-a KERNEL_ARGUMENT]… [-t SECONDS] [TEST…]
  -k KERNEL   of: $LAB_KERNELS (all but travel, which is netdevsim's code)
  -a ARG      one more argument on the kernel's command line (ncpus=2 on netdevsim)
  -t SECONDS  for all tests on one kernel (400)
  TEST        a pattern over guest_FILE::TEST, e.g. 'guest_states::*' (all)
Tests find IKE_KERNEL_TESTS=must, IKE_KERNEL_TESTS_ESP=must and the kernel's name
in IKE_LAB_KERNEL. IKE_LAB_OUT names the folder for logs (target/lab).
USAGE
}

KERNELS=() ARGS=() LIMIT=400
while getopts k:a:t:h opt; do
    case $opt in
    k) KERNELS+=("$OPTARG") ;;
    a) ARGS+=("$OPTARG") ;;
    t) LIMIT=$OPTARG ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
# shellcheck disable=SC2206
[ ${#KERNELS[@]} -gt 0 ] || KERNELS=(${LAB_KERNELS% travel})

OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/kernel-tests
DAEMON=none

# build: the executables, hard links to save room, in $OUT/bin.
build() {
    local name path
    rm -rf "$OUT"
    mkdir -p "$OUT/bin"
    # As CI has built them already: of one package alone, features and so dependencies would differ.
    (cd "$LAB_TOP" && cargo test --workspace --test guest --locked --no-run --message-format=json) >"$OUT/build.json" ||
        die "the tests do not compile"
    while read -r name path; do
        ln "$path" "$OUT/bin/$name" 2>/dev/null || cp "$path" "$OUT/bin/$name"
    done < <(jq -r 'select(.profile.test == true and .executable != null and .target.kind == ["test"])
        | .target.name + " " + .executable' "$OUT/build.json" | grep '^guest ')
    [ -n "$(ls "$OUT/bin")" ] || die "crates/xfrm has no tests/guest"
}

# run_on KERNEL: status 0 if all passed.
run_on() {
    local out=$OUT/$1 limit=$LIMIT
    mkdir -p "$out"
    printf '%s\n' "${PATTERNS[@]}" >"$out/patterns"
    cat >"$out/env" <<ENV
LAB_RUN="bash /lab/guest/rust-tests.sh"
LAB_LOG=output
LAB_TIMEOUT=$limit
LAB_MODULES="dummy"
export IKE_LAB_KERNEL=$1
ENV
    : >"$out/output"
    SHARE=$OUT/bin guest "$out" "$limit" "$1" ${ARGS[@]+"${ARGS[@]}"}
    tail -q -n +1 -s 0.1 -f --pid=$guest "$out/output" | sed -u "s/^/$1: /"
    wait $guest 2>/dev/null || true
    [ -e "$out/rc" ] || {
        tail -n 20 "$out/console.log"
        say "$1: the guest ended without a result"
    }
    [ "$(cat "$out/rc" 2>/dev/null)" = 0 ]
}

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
for kernel in "${KERNELS[@]}"; do need_kernel "$kernel"; done
runnable=()
for kernel in "${KERNELS[@]}"; do
    if kernel_runs "$kernel"; then runnable+=("$kernel"); else say "ignored: the tests on $kernel: $WHY_NOT"; fi
done
KERNELS=("${runnable[@]}")
[ ${#KERNELS[@]} -gt 0 ] || exit 0
PATTERNS=("$@")
[ $# -gt 0 ] || PATTERNS=('*')
build
export LAB_SRC LAB_DIR LAB_ROOT DAEMON MEMORY=1G
# Side by side: a guest has one processor, and waits half of the time.
running=() failed=()
for kernel in "${KERNELS[@]}"; do
    run_on "$kernel" &
    running+=($!)
done
for index in "${!KERNELS[@]}"; do
    wait "${running[index]}" || failed+=("${KERNELS[index]}")
done
[ ${#failed[@]} = 0 ] || die "tests failed on: ${failed[*]} (logs: $OUT)"
say "kernel tests passed on: ${KERNELS[*]}"
