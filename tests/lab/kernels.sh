# The kernels guests can run. Sourced by the host-side scripts, never run.
# shellcheck shell=sh

LAB_KERNELS="forky trixie netdevsim travel"

# The kernels that are built here, from one source.
BUILT_KERNELS="netdevsim travel"

# kernel_dir KERNEL: the folder with its `linux` and, if it has modules, `modules`.
# The kernel of the root's own suite lies in the root.
kernel_dir() {
    case " $BUILT_KERNELS " in
    *" $1 "*) echo "$LAB_DIR/kernels/built/$1" ;;
    *) echo "$LAB_DIR/kernels/$1" ;;
    esac
}

# kernel_args KERNEL: what its command line always has.
kernel_args() { [ "$1" != travel ] || echo time-travel; }

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

# kernel_runs KERNEL: this machine's processor can run it; else the reason is in $WHY_NOT. User-mode Linux before 6.13 has
# room for a processor's registers of 2.7 kB; with AMX they are 11 kB, and init gets a SIGSEGV.
WHY_NOT=
kernel_runs() {
    [ "$1" = trixie ] && grep -q -m 1 -w amx_tile /proc/cpuinfo || return 0
    WHY_NOT="user-mode Linux 6.12 does not run on a processor with AMX"
    return 1
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
