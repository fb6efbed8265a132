#!/bin/bash
# TCP throughput of the userspace data plane against strongSwan's userspace
# ESP (kernel-libipsec), on one veth, on this machine's own kernel.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<USAGE
usage: iperf.sh [OPTION]…
  -t SECONDS  each run of iperf3 (5)
  -r ROUNDS   of each program, in turns (2)
  -e SUITE    of ESP (aes256gcm16)
  -m RATIO    fail if ours is below RATIO of strongSwan's
  -p          plain ESP (protocol 50) of the daemon, which has no segmentation
              offload. Without it both have ESP in UDP: the daemon by default,
              and kernel-libipsec, because it has no other
IKE_LAB_KINDS names the programs: strongswan, daemon, plain. The last is the
daemon with plain ESP.
USAGE
}

SECONDS_EACH=5 ROUNDS=2 ESP=aes256gcm16 MIN= ENCAP=auto
while getopts t:r:e:m:ph opt; do
    case $opt in
    t) SECONDS_EACH=$OPTARG ;;
    r) ROUNDS=$OPTARG ;;
    e) ESP=$OPTARG ;;
    m) MIN=$OPTARG ;;
    p) ENCAP=false ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
skip_if_asked

DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/iperf
# Who is measured; strongswan alone shows the reference where there is no daemon.
KINDS=${IKE_LAB_KINDS:-strongswan daemon}

[ "$(id -u)" = 0 ] || die "needs root"
[ -e "$LAB_ROOT/usr/sbin/charon-systemd" ] || die "no root folder; run tests/lab/setup.sh"
[ -c /dev/net/tun ] || modprobe tun 2>/dev/null || die "this kernel has no tun"
case $KINDS in *daemon* | *plain*) [ -x "$DAEMON" ] || die "no daemon at $DAEMON (cargo build --release -p ike-daemon)" ;; esac

rm -rf "$OUT"
mkdir -p "$OUT"
cat >"$OUT/env" <<ENV
KINDS="$KINDS"
SECONDS_EACH=$SECONDS_EACH
ROUNDS=$ROUNDS
ESP=$ESP
ENCAP=$ENCAP
MIN=$MIN
ENV
export LAB_SRC LAB_ROOT DAEMON
# Own mounts, network and process ids: nothing is left behind, however it ends.
limit=$((120 + ROUNDS * 2 * (30 + 2 * SECONDS_EACH)))
exec timeout -s KILL "$limit" unshare -m -p -n -f --kill-child bash "$LAB_SRC/chroot.sh" "$OUT" \
    bash /lab/guest/iperf.sh
