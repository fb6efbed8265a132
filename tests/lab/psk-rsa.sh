#!/bin/bash
# The measurements of the PSK/RSA paper (Pratama et al., 2025): setup time,
# throughput, latency, jitter and loss of a tunnel, by pre-shared key and by
# RSA-2048 certificates, on a good and on an impaired link, with this project's
# daemon and with strongSwan in turns. The paper's figures stand beside.
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/guest.sh"

usage() {
    cat <<USAGE
usage: psk-rsa.sh [OPTION]…
  -n COUNT    handshakes of each kind (10)
  -i COUNT    runs of iperf3 in each direction (1)
  -t SECONDS  each of them (5)
  -p COUNT    rounds of 50 pings, 0.2 s apart (1)
  -F          the paper's counts: -i 10 -t 10 -p 5
  -m METHOD   psk or rsa (both; may be given twice)
  -l LINK     normal or impaired (both; may be given twice)
  -u          ESP in user space on this machine's own kernel, not in a guest: the
              daemon's against strongSwan's kernel-libipsec. The impaired link needs
              a kernel with netem, and the limit of 100 Mbit/s too
  -k KERNEL   the guest's: one of $LAB_KERNELS (forky)
  -c FILE     the table as CSV, too
In a guest, ESP is that of the kernel, whose cryptography is generic C in one process.
The table goes to standard output, logs to IKE_LAB_OUT (target/lab)/psk-rsa.
USAGE
}

count=10 iperfs=1 seconds=5 pings=1 methods=() links=() where=guest kernel=forky csv=
while getopts n:i:t:p:Fm:l:uk:c:h opt; do
    case $opt in
    n) count=$OPTARG ;;
    i) iperfs=$OPTARG ;;
    t) seconds=$OPTARG ;;
    p) pings=$OPTARG ;;
    F) iperfs=10 seconds=10 pings=5 ;;
    m) methods+=("$OPTARG") ;;
    l) links+=("$OPTARG") ;;
    u) where=host ;;
    k) kernel=$OPTARG ;;
    c) csv=$OPTARG ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
[ ${#methods[@]} != 0 ] || methods=(psk rsa)
[ ${#links[@]} != 0 ] || links=(normal impaired)

skip_if_asked
[ "$(id -u)" = 0 ] || die "needs root"
DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
[ -x "$DAEMON" ] || die "no daemon at $DAEMON (cargo build --release -p ike-daemon)"
OUT=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/psk-rsa
rm -rf "$OUT"
mkdir -p "$OUT"
each=$((60 + count * 20 + iperfs * 4 * (seconds + 10) + pings * 20))
limit=$((60 + ${#links[@]} * ${#methods[@]} * 2 * each))
cat >"$OUT/env" <<ENV
LAB_RUN="bash /lab/guest/psk-rsa.sh"
LAB_LOG=progress.log
LAB_TIMEOUT=$limit
LAB_MODULES="sch_netem"
LAB_SCENARIO=psk-rsa
WHERE=$where
METHODS="${methods[*]}"
LINKS="${links[*]}"
HANDSHAKES=$count
IPERFS=$iperfs
SECONDS_EACH=$seconds
PINGS=$pings
ENV
export LAB_SRC LAB_DIR LAB_ROOT DAEMON
if [ $where = host ]; then
    [ -c /dev/net/tun ] || die "this kernel has no tun"
    status=0
    timeout -s KILL "$limit" unshare -m -p -n -f --kill-child bash "$LAB_SRC/chroot.sh" "$OUT" \
        bash /lab/guest/psk-rsa.sh >"$OUT/progress.log" 2>&1 || status=$?
else
    need_kernel "$kernel"
    : >"$OUT/progress.log"
    guest "$OUT" "$limit" "$kernel"
    tail -q -n +1 -s 0.2 -f --pid=$guest "$OUT/progress.log" | grep --line-buffered '^== ' >&2 || true
    wait $guest 2>/dev/null || true
    status=$(cat "$OUT/rc" 2>/dev/null || echo 1)
fi
[ "$status" = 0 ] || {
    tail -n 25 "$OUT/progress.log" >&2
    [ ! -e "$OUT/console.log" ] || tail -n 5 "$OUT/console.log" >&2
    die "not measured"
}
[ -z "$csv" ] || cp "$OUT/results.csv" "$csv"
awk -f "$LAB_SRC/psk-rsa.awk" "$OUT/results.csv"
