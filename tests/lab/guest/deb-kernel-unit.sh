# What deb-kernel.sh has systemd run: the package, installed, its unit started as it is, and the package purged when told to.
set -u
fail() { echo "FAIL: $*"; journalctl -u ike-daemon -o cat | tail -n 20; exit 1; }

dpkg -i /out/package.deb || fail "dpkg -i"
cp /out/ike-daemon.toml /etc/ike/ike-daemon.toml && chmod 600 /etc/ike/ike-daemon.toml
# After the purge no unit is left to tell its result.
mkdir -p /etc/systemd/system/ike-daemon.service.d
printf '[Service]\nExecStopPost=+/bin/sh -c "echo $$SERVICE_RESULT >/out/result"\n' >/etc/systemd/system/ike-daemon.service.d/result.conf
systemctl daemon-reload
systemctl start ike-daemon || fail "systemctl start"
journalctl -u ike-daemon -o cat | grep 'data plane: the kernel' || fail "not the kernel's data plane"
echo yes >/out/started
until [ -e /out/stop ]; do sleep 0.2; done
[ "$(systemctl show -p NRestarts --value ike-daemon)" = 0 ] || fail "it was started again"
dpkg --purge ike-daemon || fail "purge"
! systemctl is-active -q ike-daemon || fail "it runs after the purge"
[ "$(cat /out/result)" = success ] || fail "did not end well"
journalctl --sync
# When the stop began, as tcpdump tells the time.
journalctl -u ike-daemon -o short-unix | awk '/shutting down/ { print $1 }' | tail -n 1 >/out/stopping
[ ! -e /usr/sbin/ike-daemon ] && [ ! -e /etc/ike/ike-daemon.toml ] || fail "purge leaves files"
! journalctl -u ike-daemon -p warning -o cat | grep -v Landlock | grep . || echo "note: these were the warnings"
