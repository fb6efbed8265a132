# What a scenario may call. "us" is the side under test (namespace left),
# "them" the reference peer (namespace right). Both are driven by the same
# verbs; US and THEM name the program behind each side.
# shellcheck shell=bash

OUT=/out
STATE=/run/lab

. /lab/guest/net.sh
. /lab/guest/conf.sh
. /lab/guest/strongswan.sh
. /lab/guest/daemon.sh
. /lab/guest/openiked.sh
. /lab/guest/checks.sh

note() { printf '%s %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$*"; }

fail() {
    note "FAIL: $*"
    exit 1
}

kind() {
    case $1 in us) echo "$US" ;; them) echo "$THEM" ;; *) fail "no side $1" ;; esac
}

netns() {
    case $1 in us) echo left ;; them) echo right ;; *) echo "$1" ;; esac
}

other() {
    case $1 in us) echo them ;; them) echo us ;; esac
}

# in_ns SIDE COMMAND…
in_ns() {
    local ns
    ns=$(netns "$1")
    shift
    ip netns exec "$ns" "$@"
}

# wait_for SECONDS COMMAND…: until the command succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

# The verbs. Each has one implementation per program: strongswan_up, daemon_up, …
start() { local side; for side in "${@:-them us}"; do for side in $side; do note "start $side"; "$(kind "$side")_start" "$side"; done; done; }
up() { note "up $*"; "$(kind "$1")_up" "$@"; }
down() { note "down $*"; "$(kind "$1")_down" "$@"; }
rekey_trigger() { "$(kind "$1")_rekey" "$@"; }
kill_hard() { note "kill -9 $1"; kill -9 "$(cat "$STATE/$1.pid")"; : >"$STATE/$1.killed"; }

# up_fails SIDE [CHILD]: succeeds if bringing it up is refused.
up_fails() {
    note "up $*, to fail"
    ! ("$(kind "$1")_up" "$@") >>$OUT/expected-failure.log 2>&1
}

# forget SIDE: after kill_hard, removes what the dead process left in the
# kernel and on disk, so that it can start again like a machine that rebooted.
forget() {
    ip -n "$(netns "$1")" xfrm state flush
    ip -n "$(netns "$1")" xfrm policy flush
    wait_for 5 dead "$1" || true
    rm -f "$STATE/$1".{pid,killed,vici,ctl}
}

stop() { note "stop $1"; "$(kind "$1")_stop" "$1"; }
log_of() { echo "$OUT/$1.log"; }

# sas SIDE: the IKE SAs as a JSON array in VICI's words, whatever the program.
sas() { "$(kind "$1")_sas" "$1" | jq -c "$NORMALISE"; }

# Words and numbers alike become one form, so that a scenario compares plainly.
# Half-open SAs of unknown peers have no name and are left out.
NORMALISE='
def plain: if . == "yes" or . == "true" then true elif . == "no" or . == "false" then false else . end;
def spi: tostring | ascii_downcase | ltrimstr("0x");
map(select(.name != "(unnamed)" and (.name // "") != "")
  | with_entries(.value |= if type == "string" then plain else . end)
  | ."child-sas" = ((."child-sas" // []) | if type == "object" then [.[]] else . end
    | map(with_entries(.value |= if type == "string" then plain else . end)
        | (."spi-in", ."spi-out") |= spi
        | (."bytes-in", ."bytes-out", ."packets-in", ."packets-out") |= (. // 0 | tonumber))))'

# Only SAs in use: a peer may keep a rekeyed or redundant one for a while.
LIVE='map(select(.state == "ESTABLISHED"))'

# Tunnels come up in well under a second; the rest is room for a busy machine.
PATIENCE=15

# has SIDE JQ: is the expression true of that side's SAs now?
has() { [ "$(sas "$1" 2>/dev/null | jq "$2" 2>/dev/null)" = true ]; }

# expect SIDE JQ: becomes true in time.
expect() {
    wait_for "$PATIENCE" has "$1" "$2" && return
    note "SAs of $1: $(sas "$1" || true)"
    fail "$1 never had: $2"
}

established() {
    local side
    for side in us them; do
        expect "$side" 'length == 1 and .[0].state == "ESTABLISHED"'
    done
}

# installed [N]: one IKE SA with N children on both sides, and the same SPIs.
installed() {
    local n=${1:-1} side
    for side in us them; do
        expect "$side" "$LIVE | length == 1 and
            ([.[].\"child-sas\"[] | select(.state == \"INSTALLED\")] | length == $n)"
    done
    agree
}

gone() {
    local side
    for side in "${@:-us them}"; do for side in $side; do expect "$side" 'length == 0'; done; done
}

no_child() {
    local side
    for side in us them; do expect "$side" 'length == 1 and .[0]."child-sas" == []'; done
}

spis() { sas "$1" | jq -c "$LIVE | [.[].\"child-sas\"[] | select(.state == \"INSTALLED\") | [.\"spi-$2\", .\"spi-$3\"]] | sort"; }
same_spis() { [ "$(spis us in out)" = "$(spis them out in)" ]; }

agree() {
    wait_for "$PATIENCE" same_spis && return
    fail "SPIs differ: us (in, out) $(spis us in out), them (out, in) $(spis them out in)"
}

# rekey SIDE child|ike [NAME]: starts it there and waits until both sides
# have only the new SA.
rekey() {
    local side=$1 what=$2 before
    before=$(rekey_mark "$what")
    note "rekey $*"
    "$(kind "$side")_rekey" "$@"
    wait_for "$PATIENCE" rekeyed "$what" "$before" || fail "$what was not rekeyed: $(sas us) $(sas them)"
    note "rekeyed: $(rekey_mark "$what")"
}

rekey_mark() {
    local witness=them
    [ "$THEM" != openiked ] || witness=us
    case $1 in
    child) spis "$witness" in out ;;
    ike) sas "$witness" | jq -c "$LIVE"' | [.[] | [."initiator-spi", ."responder-spi"]] | sort' ;;
    esac
}

rekeyed() {
    local now
    now=$(rekey_mark "$1")
    # shellcheck disable=SC2016
    jq -n --argjson a "$2" --argjson b "$now" -e '($a | length) == ($b | length) and ($a - $b) != []' >/dev/null &&
        same_spis && has us "$LIVE | length > 0"
}

log_has() { grep -q -E -- "$2" "$(log_of "$1")"; }

expect_log() {
    wait_for "$PATIENCE" log_has "$1" "$2" || fail "log of $1 never had: $2"
}
