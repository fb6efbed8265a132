#!/bin/sh
# First process of a guest: prepares the kernel, runs one thing, powers off.
# /out is this run's folder on the host; /out/env says what to run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /run/lab /run/debug
# In two places, for `ip netns exec` covers /sys with one that has none.
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null && mount --bind /sys/kernel/debug /run/debug

. /out/env

# A kernel without /lib/modules of its own version has all of it built in. A
# missing module shows in the scenario that needs it.
modules() { [ ! -d "/lib/modules/$(uname -r)" ] || modprobe -a "$@" 2>>/out/modprobe.log; }
modules xfrm_user esp4 esp6 esp4_offload esp6_offload veth tun \
    gcm ccm echainiv seqiv authenc authencesn cbc ctr hmac sha512 chacha20poly1305
# shellcheck disable=SC2086
[ -z "$LAB_MODULES" ] || modules $LAB_MODULES

cd /tmp || exit
# shellcheck disable=SC2086
timeout -k 5 "$LAB_TIMEOUT" $LAB_RUN >"/out/$LAB_LOG" 2>&1 </dev/null
rc=$?
[ $rc != 124 ] || echo "FAIL: not done after $LAB_TIMEOUT s" >>"/out/$LAB_LOG"
dmesg >/out/dmesg.log
echo $rc >/out/rc.new && mv /out/rc.new /out/rc
sync
# reboot(2) with LINUX_REBOOT_CMD_POWER_OFF: not every kernel has the sysrq key.
perl -e 'syscall(169, 0xfee1dead, 672274793, 0x4321fedc)'
