#!/bin/bash
# Runs cases one after the other, as the host hands them out: /out/case.N names a folder in /mnt, and /out/done.N says
# whether the guest can take another. Each case has namespaces of its own. Its processes, devices, states and files end
# with them. What is left all the same fails the case.
set -u

# pause SECONDS: without a process, which costs much here.
mkfifo /run/never
exec {never}<>/run/never
pause() { read -r -t "$1" -u "$never" _ || true; }

# What a case cannot reach, or must not change.
world() {
    echo "== processes"
    # By a file, for the shells of a pipe are processes as well.
    ps --ppid 2 -p 2 --deselect -o args= >/run/processes
    grep -v '^ps --ppid' /run/processes
    echo "== mounts"
    cut -d ' ' -f 4- /proc/self/mountinfo
    echo "== files"
    find /dev /dev/shm /run /tmp -xdev | sort
    echo "== network"
    printf '%s\n' "addr show" "route show table all" "rule show" "xfrm state" "xfrm policy" | ip -o -batch -
    echo "== simulated devices"
    ls /sys/bus/netdevsim/devices 2>/dev/null
    head -v /sys/module/netdevsim/parameters/ipsec_* 2>/dev/null || true
}

# boot_time: when this guest began, by its clock. Another value: the clock was set.
boot_time() {
    local up now
    read -r up _ </proc/uptime
    printf -v now '%(%s)T' -1
    echo $((now - ${up%.*}))
}

# count: $memory that is available, in KiB, and $namespaces, by the kernel's own count. That has room for what is ending
# and what the kernel keeps for later, and so tells of many only.
count() {
    read -r memory namespaces <<<"$(awk '$1 == "MemAvailable:" { m = $2 } $1 == "net_namespace" { n = $2 }
        END { print m, n }' /proc/meminfo /proc/slabinfo)"
}
ENOUGH=150000
ROOM=100

# sweep: what no namespace ends.
sweep() {
    local file
    for file in /sys/bus/netdevsim/devices/netdevsim*; do
        [ ! -e "$file" ] || echo "${file##*netdevsim}" >/sys/bus/netdevsim/del_device
    done
    for file in /sys/module/netdevsim/parameters/ipsec_*; do
        [ ! -e "$file" ] || echo N >"$file"
    done
}

left_behind() {
    local skew=$(($(boot_time) - BOOT_TIME)) end=$((SECONDS + 10))
    # What ends needs some moments.
    until world >/run/now && diff /run/world /run/now >/run/difference; do
        [ $SECONDS -lt $end ] || break
        pause 0.1
    done
    sed -n 's/^>/left behind:/p; s/^</gone:/p' /run/difference
    [ ${skew#-} -le 2 ] || echo "the clock was set by $skew s"
    count
    [ "$namespaces" -le $((NAMESPACES + ROOM)) ] || echo "$namespaces network namespaces, $NAMESPACES at first"
}

# run_case FOLDER: its status is in FOLDER/status, what it left behind in FOLDER/left. Fails if the guest is spent.
run_case() {
    local folder=$1
    dmesg --clear
    unshare --mount --pid --net --uts --ipc --fork --kill-child bash /lab/guest/case.sh "$folder" >"$folder/case.log" 2>&1
    sweep
    left_behind >"$folder/left"
    dmesg >"$folder/dmesg.log"
    # After such words a kernel is not to be trusted with another case.
    grep -E '(BUG|WARNING): |Oops|unregister_netdevice: waiting' "$folder/dmesg.log" >"$folder/complaints"
    [ ! -s "$folder/left" ] && [ ! -s "$folder/complaints" ] && [ "$memory" -gt $ENOUGH ]
}

BOOT_TIME=$(boot_time)
count
NAMESPACES=$namespaces
mkdir -p /run/mount
touch /run/now /run/difference
sweep
world >/run/world
echo >/out/ready
for ((n = 1; ; n++)); do
    until [ -e "/out/case.$n" ]; do pause 0.05; done
    read -r name <"/out/case.$n"
    if run_case "/mnt/$name"; then echo again; else echo spent; fi >"/out/done.new"
    echo "$name: $memory KiB available, $namespaces network namespaces"
    mv /out/done.new "/out/done.$n"
done
