#!/bin/bash
# First process of a case in a guest that others have used: case.sh FOLDER. When it ends, all others of the case end.
set -u
. /lab/guest/mounts.sh
fresh_mounts
mount --bind "$1" /out
# Not the folders of other cases.
mount -t tmpfs tmpfs /mnt
# What the guest has but once. Settings of the network are of the namespace.
for folder in kernel vm fs; do mount -o bind,ro /proc/sys/$folder /proc/sys/$folder; done
. /out/env
# shellcheck disable=SC2086
[ -z "$LAB_MODULES" ] || load_modules $LAB_MODULES
run_limited
echo $rc >/out/status
