#!/bin/bash
# The Debian package, installed by dpkg into a clean copy of the lab's root and run there by systemd: start,
# watchdog, credentials, reload, metrics, sandbox, stop, purge. Needs root and a kernel with overlayfs; nothing
# is written to the lab's root. crates/ike-daemon/dist/package.sh makes the package of the release build.
# Then the same in a guest whose kernel has ESP: the unit as it is, with the sandbox, has a tunnel with strongSwan.
# usage: deb.sh [PACKAGE.deb]
set -eu
. "$(dirname "$0")/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/guest.sh"
skip_if_asked

[ "$(id -u)" = 0 ] || die "needs root"
[ -x "$LAB_ROOT/usr/lib/systemd/systemd" ] || die "no systemd in $LAB_ROOT; run tests/lab/setup.sh"
out=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/deb
rm -rf "$out"
mkdir -p "$out"
deb=${1:-}
if [ -z "$deb" ]; then
    deb=$out/ike-daemon.deb
    "$LAB_TOP/crates/ike-daemon/dist/package.sh" ${IKE_DAEMON:+--program "$IKE_DAEMON"} "$deb" >"$out/build.log" 2>&1 || {
        tail -n 20 "$out/build.log"
        die "no package"
    }
fi
cp "$deb" "$out/package.deb"
cp "$LAB_SRC/guest/deb.sh" "$out/inside.sh"
# systemd as the first process of namespaces of its own; it ends with them.
timeout -s KILL 150 unshare -m -p -f -n -u -i -C --kill-child \
    bash "$LAB_SRC/boot-systemd.sh" "$out" >"$out/console.log" 2>&1 </dev/null || true
cat "$out/log" 2>/dev/null || tail -n 30 "$out/console.log"
[ "$(cat "$out/rc" 2>/dev/null)" = 0 ] || die "the package does not work; see $out"
say "the package was installed, run and removed"

DAEMON=${IKE_DAEMON:-${CARGO_TARGET_DIR:-$LAB_TOP/target}/release/ike-daemon}
[ -x "$DAEMON" ] || die "no daemon at $DAEMON (cargo build --release -p ike-daemon)"
# Fault: in .cargo/config.toml, leave out `-z now`.
elf=$(readelf -dlW "$DAEMON")
for part in BIND_NOW GNU_RELRO 'Flags: NOW PIE'; do
    [[ $elf = *"$part"* ]] || die "$DAEMON: not hardened by the linker: $part is missing"
done
need_kernel forky
kernel=$out/kernel
mkdir "$kernel"
cp "$out/package.deb" "$kernel/"
cat >"$kernel/env" <<ENV
LAB_RUN="bash /lab/guest/deb-kernel.sh"
LAB_LOG=scenario.log
LAB_TIMEOUT=120
LAB_MODULES=overlay
ENV
export LAB_SRC LAB_DIR LAB_ROOT DAEMON MEMORY=1G
guest "$kernel" 120 forky
wait $guest 2>/dev/null || true
[ "$(cat "$kernel/rc" 2>/dev/null)" = 0 ] || {
    tail -n 30 "$kernel/scenario.log" 2>/dev/null || tail -n 30 "$kernel/console.log"
    die "the package does not work with the kernel's data plane; see $kernel"
}
grep ' capabilities ' "$kernel/scenario.log"
say "the package has had a tunnel through the kernel, under its unit's hardening and its sandbox"
