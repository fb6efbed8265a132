# Settings shared by the host-side scripts. Sourced, never run.
# shellcheck shell=sh disable=SC2034

LAB_SRC=$(cd "$(dirname "$0")" && pwd)
LAB_TOP=$(cd "$LAB_SRC/../.." && pwd)
LAB_DIR=${IKE_LAB_DIR:-/var/cache/ike-lab}
LAB_ROOT=$LAB_DIR/root
LAB_SUITE=forky
# debootstrap has no script of its own for a suite newer than itself; every
# recent Debian suite is built by the same one.
LAB_SCRIPT=/usr/share/debootstrap/scripts/trixie

# What the guests and the host-side throughput test run. strongSwan 6.1 and
# OpenIKED 7.4 are the peers, user-mode-linux is the kernel with ESP.
LAB_PACKAGES="iproute2 iputils-ping fping kmod user-mode-linux iperf3 tcpdump ethtool procps \
nftables conntrack jq openssl \
strongswan-swanctl charon-systemd libstrongswan-standard-plugins \
libstrongswan-extra-plugins libcharon-extra-plugins \
libcharon-extauth-plugins strongswan-pki openiked softhsm2 freeradius freeradius-utils prometheus"

say() { printf '%s\n' "$*"; }

die() {
    say "lab: $*" >&2
    say "lab: to leave the lab out on a machine that cannot run it, set IKE_LAB=skip" >&2
    exit 2
}

# The one place where a skip is decided, so that every script agrees.
skip_if_asked() {
    if [ "${IKE_LAB:-}" = skip ]; then
        say "lab: skipped (IKE_LAB=skip)"
        exit 0
    fi
}

# header FILE WORD: what follows "# WORD:" at the top of a scenario.
header() { sed -n "s/^# $2: *//p" "$1" | head -n 1; }

# need_daemon: the binary under test, as $DAEMON.
need_daemon() {
    DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
    [ -x "$DAEMON" ] || die "no daemon at $DAEMON (cargo build --release -p ike-daemon)"
}

# The daemon with signature schemes from outside the engine (tests/schemes/program). `cargo test --workspace` builds it.
LAB_SCHEMES=${IKE_LAB_SCHEMES:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/debug/ike-test-schemes-daemon}

# start_daemon NAME FILE LEVEL: one without a data plane in the background, as $started, and waits until it answers.
# Its socket and log are $work/NAME.socket and $work/NAME.log.
start_daemon() {
    IKE_LOG=${IKE_LOG:-$3} "$DAEMON" --control "$work/$1.socket" run --data-plane none --config "$2" 2>"$work/$1.log" &
    started=$!
    until "$DAEMON" --control "$work/$1.socket" list >/dev/null 2>&1; do
        kill -0 $started 2>/dev/null || die "$(tail -n 5 "$work/$1.log")"
        sleep 0.02
    done
}
