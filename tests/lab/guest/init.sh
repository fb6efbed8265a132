#!/bin/sh
# First process of a guest: prepares the kernel, runs one scenario, powers off.
# /out is this run's folder on the host; /out/env says what to run.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /run/lab

. /out/env

# A missing module shows in the scenario that needs it.
modprobe -a xfrm_user esp4 esp6 esp4_offload esp6_offload veth tun \
    gcm ccm echainiv seqiv authenc authencesn cbc ctr hmac sha512 chacha20poly1305 \
    2>/out/modprobe.log
# shellcheck disable=SC2086
[ -z "$LAB_MODULES" ] || modprobe -a $LAB_MODULES 2>>/out/modprobe.log

cd /tmp || exit
timeout -k 5 "$LAB_TIMEOUT" bash /lab/guest/scenario.sh >/out/scenario.log 2>&1 </dev/null
rc=$?
[ $rc != 124 ] || echo "FAIL: not done after $LAB_TIMEOUT s" >>/out/scenario.log
dmesg >/out/dmesg.log
echo $rc >/out/rc.new && mv /out/rc.new /out/rc
sync
echo o >/proc/sysrq-trigger
sleep 10
