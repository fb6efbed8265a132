#!/bin/bash
# The Debian package, installed by dpkg into a clean copy of the lab's root and run there by systemd: start,
# watchdog, credentials, reload, metrics, sandbox, stop, purge. Needs root and a kernel with overlayfs; nothing
# is written to the lab's root. The package is made by cargo-deb (cargo install cargo-deb) of the release build.
# usage: deb.sh [PACKAGE.deb]
set -eu
. "$(dirname "$0")/common.sh"
skip_if_asked

[ "$(id -u)" = 0 ] || die "needs root"
[ -x "$LAB_ROOT/usr/lib/systemd/systemd" ] || die "no systemd in $LAB_ROOT; run tests/lab/setup.sh"
out=${IKE_LAB_OUT:-$LAB_TOP/target/lab}/deb
rm -rf "$out"
mkdir -p "$out"
deb=${1:-}
if [ -z "$deb" ]; then
    deb=$out/ike-daemon.deb
    "$LAB_TOP/crates/ike-daemon/dist/package.sh" "$deb" >"$out/build.log" 2>&1 || {
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
