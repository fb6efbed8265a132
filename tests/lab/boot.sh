#!/bin/bash
# Inside private mount and process namespaces: lays the guest's folders over
# the root and becomes the user-mode kernel. Called by run-one.sh.
set -eu
out=$1 us=$2
root=$LAB_ROOT

mount --make-rprivate /
# Guests share the root, so none of them may write to it.
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$LAB_SRC" "$root/lab"
mount --bind "$out" "$root/out"
if [ "$us" = daemon ]; then
    mount -t tmpfs tmpfs "$root/bin-under-test"
    : >"$root/bin-under-test/ike-daemon"
    mount --bind "$DAEMON" "$root/bin-under-test/ike-daemon"
fi
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/tmp \
    linux.uml mem=512M root=/dev/root rootfstype=hostfs rootflags=/ rw \
    panic=-1 init=/lab/guest/init.sh con=null con0=null,fd:1 quiet
