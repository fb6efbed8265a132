# Which failed cases run a second time: those that a known fault of the peer explains. Sourced by run.sh, never run.
# shellcheck shell=bash
#
# A scenario names such a fault in four lines at its top, all of them or none:
#   # AGAIN: REASON             the fault, in words
#   # AGAIN_CASES: PATTERN…     the cases that it can meet
#   # AGAIN_FAILS: REGEX        the one check that it fails: all that this check says
#   # AGAIN_SEEN: FUNCTION      one of those below: finds the fault in the folder of the first try

# More second tries in one run than these are no chance: the run fails without them.
MOST_SECOND_TRIES=2

# What a program or a kernel says of a fault of ours. No fault of a peer excuses that.
OUR_FAULTS='panicked at|Sanitizer|runtime error:|stack overflow|memory allocation of'
OUR_FAULTS+='|segfault|general protection|Out of memory'

# complete_header FILE: the four lines are there, or none of them.
complete_header() {
    local word found=0
    for word in AGAIN AGAIN_CASES AGAIN_FAILS AGAIN_SEEN; do [ -z "$(header "$1" $word)" ] || found=$((found + 1)); done
    [ $found = 0 ] && return
    [ $found = 4 ] || die "$1: AGAIN, AGAIN_CASES, AGAIN_FAILS and AGAIN_SEEN belong together; add what is missing"
    word=$(header "$1" AGAIN_SEEN)
    declare -F "$word" >/dev/null || die "$1: peer-faults.sh has no function $word"
}

# second_try CASE FILE FOLDER: may the failed case run again? If not, the reason is in $WHY_NOT.
second_try() {
    local file=$2 folder=$3 log=$3/scenario.log patterns pattern
    WHY_NOT="AGAIN_CASES leaves it out"
    read -r -a patterns <<<"$(header "$file" AGAIN_CASES)"
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053
        [[ $1 != $pattern ]] || WHY_NOT=
    done
    [ -z "$WHY_NOT" ] || return
    WHY_NOT=$(wrong_beside "$folder")
    [ -z "$WHY_NOT" ] || return
    WHY_NOT="another check failed than AGAIN_FAILS names"
    [ "$(grep -c 'FAIL: ' "$log")" = 1 ] || return
    grep -q -x -E "[0-9.]+ FAIL: ($(header "$file" AGAIN_FAILS))" "$log" || return
    WHY_NOT="the fault of the peer is not to be seen: $(header "$file" AGAIN_SEEN)"
    "$(header "$file" AGAIN_SEEN)" "$folder"
}

# wrong_beside FOLDER: what failed beside the check, in a line; nothing if nothing did.
wrong_beside() {
    local said
    # cases.sh always writes both.
    for said in left complaints; do
        [ -e "$1/$said" ] || { say "no file $said" && return; }
        [ ! -s "$1/$said" ] || { say "$said: $(head -n 1 "$1/$said")" && return; }
    done
    said=$(cat "$1"/*.log "$1"/*.out 2>/dev/null | grep -a -m 1 -E "$OUR_FAULTS")
    [ -z "$said" ] || { say "$said" && return; }
    # The checks that every scenario ends with: programs that died or panicked, packets in clear.
    said=$(grep -m 1 -E 'FAIL: .* (died|panicked|went unprotected)$' "$1/scenario.log")
    [ -z "$said" ] || { say "${said#*FAIL: }" && return; }
    grep -q -E '^[0-9.]+ final checks are done$' "$1/scenario.log" || { say "the final checks did not run" && return; }
    [ "$(cat "$1/rc")" = 1 ] || { say "its status is $(cat "$1/rc"), and that of a failed check is 1" && return; }
    # A fault of the peer needs a peer: another program at the other end, each time that it was started.
    ! grep -q -E '^[0-9.]+ start them: daemon$' "$1/scenario.log" || { say "both ends are ours" && return; }
    grep -q -E '^[0-9.]+ start them: ' "$1/scenario.log" || say "no peer was started"
}

# strongswan_ignores_smaller_pieces FOLDER: strongSwan had answered a request, and then ignored it. By the capture,
# it came in smaller pieces, which strongSwan does not take for a retransmission, and then with the larger first piece
# again, which did not reach it.
strongswan_ignores_smaller_pieces() {
    local id
    for id in $(ignored_after_answer "$1/them.log"); do
        python3 "$LAB_SRC/smaller_pieces.py" "$1/wire.us.pcap" "$id" && return
    done
    return 1
}

# ignored_after_answer LOG: the message IDs of requests that this strongSwan ignored, having answered them.
ignored_after_answer() {
    awk 'match($0, /generating [A-Z_]+ response [0-9]+ /) {
            split(substr($0, RSTART, RLENGTH), word, " ")
            last = word[4]
        }
        match($0, /received message ID [0-9]+, expected [0-9]+, ignored/) {
            split(substr($0, RSTART, RLENGTH), word, /[ ,]+/)
            if (word[4] == last) print last
        }' "$1" | sort -u
}

# strongswan_without_route FOLDER: strongSwan had given up a dead IKE SA and has a new child. Its kernel has the policy,
# and not the route in table 220, which only strongSwan itself makes and removes.
strongswan_without_route() {
    local state=$1/them.state
    awk '/giving up after [0-9]+ retransmits/ { dead = 1 }
        dead && /CHILD_SA net\{[0-9]+\} established/ { found = 1 }
        END { exit !found }' "$1/them.log" &&
        grep -q '"state": "INSTALLED"' "$state" &&
        grep -q '^src 10\.2\.0\.0/16 dst 10\.1\.0\.0/16' "$state" &&
        ! grep -q '^10\.1\.0\.0/16 .*table 220' "$state"
}
