# What deb-kernel.sh has systemd run: the package, installed, its unit started as it is, and stopped when told to.
set -u
fail() { echo "FAIL: $*"; systemctl status --no-pager -l ike-daemon | tail -n 20; exit 1; }

dpkg -i /out/package.deb || fail "dpkg -i"
cp /out/ike-daemon.toml /etc/ike/ike-daemon.toml && chmod 600 /etc/ike/ike-daemon.toml
systemctl start ike-daemon || fail "systemctl start"
journalctl -u ike-daemon -o cat | grep 'data plane: the kernel' || fail "not the kernel's data plane"
echo yes >/out/started
until [ -e /out/stop ]; do sleep 0.2; done
[ "$(systemctl show -p NRestarts --value ike-daemon)" = 0 ] || fail "it was started again"
systemctl stop ike-daemon || fail "stop"
[ "$(systemctl show -p Result --value ike-daemon)" = success ] || fail "did not end well"
! journalctl -u ike-daemon -p warning -o cat | grep -v Landlock | grep . || echo "note: these were the warnings"
