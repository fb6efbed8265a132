# SAs per CPU (RFC 9611), with strongSwan and with ourselves: a trap starts the
# one for all, and the packets of each CPU one of its own; they are rekeyed and
# deleted one by one, and come again.
# CASES: us them ours
# PLANE: kernel
# KERNELS: netdevsim
# KERNEL_ARGS: seccomp=on ncpus=2
# TIMEOUT: 180
net_direct
by=$CASE
[ "$CASE" != ours ] || { ours_too && by=us; }
[ "$(nproc)" = 2 ] || fail "$(nproc) CPUs, not two"
site
net both per_cpu_sas yes
net both start_action trap
conf both charon.delete_rekeyed_delay 1
cpus() { jq -c '[.[]."child-sas"[] | select(.state == "INSTALLED") | .cpu | if . == null then -1 else tonumber end] | unique'; }
has_cpus() { [ "$(sas "$1" | cpus)" = "$2" ]; }
expect_cpus() {
    wait_for "$PATIENCE" has_cpus "$1" "$2" && return
    ip -n "$(netns "$1")" xfrm state
    fail "$1 has children for CPUs $(sas "$1" | cpus), not $2"
}
# on CPU SIDE: a packet of that CPU.
on() {
    local from=$LEFT_IN to=$RIGHT_IN
    [ "$2" = us ] || { from=$RIGHT_IN && to=$LEFT_IN; }
    in_ns "$(netns "$2")" taskset -c "$1" ping -q -c 2 -i 0.2 -W 2 -I "$from" "$to" >/dev/null
}
start
for end in us them; do expect_kernel $end policy 'dir out'; done
wait_for "$PATIENCE" on 0 "$by" || fail "no traffic through the trap"
for cpu in 0 1 0 1; do on $cpu "$by" || true; done
for end in us them; do
    expect_cpus $end '[-1,0,1]'
    for cpu in 0 1; do expect_kernel $end state "pcpu-num 0*x*0*$cpu"; done
done
agree
ping_both
# Nobody asks for more than there is.
before=$(sas us | jq '[.[]."child-sas"[]] | length')
for cpu in 0 1; do for end in us them; do on $cpu $end || fail "no packet of CPU $cpu of $end"; done; done
[ "$(sas us | jq '[.[]."child-sas"[]] | length')" = "$before" ] || fail "more and more children"
for end in us them; do
    rekey $end child
    agree
    ping_both
done
for end in us them; do expect_cpus $end '[-1,0,1]'; done
down "$(other "$by")" ike
gone
for end in us them; do states $end 0; done
# The traps are still there.
wait_for "$PATIENCE" on 1 "$by" || fail "the trap is gone with the children"
for cpu in 0 1; do on $cpu "$by" || true; done
for end in us them; do expect_cpus $end '[-1,0,1]'; done
ping_both
