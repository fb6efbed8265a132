#!/bin/bash
# The inside of kernel-tests.sh: every test of the executables in /mnt by itself,
# in a network namespace that nothing was in before.
set -u
export IKE_KERNEL_TESTS=must IKE_KERNEL_TESTS_ESP=must RUST_BACKTRACE=1 RUST_TEST_THREADS=1
mapfile -t PATTERNS </out/patterns

wanted() {
    local pattern
    for pattern in "${PATTERNS[@]}"; do
        # shellcheck disable=SC2053
        [[ $1 == $pattern ]] && return
    done
    return 1
}

# in_namespace COMMAND…: with the sysfs of that namespace, and debugfs.
in_namespace() {
    timeout -k 2 "${TEST_TIMEOUT:-240}" unshare -n -m sh -c '
        umount -l /sys; mount -t sysfs sysfs /sys; mount --bind /run/debug /sys/kernel/debug 2>/dev/null
        ip link set lo up; exec "$@"' sh "$@"
}

passed=0 failed=0 ignored=0
for file in /mnt/*; do
    tests=$("$file" --list --format terse) || {
        echo "FAIL ${file##*/} does not list its tests"
        failed=$((failed + 1))
    }
    mapfile -t tests <<<"$(sed -n 's/: test$//p' <<<"$tests")"
    for test in "${tests[@]}"; do
        # guest_plane::TEST for the test plane::TEST of the program guest.
        name=${file##*/}_$test
        wanted "$name" || continue
        rc=0
        in_namespace "$file" --exact "$test" --nocapture >/tmp/output 2>&1 || rc=$?
        if [ $rc = 0 ]; then
            if grep -q ' 0 passed; 0 failed; 1 ignored' /tmp/output; then
                ignored=$((ignored + 1))
            else
                passed=$((passed + 1))
                echo "ok   $name"
            fi
        else
            failed=$((failed + 1))
            echo "FAIL $name ($rc)"
            tail -n 40 /tmp/output | cut -c 1-400 | sed 's/^/  | /'
        fi
    done
done
echo "$(uname -r): $passed passed, $failed failed, $ignored ignored"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
