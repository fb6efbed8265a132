#!/bin/bash
# Runs one command in a guest and prints what it prints; its status is this one's.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/guest.sh"

usage() {
    cat <<USAGE
usage: shell.sh [-d DIR] [-t SECONDS] [-a KERNEL_ARGUMENT]… KERNEL COMMAND…
  KERNEL     one of: $LAB_KERNELS
  -d DIR     the folder that the guest sees as /mnt and starts in (.)
  -t SECONDS ends it after that (120)
  -a ARG     one more argument on the kernel's command line
COMMAND is root in the initial network namespace, with bash's words, e.g.
  shell.sh trixie ip -V;   shell.sh forky 'ip link | head -3';   shell.sh netdevsim bash test.sh
IKE_DAEMON names a binary that the guest has as /bin-under-test/ike-daemon.
USAGE
}

SHARE=$PWD limit=120
args=()
while getopts d:t:a:h opt; do
    case $opt in
    d) SHARE=$(cd "$OPTARG" && pwd) ;;
    t) limit=$OPTARG ;;
    a) args+=("$OPTARG") ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] || { usage >&2 && exit 2; }
kernel=$1
shift

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
need_kernel "$kernel"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ $# = 1 ]; then
    printf 'cd /mnt\n%s\n' "$1" >"$out/command"
else
    printf 'cd /mnt\n%s\n' "$(printf '%q ' "$@")" >"$out/command"
fi
cat >"$out/env" <<ENV
LAB_RUN="bash /out/command"
LAB_LOG=output
LAB_TIMEOUT=$limit
LAB_MODULES="dummy"
ENV
: >"$out/output"
DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
export LAB_SRC LAB_DIR LAB_ROOT DAEMON SHARE
guest "$out" "$limit" "$kernel" "${args[@]}"
tail -q -n +1 -s 0.1 -f --pid=$guest "$out/output"
wait $guest 2>/dev/null || true
[ -e "$out/rc" ] || {
    tail -n 20 "$out/console.log" >&2
    die "the guest ended without a result"
}
exit "$(cat "$out/rc")"
