# Starting a guest from the host. Sourced by the host-side scripts, never run.
# shellcheck shell=bash

# guest OUT SECONDS KERNEL [KERNEL_ARGUMENT…]: boots it in the background, as
# $guest; the status of what it ran is in OUT/rc afterwards.
# It ends with whoever called this, too.
# Own mounts and own process ids: whatever happens in there, nothing stays
# mounted or running when the outer process ends, be it by KILL (unshare sits
# out a TERM).
guest() {
    local out=$1 seconds=$2
    shift 2
    setpriv --pdeathsig KILL timeout -s KILL $((seconds + 40)) setpriv --pdeathsig KILL \
        unshare -m -p -f --kill-child bash "$LAB_SRC/boot.sh" "$out" "$@" >"$out/console.log" 2>&1 </dev/null &
    guest=$!
    trap 'kill -KILL $guest; exit 130' INT TERM
}
