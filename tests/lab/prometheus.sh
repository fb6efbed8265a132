#!/bin/bash
# A real Prometheus scrapes a daemon with live SAs and with one connection that is configured and down: promtool
# checks the scrape, and every query of the Grafana dashboard is asked by Prometheus' HTTP API. Two daemons on a
# veth on this machine's own kernel, ESP in user space.
# usage: prometheus.sh
set -eu
. "$(dirname "$0")/common.sh"
skip_if_asked

DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/prometheus
[ "$(id -u)" = 0 ] || die "needs root"
for program in prometheus promtool; do
    [ -x "$LAB_ROOT/usr/bin/$program" ] || die "no $program in $LAB_ROOT; run tests/lab/setup.sh"
done
[ -c /dev/net/tun ] || modprobe tun 2>/dev/null || die "this kernel has no tun"
[ -x "$DAEMON" ] || die "no daemon at $DAEMON (cargo build --release -p ike-daemon)"

rm -rf "$OUT"
mkdir -p "$OUT"
cp "$LAB_TOP/crates/ike-daemon/dist/grafana/ike-daemon.json" "$OUT/dashboard.json"
export LAB_SRC LAB_ROOT DAEMON
# Own mounts, network and process ids: nothing is left behind, however it ends.
exec timeout -s KILL 120 unshare -m -p -n -f --kill-child bash "$LAB_SRC/chroot.sh" "$OUT" \
    bash /lab/guest/prometheus.sh
