#!/bin/bash
# Becomes the user-mode kernel with the root as its file system. Called inside
# private mount and process namespaces: boot.sh OUT KERNEL [KERNEL_ARGUMENT…].
# SHARE names a folder of the host that the guest sees as /mnt.
set -eu
. "$LAB_SRC/common.sh"
. "$LAB_SRC/kernels.sh"
. "$LAB_SRC/root-mounts.sh"
out=$1 kernel=$2
shift 2
root_mounts "$out"
[ -z "${SHARE:-}" ] || mount --bind "$SHARE" "$LAB_ROOT/mnt"
linux=$(mount_kernel "$kernel")
# shellcheck disable=SC2046
# Processes under seccomp cost a quarter less than under ptrace; trixie's kernel knows only that.
exec chroot "$LAB_ROOT" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/tmp \
    "$linux" mem="${MEMORY:-512M}" root=/dev/root rootfstype=hostfs rootflags=/ rw \
    seccomp=auto panic=-1 init=/lab/guest/init.sh con=null con0=null,fd:1 quiet $(kernel_args "$kernel") "$@"
