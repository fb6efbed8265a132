# The kernels guests can run. Sourced by the host-side scripts, never run.
# shellcheck shell=sh

LAB_KERNELS="forky trixie netdevsim"

# kernel_dir KERNEL: the folder with its `linux` and, if it has modules, `modules`.
# The kernel of the root's own suite lies in the root.
kernel_dir() { echo "$LAB_DIR/kernels/$1"; }

kernel_there() {
    case $1 in
    forky) [ -e "$LAB_ROOT/usr/bin/linux.uml" ] ;;
    *) [ -x "$(kernel_dir "$1")/linux" ] ;;
    esac
}

# need_kernel KERNEL
need_kernel() {
    case " $LAB_KERNELS " in *" $1 "*) ;; *) die "no kernel $1 (there are: $LAB_KERNELS)" ;; esac
    kernel_there "$1" || die "no kernel $1 in $LAB_DIR; run tests/lab/setup.sh"
}

# mount_kernel KERNEL: in the caller's private mounts; prints its path in the root.
mount_kernel() {
    if [ "$1" = forky ]; then
        echo /usr/bin/linux.uml
        return
    fi
    mount --bind "$(kernel_dir "$1")" "$LAB_ROOT/boot"
    [ ! -d "$LAB_ROOT/boot/modules" ] || mount --bind "$LAB_ROOT/boot/modules" "$LAB_ROOT/usr/lib/modules"
    echo /boot/linux
}
