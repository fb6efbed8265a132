# ike-daemon behind the verbs.
# shellcheck shell=bash

DAEMON=/bin-under-test/ike-daemon
# What a scenario adds to `run`.
DAEMON_ARGS=()

ctl() {
    local side=$1
    shift
    timeout 30 "$DAEMON" --control "$STATE/$side.ctl" "$@"
}

# daemon_ended SIDE: has the one that ran last ended? A zombie has.
daemon_ended() {
    local pid
    pid=$(cat "$STATE/$1.pid" 2>/dev/null) || return 0
    ! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status"
}

daemon_start() {
    local side=$1
    # One that was told to end waits some seconds for the peer's answers. A service manager waits for it, too.
    wait_for 20 daemon_ended "$side" || note "the daemon of $side still runs"
    # Beside it are the folders with certificates and keys.
    mkdir -p "$STATE/$side.d"
    local file=$STATE/$side.d/$side.toml
    if [ "${CONF_SYNTAX:-toml}" = toml ]; then
        (umask 077 && to_toml "$side" >"$file")
    else
        file=${file%.toml}.conf
        (umask 077 && { to_swanctl "$side" && to_strongswan "$side"; } >"$file")
    fi
    cp "$file" $OUT/
    # What an earlier one has said is kept apart, so that checks of the log see this one alone.
    [ ! -s "$(log_of "$side")" ] || cat "$(log_of "$side")" >>"$OUT/$side.before.log"
    RUST_BACKTRACE=1 NO_COLOR=1 ip netns exec "$(netns "$side")" "$DAEMON" run --config "$file" \
        --data-plane "${DATA_PLANE:-userspace}" --control "$STATE/$side.ctl" "${DAEMON_ARGS[@]}" >"$(log_of "$side")" 2>&1 &
    echo $! >"$STATE/$side.pid"
    wait_for 20 test -S "$STATE/$side.ctl" || fail "ike-daemon of $side did not start"
}

daemon_up() {
    ctl "$1" up "${2:-net}" >>"$OUT/$1.ctl.out" 2>&1 || {
        tail -n 20 "$OUT/$1.ctl.out"
        fail "$1 could not bring up ${2:-net}"
    }
}

daemon_up_ike() { daemon_up "$1" "${2:-site}"; }

daemon_rekey() { daemon_verb rekey "$@"; }
daemon_down() { daemon_verb down "$@"; }

# As with strongSwan, a refusal is only noted; what comes next tells.
daemon_verb() {
    local verb=$1 side=$2 what=$3 name=${4:-}
    [ -n "$name" ] || case $what in child) name=net ;; ike) name=site ;; esac
    ctl "$side" "$verb" "--$what" "$name" >>"$OUT/$side.ctl.out" 2>&1 ||
        note "$verb --$what $name: $(tail -n 1 "$OUT/$side.ctl.out")"
}

daemon_stop() {
    kill -TERM "$(cat "$STATE/$1.pid")"
    : >"$STATE/$1.killed"
}

daemon_sas() { ctl "$1" list --json; }
