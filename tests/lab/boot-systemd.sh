#!/bin/bash
# Becomes systemd in a copy of the lab's root that is gone afterwards, which runs /out/inside.sh. Called in
# private namespaces by deb.sh: boot-systemd.sh OUT.
set -eu
. "$(dirname "$0")/common.sh"
mount --make-rprivate /
mount -t tmpfs tmpfs "$LAB_ROOT/mnt"
mkdir "$LAB_ROOT/mnt/upper" "$LAB_ROOT/mnt/work" "$LAB_ROOT/mnt/root"
root=$LAB_ROOT/mnt/root
mount -t overlay overlay "$root" \
    -o "lowerdir=$LAB_ROOT,upperdir=$LAB_ROOT/mnt/upper,workdir=$LAB_ROOT/mnt/work"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for folder in run tmp; do mount -t tmpfs tmpfs "$root/$folder"; done
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir -p "$root/dev/net" "$root/dev/pts" "$root/dev/shm"
for device in null zero full random urandom tty net/tun; do
    [ ! -e "/dev/$device" ] || { : >"$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"; }
done
mount --bind "$1" "$root/out"

# Others of the lab's root are not to start.
for unit in strongswan strongswan-starter openiked ssh prometheus; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit.service"
done
cat >"$root/etc/systemd/system/lab.target" <<'UNIT'
[Unit]
Requires=basic.target lab.service
After=basic.target
UNIT
cat >"$root/etc/systemd/system/lab.service" <<'UNIT'
[Unit]
After=basic.target
[Service]
Type=oneshot
Environment=LC_ALL=C DEBIAN_FRONTEND=noninteractive
StandardOutput=file:/out/log
StandardError=file:/out/log
ExecStart=-/bin/bash -c "bash /out/inside.sh; echo $? >/out/rc"
ExecStopPost=-/bin/sh -c "journalctl -b --no-pager >/out/journal.log"
ExecStopPost=/bin/systemctl --force --force exit
UNIT
sed -i 's/\$?/$$?/' "$root/etc/systemd/system/lab.service"
exec chroot "$root" env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /usr/lib/systemd/systemd --unit=lab.target --log-target=console --show-status=1
