#!/bin/sh
# First process of a guest: prepares the kernel, runs one thing, powers off.
# /out is this run's folder on the host; /out/env says what to run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
. /lab/guest/mounts.sh
fresh_mounts
. /out/env
load_modules xfrm_user esp4 esp6 esp4_offload esp6_offload veth tun \
    gcm ccm echainiv seqiv authenc authencesn cbc ctr hmac sha512 chacha20poly1305
# shellcheck disable=SC2086
[ -z "$LAB_MODULES" ] || load_modules $LAB_MODULES

run_limited
dmesg >/out/dmesg.log
echo $rc >/out/rc.new && mv /out/rc.new /out/rc
sync
# reboot(2) with LINUX_REBOOT_CMD_POWER_OFF: not every kernel has the sysrq key.
perl -e 'syscall(169, 0xfee1dead, 672274793, 0x4321fedc)'
