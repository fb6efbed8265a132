# What deb.sh does inside, under systemd: install, start, watch, reload, stop, purge.
set -u
fail() { echo "FAIL: $*"; systemctl status --no-pager -l ike-daemon | tail -n 20; exit 1; }
ok() { echo "ok: $*"; }
active() { [ "$(systemctl is-active ike-daemon)" = "$1" ]; }
field() { sed -n "s/^$1:\t*//p" "/proc/$(systemctl show -p MainPID --value ike-daemon)/status"; }
main_pid() { systemctl show -p MainPID --value ike-daemon; }
until_() { for _ in $(seq 100); do "$@" && return; sleep 0.1; done; return 1; }

ip link set lo up
dpkg -i /out/package.deb || fail "dpkg -i"
active active && fail "started without being asked to"
systemctl is-enabled -q ike-daemon && fail "enabled without being asked to"
for file in /usr/share/man/man8/ike-daemon.8.gz /usr/share/man/man5/ike-daemon.toml.5.gz \
    /usr/share/bash-completion/completions/ike-daemon; do
    [ -s "$file" ] || fail "no $file"
done
[ -z "$(dpkg --verify ike-daemon)" ] || fail "dpkg --verify: $(dpkg --verify ike-daemon)"
[ "$(stat -c %U:%a /usr/sbin/ike-daemon)" = root:755 ] || fail "owner or mode of the program"
[ "$(stat -c %a /etc/ike/ike-daemon.toml)" = 600 ] || fail "others read the configuration"
[ "$(stat -c %a /etc/ike/private)" = 700 ] || fail "others read private keys"
# As cloud-init: it configures the network and is ordered before sysinit.target.
cat >/etc/systemd/system/early-network.service <<'UNIT'
[Unit]
DefaultDependencies=no
After=network-pre.target
Before=network.target sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/true
[Install]
WantedBy=sysinit.target
UNIT
systemctl enable -q early-network.service
# Fault: take DefaultDependencies=no out of either unit.
verified=$(systemd-analyze verify --man=no ike-daemon.service ike-daemon-shutdown.service ike-daemon.socket 2>&1) ||
    fail "systemd-analyze verify: $verified"
case $verified in *cycle*) fail "ordering: $verified" ;; esac
systemctl disable -q early-network.service && rm /etc/systemd/system/early-network.service
ok "installed; unit verified, neither enabled nor started"

cp -p /etc/ike/ike-daemon.toml /root/packaged
echo 'a secret of this test' >/root/psk && chmod 600 /root/psk
cat >/etc/ike/ike-daemon.toml <<'TOML'
[charon.metrics]
[charon.sandbox]
[charon.plugins.vici]
[connections.site]
remote_addrs = "127.0.0.2"
local = { auth = "psk", id = "left" }
remote = { auth = "psk", id = "right" }
children.net = {}
[secrets.ike]
secret_file = "credential:psk"
TOML
mkdir -p /etc/systemd/system/ike-daemon.service.d
printf '[Service]\nLoadCredential=psk:/root/psk\nWatchdogSec=3s\nExecStart=\nExecStart=/usr/sbin/ike-daemon run --config /etc/ike/ike-daemon.toml --data-plane none\n' \
    >/etc/systemd/system/ike-daemon.service.d/lab.conf
systemctl daemon-reload
systemctl start ike-daemon || fail "systemctl start"
active active || fail "not active after start"
systemctl status --no-pager ike-daemon | grep -q 'Status: "listening on UDP ports 500 and 4500"' || fail "status"
ike-daemon list >/dev/null || fail "control socket"
ok "started: READY came, the secret is a credential of systemd's"

# Fault: Before=network.target in the unit.
since() { systemctl show -p "$2" --value "$1"; }
ready=$(since ike-daemon ActiveEnterTimestampMonotonic)
[ "$(since network-pre.target ActiveEnterTimestampMonotonic)" -ge "$ready" ] || fail "the network does not wait for the daemon"
active_shutdown() { [ "$(systemctl is-active ike-daemon-shutdown)" = active ]; }
until_ active_shutdown || fail "ike-daemon-shutdown is not active"
case " $(systemctl show -p After --value ike-daemon-shutdown) " in
*" ike-daemon.service "*) ;; *) fail "the daemon ends before ike-daemon-shutdown" ;; esac
systemctl stop ike-daemon-shutdown || fail "stop of ike-daemon-shutdown"
active active || fail "ike-daemon-shutdown ends the daemon although the host goes on"
ok "READY before network-pre.target, $(((ready - $(since ike-daemon ExecMainStartTimestampMonotonic)) / 1000)) ms after its start"

[ "$(field Seccomp)" = 2 ] && [ "$(field NoNewPrivs)" = 1 ] || fail "seccomp"
[ "$(field CapEff)" = 0000000000003400 ] || fail "capabilities: $(field CapEff)"
journalctl -u ike-daemon -o cat | grep -q 'sandbox: Landlock' && ok "Landlock is in force" || echo "note: no Landlock"
[ "$(journalctl -u ike-daemon -p info -o json | jq -r 'select(.MESSAGE | startswith("listening")) | .PRIORITY')" = 6 ] ||
    fail "priorities of the journal"
pid=$(main_pid)
[ -n "$(ls -A "/proc/$pid/root/home" 2>/dev/null)" ] && fail "sees /home"
ok "capabilities $(field CapEff), seccomp, no new privileges, priorities in the journal"

exec 3<>/dev/tcp/127.0.0.1/9500 && printf 'GET /metrics HTTP/1.1\r\nHost: lab\r\n\r\n' >&3 && cat <&3 >/out/metrics.http
grep -q '^ike_configured_children{connection="site"} 1' /out/metrics.http || fail "metrics"
# /proc has these: neither the unit's hardening nor Landlock hides it.
for name in cpu_seconds_total open_fds max_fds virtual_memory_bytes resident_memory_bytes start_time_seconds threads; do
    grep -q "^process_$name [0-9]" /out/metrics.http || fail "no metric process_$name"
done
ok "metrics: $(grep -c '^ike_' /out/metrics.http) samples"

systemctl reload ike-daemon || fail "reload"
[ "$(main_pid)" = "$pid" ] || fail "a reload started it again"
cp /etc/ike/ike-daemon.toml /root/good && echo 'nonsense = 1' >>/etc/ike/ike-daemon.toml
systemctl reload ike-daemon 2>/dev/null && fail "a broken file was taken"
active active && [ "$(main_pid)" = "$pid" ] || fail "a broken file ended it"
cp /root/good /etc/ike/ike-daemon.toml
ok "reloaded; a broken file is refused and the daemon goes on"

sleep 5
[ "$(main_pid)" = "$pid" ] || fail "the watchdog ended a daemon that was well"
kill -STOP "$pid"
again() { [ "$(main_pid)" != "$pid" ] && active active; }
until_ again || { sleep 5; until_ again; } || fail "the watchdog does not bite"
ok "one that hangs is started again by the watchdog"

echo "systemd-analyze security: $(systemd-analyze security --no-pager ike-daemon | tail -n 1)"
systemctl stop ike-daemon || fail "stop"
[ "$(systemctl show -p Result --value ike-daemon)" = success ] || fail "did not end well"
[ ! -e /run/ike-daemon.sock ] && [ ! -e /run/charon.vici ] || fail "sockets are left"
rm -r /etc/systemd/system/ike-daemon.service.d
cp -p /root/packaged /etc/ike/ike-daemon.toml
systemctl daemon-reload

# What an earlier run has blocked: only a stop removes it.
blocks() { ip route show table 7296 2>/dev/null | grep -q 198.51.100.0/24; }
ip route add unreachable 198.51.100.0/24 proto 122 table 7296
systemctl start ike-daemon || fail "the unit as packaged, with the data plane it finds"
journalctl -u ike-daemon -o cat | grep 'data plane:' | tail -n 1
systemctl restart ike-daemon || fail "restart"
blocks || fail "a restart removes what blocks traffic"
pid=$(main_pid)
kill -KILL "$pid"
until_ again || fail "not started again"
blocks || fail "a crash removes what blocks traffic"
systemctl stop ike-daemon || fail "stop"
blocks && fail "a stop leaves what blocks traffic"
ip rule | grep -q 7296 && fail "a stop leaves a rule"
ok "a restart and a crash leave what blocks traffic, a stop removes it"

systemctl start ike-daemon.socket || fail "the socket's unit"
[ "$(stat -c %a /run/charon.vici)" = 600 ] || fail "others use the VICI socket"
active inactive || fail "started without a client"
timeout 30 swanctl --stats | grep -q '^IKE_SAs: 0 total' || fail "swanctl --stats by the socket of systemd's"
active active || fail "no daemon behind the socket"
systemctl stop ike-daemon.socket ike-daemon.service || fail "stop"
[ ! -e /run/charon.vici ] || fail "the socket is left"
ok "the VICI socket of systemd's starts the daemon"

mkdir -p /var/lib/ike-daemon && echo "gw.example 192.0.2.1" >/var/lib/ike-daemon/names
dpkg --purge ike-daemon || fail "purge"
[ ! -e /usr/sbin/ike-daemon ] && [ ! -e /etc/ike/ike-daemon.toml ] || fail "purge leaves files"
[ ! -e /var/lib/ike-daemon/names ] || fail "purge leaves addresses of host names"
ok "stopped and purged"
