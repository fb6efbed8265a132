#!/bin/bash
# Becomes the user-mode kernel with the root as its file system. Called by
# run-one.sh inside private mount and process namespaces.
set -eu
. "$LAB_SRC/root-mounts.sh"
root_mounts "$1"
exec chroot "$LAB_ROOT" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/tmp \
    linux.uml mem=512M root=/dev/root rootfstype=hostfs rootflags=/ rw \
    panic=-1 init=/lab/guest/init.sh con=null con0=null,fd:1 quiet
