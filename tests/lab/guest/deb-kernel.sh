#!/bin/bash
# The second half of deb.sh, in a guest whose kernel has ESP: the package of /out, installed and run by systemd in a
# copy of the root, under the unit's hardening and the daemon's own sandbox, has a tunnel with strongSwan: SAs,
# policies and routes in the kernel, traffic, rekeys, a trap. A purge under a full tunnel with traffic leaves a free host, and
# nothing is in clear before the stop of the purge.
# Faults: in the unit, leave ExecStopPost out, and in prerm, `ike-daemon unblock`: the host is not free; in prerm, delete the
# policies before the stop: packets in clear.
set -eu
US=package THEM=strongswan
. /lab/guest/lib.sh
trap 'rc=$?; trap - EXIT; on_exit $rc' EXIT
UNIT=/out/unit

# The daemon under test is the one that systemd starts; what it is asked is asked by the binary of the lab.
package_start() {
    mkdir -p $UNIT "$STATE/root/root"
    to_toml us >$UNIT/ike-daemon.toml
    cp /out/package.deb /lab/guest/deb-kernel-unit.sh $UNIT/
    mv $UNIT/deb-kernel-unit.sh $UNIT/inside.sh
    mount --bind / "$STATE/root/root"
    IKE_LAB_DIR=$STATE/root in_ns us unshare -m -p -f -u -i -C --kill-child \
        bash /lab/boot-systemd.sh $UNIT >"$OUT/unit.console.log" 2>&1 &
    echo $! >"$STATE/unit.pid"
    wait_for 60 test -s $UNIT/started || { cat $UNIT/log || tail -n 20 "$OUT/unit.console.log"; fail "the unit did not start"; }
    pgrep -f '^/usr/sbin/ike-daemon run' | head -n 1 >"$STATE/us.pid"
    ln -s "/proc/$(cat "$STATE/us.pid")/root/run/ike-daemon.sock" "$STATE/us.ctl"
}
package_up() { daemon_up "$@"; }
package_up_ike() { daemon_up_ike "$@"; }
package_rekey() { daemon_rekey "$@"; }
package_down() { daemon_down "$@"; }
package_sas() { daemon_sas "$@"; }
field() { sed -n "s/^$1:\t*//p" "/proc/$(cat "$STATE/us.pid")/status"; }


CLEARTEXT=yes
net_direct
site
net us start_action trap
net us remote_ts 0.0.0.0/0
net them local_ts 0.0.0.0/0
ip -n left route add default via $THEM_OWN
conf us charon.sandbox.seccomp true
start
[ "$(field Seccomp)" = 2 ] && [ "$(field NoNewPrivs)" = 1 ] || fail "no seccomp"
# The unit's bounding set has the signer's capability as well, which this process has given up.
[ "$(field CapPrm)" = 0000000000003400 ] && [ "$(field CapBnd)" = 0000000000003404 ] || fail "capabilities: $(field CapPrm), $(field CapBnd)"
note "capabilities $(field CapPrm), $(field Seccomp_filters) filters of system calls"

expect_kernel us policy 'dir out'
wait_for "$PATIENCE" ping_quietly us || fail "no traffic through the trap"
installed
states us 2
ping_both
rekey us child
rekey us ike
rekey them child
ping_both
counted 3
down us ike
gone
states us 0
up them
installed
ping_both
[ "$(wire "$INNER")" = 0 ] || fail "packets in clear"
in_ns us ping -q -n -i 0.01 -I $LEFT_IN $RIGHT_IN >/dev/null 2>&1 &
pinging=$!
pause 0.5
touch $UNIT/stop
wait_for 30 test -e $UNIT/rc || fail "systemd does not end"
cat $UNIT/log
[ "$(cat $UNIT/rc)" = 0 ] || fail "the unit did not end well"
: >"$STATE/us.killed"
gone them
kernel_clean us them
in_clear() { tcpdump -tt -n -r "$OUT/wire.us.pcap" "icmp and src host $LEFT_IN" 2>/dev/null; }
leaves() { [ -n "$(in_clear)" ]; }
wait_for 5 leaves || fail "the host is not free after the purge"
kill $pinging
first=$(in_clear | awk 'NR == 1 { print $1 }') stopping=$(cat $UNIT/stopping)
note "the stop began at $stopping, the first packet in clear was at $first"
awk -v first="$first" -v stopping="$stopping" 'BEGIN { exit !(stopping > 0 && first >= stopping) }' || fail "packets in clear before the stop"
final_checks
