# What a scenario may call. "us" is the side under test (namespace left),
# "them" the reference peer (namespace right). Both are driven by the same
# verbs; US and THEM name the program behind each side.
# shellcheck shell=bash

OUT=/out
STATE=/run/lab

. /lab/guest/kernel.sh
. /lab/guest/net.sh
. /lab/guest/netdevsim.sh
. /lab/guest/tenants.sh
. /lab/guest/conf.sh
. /lab/guest/strongswan.sh
. /lab/guest/daemon.sh
. /lab/guest/openiked.sh
. /lab/guest/libreswan.sh
. /lab/guest/certs.sh
. /lab/guest/token.sh
. /lab/guest/radius.sh
. /lab/guest/checks.sh

# A process costs much in a guest, some 5 to 20 ms of its only CPU. What every scenario does often takes few of them.
note() {
    local uptime
    read -r uptime _ </proc/uptime
    printf '%s %s\n' "$uptime" "$*"
}

# pause SECONDS: without a process.
[ -p /run/never ] || mkfifo /run/never
pause() { read -r -t "$1" _ <>/run/never || true; }

fail() {
    note "FAIL: $*"
    exit 1
}

kind() {
    case $1 in us) echo "$US" ;; them) echo "$THEM" ;; *) fail "no side $1" ;; esac
}

# by_program SIDE VERB [ARGUMENT…]: the verb of the program behind that side.
by_program() {
    local verb=$2 program
    case $1 in us) program=$US ;; them) program=$THEM ;; *) fail "no side $1" ;; esac
    shift 2
    "${program}_$verb" "$@"
}

netns() {
    case $1 in us) echo left ;; them) echo right ;; *) echo "$1" ;; esac
}

other() {
    case $1 in us) echo them ;; them) echo us ;; esac
}

# in_ns SIDE COMMAND…
in_ns() {
    local ns=$1
    case $ns in us) ns=left ;; them) ns=right ;; esac
    shift
    ip netns exec "$ns" "$@"
}

# wait_for SECONDS COMMAND…: until the command succeeds. It is tried often at first, then four times a second.
wait_for() {
    local end=$((SECONDS + $1)) gap=2
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        pause 0.$((gap / 10))$((gap % 10))
        [ $gap -ge 20 ] || gap=$((gap + 1 + gap / 2))
    done
}

# The verbs. Each has one implementation per program: strongswan_up, daemon_up, …
start() {
    local side program
    [ $# != 0 ] || set -- them us
    for side; do
        case $side in us) program=$US ;; *) program=$THEM ;; esac
        note "start $side: $program"
        by_program "$side" start "$side"
    done
}
up() { note "up $*"; by_program "$1" up "$@"; }
down() { note "down $*"; by_program "$1" down "$@"; }
rekey_trigger() { by_program "$1" rekey "$@"; }
kill_hard() { note "kill -9 $1"; kill -9 "$(cat "$STATE/$1.pid")"; : >"$STATE/$1.killed"; }

# up_fails SIDE [CHILD]: succeeds if bringing it up is refused.
up_fails() {
    note "up $*, to fail"
    ! (by_program "$1" up "$@") >>$OUT/expected-failure.log 2>&1
}

# forget SIDE: after kill_hard, removes what the dead process left in the
# kernel and on disk, so that it can start again like a machine that rebooted.
forget() {
    ip -n "$(netns "$1")" xfrm state flush
    ip -n "$(netns "$1")" xfrm policy flush
    wait_for 5 dead "$1" || true
    rm -f "$STATE/$1".{pid,killed,vici,ctl}
}

stop() { note "stop $1"; by_program "$1" stop "$1"; }

# ours_too: the peer is the side under test once more. Before site.
ours_too() { THEM=$US; }

log_of() { echo "$OUT/$1.log"; }

# sas SIDE: the IKE SAs as a JSON array in VICI's words, whatever the program.
sas() { raw "$1" | jq -c -L /lab/guest 'include "sas"; normal'; }
raw() { by_program "$1" sas "$1"; }

# both JQ [JQ_OPTION…]: an expression over {us, them}, with the words of sas.jq.
both() {
    local expression=$1
    shift
    { printf '{"us":' && raw us && printf ',"them":' && raw them && printf '}'; } 2>/dev/null |
        jq -c -L /lab/guest "$@" "include \"sas\"; map_values(normal) | $expression" 2>/dev/null
}

# Tunnels come up in well under a second; the rest is room for a busy machine.
PATIENCE=15

# has SIDE JQ: is the expression true of that side's SAs now?
has() { [ "$(raw "$1" 2>/dev/null | jq -L /lab/guest "include \"sas\"; normal | $2" 2>/dev/null)" = true ]; }
both_have() { [ "$(both "$@")" = true ]; }

# expect SIDE JQ: becomes true in time.
expect() {
    wait_for "$PATIENCE" has "$1" "$2" && return
    note "SAs of $1: $(sas "$1" || true)"
    fail "$1 never had: $2"
}

expect_both() {
    wait_for "$PATIENCE" both_have "$@" && return
    note "SAs: $(both . || true)"
    fail "never so on both sides: $*"
}

established() { expect_both '(.us | live | length == 1) and (.them | live | length == 1)'; }

# installed [N]: one IKE SA with N children on both sides, and the same SPIs.
installed() { expect_both "installed(${1:-1})"; }

no_child() { expect_both 'map(length == 1 and .[0]."child-sas" == []) | all'; }
agree() { expect_both agree; }

# gone [SIDE…]: no IKE SA left there.
gone() {
    local side
    [ $# != 0 ] || { expect_both '.us == [] and .them == []' && return; }
    for side; do expect "$side" '. == []'; done
}

# mark child|ike: the SPIs in use, to tell a rekeyed SA by.
mark() { both "mark(\"$1\")"; }

# rekeyed child|ike MARK: both sides have only the new SA.
rekeyed() { both_have "rekeyed(\"$1\"; \$before)" --argjson before "$2"; }

# rekey SIDE child|ike [NAME]: starts it there and waits for its end on both.
rekey() {
    local side=$1 what=$2 before
    before=$(mark "$what")
    note "rekey $*"
    rekey_trigger "$@"
    wait_for "$PATIENCE" rekeyed "$what" "$before" || {
        note "before: $before, now: $(both .)"
        fail "$what was not rekeyed"
    }
}

log_has() { grep -q -E -- "$2" "$OUT/$1.log"; }

expect_log() {
    wait_for "$PATIENCE" log_has "$1" "$2" || fail "log of $1 never had: $2"
}
