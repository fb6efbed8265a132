#!/bin/bash
# QRoNS's set-up and measurement in a guest: tenants in namespaces in place of
# virtual machines on virtual functions, and simulated NICs. It shows that all of
# it works; its figures say nothing about hardware.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/guest.sh"

usage() {
    cat <<USAGE
usage: qrons.sh [-N TENANTS] [-T SECONDS] [OPTION]…
  -N TENANTS   how many there are (16)
  -T SECONDS   for all of it (3000)
  OPTION       of qrons-hosts.sh: -o, -p, -n, -t, -r, -u, -L
The table goes to standard output, logs to IKE_LAB_OUT (target/lab)/qrons.
USAGE
}

tenants=16 limit=3000
options=()
while getopts N:T:o:p:n:t:r:u:Lh opt; do
    case $opt in
    N) tenants=$OPTARG ;;
    T) limit=$OPTARG ;;
    L) options+=(-L) ;;
    h) usage && exit ;;
    \?) usage >&2 && exit 2 ;;
    *) options+=("-$opt" "$OPTARG") ;;
    esac
done

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
need_kernel netdevsim
DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
[ -x "$DAEMON" ] || die "no daemon at $DAEMON (cargo build --release -p ike-daemon)"
OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/qrons
rm -rf "$OUT"
mkdir -p "$OUT"
cat >"$OUT/env" <<ENV
LAB_RUN="bash /lab/guest/qrons.sh"
LAB_LOG=output
LAB_TIMEOUT=$limit
LAB_MODULES=
LAB_SCENARIO=qrons
TENANTS=$tenants
ENV
: >"$OUT/output"
printf '%q ' "${options[@]}" >"$OUT/options"
export LAB_SRC LAB_DIR LAB_ROOT DAEMON MEMORY=${MEMORY:-2G}
guest "$OUT" "$limit" netdevsim
tail -q -n +1 -s 0.1 -f --pid=$guest "$OUT/output"
wait $guest 2>/dev/null || true
[ -e "$OUT/rc" ] || {
    tail -n 20 "$OUT/console.log" >&2
    die "the guest ended without a result"
}
exit "$(cat "$OUT/rc")"
