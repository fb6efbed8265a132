#!/bin/bash
# Runs a command in the root on this machine's own kernel. Called by iperf.sh
# inside private mount, network and process namespaces: chroot.sh OUT COMMAND…
set -eu
. "$LAB_SRC/root-mounts.sh"
root_mounts "$1"
shift
mount -t tmpfs tmpfs "$LAB_ROOT/run"
mount -t sysfs sysfs "$LAB_ROOT/sys"
mkdir -p "$LAB_ROOT/run/lab"
exec chroot "$LAB_ROOT" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C "$@"
