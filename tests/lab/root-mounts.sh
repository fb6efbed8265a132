# Lays this run's folders over the root, in the caller's private mount
# namespace. Sourced by what enters the root.
# shellcheck shell=bash

# root_mounts OUT
root_mounts() {
    local root=$LAB_ROOT
    mount --make-rprivate /
    # Runs share the root, so none of them may write to it.
    mount --bind "$root" "$root"
    mount -o remount,ro,bind "$root"
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/tmp"
    mount --bind "$LAB_SRC" "$root/lab"
    mount --bind "$1" "$root/out"
    mount -t tmpfs tmpfs "$root/bin-under-test"
    under_test "$DAEMON" ike-daemon
    under_test "${BENCH:-}" ike-bench
    under_test "${LAB_SCHEMES:-}" schemes-daemon
}

# under_test BINARY NAME
under_test() {
    [ -x "$1" ] || return 0
    : >"$LAB_ROOT/bin-under-test/$2"
    mount --bind "$1" "$LAB_ROOT/bin-under-test/$2"
}
