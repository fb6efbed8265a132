# What every part of a guest has of its own: file systems that nothing else has written to. Sourced, never run.
# shellcheck shell=sh

# fresh_mounts: of the namespaces that the caller is in.
fresh_mounts() {
    mount -t proc proc /proc
    mount -t sysfs sysfs /sys
    for folder in /dev/shm /run /tmp; do mount -t tmpfs tmpfs $folder; done
    mkdir -p /run/lab /run/debug
    # In two places, for `ip netns exec` covers /sys with one that has none.
    mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null && mount --bind /sys/kernel/debug /run/debug
}

# A kernel without /lib/modules of its own version has all of it built in. A
# missing module shows in the scenario that needs it.
load_modules() { [ ! -d "/lib/modules/$(uname -r)" ] || modprobe -a "$@" 2>>/out/modprobe.log; }

# run_limited: what /out/env says, for as long as it says. Its status is in $rc.
run_limited() {
    cd /tmp || exit
    # shellcheck disable=SC2086
    timeout -k 5 "$LAB_TIMEOUT" $LAB_RUN >"/out/$LAB_LOG" 2>&1 </dev/null
    rc=$?
    [ $rc != 124 ] || echo "FAIL: not done after $LAB_TIMEOUT s" >>"/out/$LAB_LOG"
}
