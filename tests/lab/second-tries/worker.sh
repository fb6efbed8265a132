#!/bin/bash
# In place of the lab's worker.sh, for second-tries.sh: writes the folders of the cases, and runs nothing.
# $FAULTS has a line for each case whose first try fails: NAME FAULT… Each FAULT is a function below. With the word
# `always` the second try fails as well.
set -eu
[ "$1" = 1 ] || exit 0
TRY=first
[ "${IKE_LAB_AGAIN:-}" != no ] || TRY=second

# smaller_pieces: in path-mtu, strongSwan has answered the request with ID 1, and ignores it in smaller pieces.
smaller_pieces() {
    check="us could not bring up net"
    cat >"$out/them.log" <<LOG
04:00:01.000 10[ENC] <1> parsed IKE_INTERMEDIATE request 1 [ KE ]
04:00:01.002 10[ENC] <1> generating IKE_INTERMEDIATE response 1 [ KE ]
04:00:01.002 10[NET] <1> sending packet: from 198.51.100.2[500] to 192.0.2.1[500] (1252 bytes)
04:00:04.100 11[IKE] <1> received message ID 1, expected 2, ignored
LOG
    {
        pcap
        piece 1232 1 2
        piece 532 1 4
        piece 1232 1 2
    } >"$out/wire.us.pcap"
}

# no_route: in dpd-restart, strongSwan's route is not there.
no_route() {
    check="no ping from us: 10.1.0.1 -> 10.2.0.1"
    cat >"$out/them.log" <<LOG
04:00:08.000 07[IKE] giving up after 4 retransmits
04:00:08.001 07[IKE] restarting CHILD_SA net
04:00:08.100 12[IKE] CHILD_SA net{2} established with SPIs cbc345f0_i c87206da_o and TS 10.2.0.0/16 === 10.1.0.0/16
LOG
    cat >"$out/them.state" <<STATE
        "state": "INSTALLED",
src 10.2.0.0/16 dst 10.1.0.0/16
	dir out priority 383615 ptype main
10.2.0.0/16 dev inner0 proto kernel scope link src 10.2.0.1
STATE
}
route() { echo "10.1.0.0/16 dev r0 table 220 proto static src 10.2.0.1 " >>"$out/them.state"; }
no_restart() { sed -i '1,2d' "$out/them.log"; }

# What the peer's fault does not explain, beside it or alone.
clear_packets() { wrong="3 packets of the inner networks went unprotected"; }
panic() { echo "thread 'main' panicked at crates/ike-proto/src/lib.rs:1:1:" >>"$out/us.log"; }
former_panic() { echo "thread 'main' panicked at crates/ike-proto/src/lib.rs:1:1:" >>"$out/us.before.log"; }
leak() { echo "==71==ERROR: LeakSanitizer: detected memory leaks" >>"$out/us.log"; }
died() { wrong="us died"; }
left() { echo "left behind: /dev/left" >"$out/left"; }
complaint() { echo "BUG: sleeping function called from invalid context" >"$out/complaints"; }
other_check() { check="us was not rekeyed"; }
two_checks() { echo "5.02 FAIL: ike was not rekeyed" >>"$out/scenario.log"; }
ours() { peer=daemon; }
hangs() { rc=124; }
unfinished() { final=; }
not_ignored() { sed -i '/ignored/d' "$out/them.log"; }
older() { sed -i 's/message ID 1,/message ID 0,/' "$out/them.log"; }
unanswered() { sed -i '/response/d' "$out/them.log"; }
same_size() { { pcap && piece 1232 1 2 && piece 1232 1 2; } >"$out/wire.us.pcap"; }
not_reminded() { { pcap && piece 1232 1 2 && piece 532 1 4 && piece 532 1 4; } >"$out/wire.us.pcap"; }
no_capture() { rm "$out/wire.us.pcap"; }
always() { :; }

# pcap: the head of a capture of an Ethernet device.
pcap() { octets d4c3b2a1 02000400 00000000 00000000 00010000 01000000; }

# piece LENGTH NUMBER TOTAL: of an IKE message, the first 36 octets of a fragment in a request of the initiator, ID 1.
piece() {
    octets 00000000 00000000 4e000000 "$(printf '%02x%02x0000' $((($1 + 42) & 255)) $((($1 + 42) >> 8)))" \
        020000000001 020000000002 0800 4500 "$(printf %04x $(($1 + 28)))" 00004000 4011 0000 c0000201 c6336402 \
        01f401f4 "$(printf %04x $(($1 + 8)))" 0000 \
        1111111111111111 2222222222222222 35202b08 00000001 "$(printf %08x "$1")" 2800 "$(printf %04x $(($1 - 28)))" \
        "$(printf %04x%04x "$2" "$3")"
}

# octets HEX…: words of hexadecimal digits.
octets() {
    local hex
    printf -v hex %s "$@"
    # shellcheck disable=SC2001,SC2059
    printf "$(sed 's/../\\x&/g' <<<"$hex")"
}

while read -r seconds _ name _; do
    out=$OUT/$name check='' wrong='' peer=strongswan rc=1 final=ran
    mkdir -p "$out"
    : >"$out/left"
    : >"$out/complaints"
    faults=$(sed -n "s|^$name ||p" "$FAULTS")
    if [ $TRY = second ] && [[ $faults != *always* ]]; then faults=; fi
    if [ -z "$faults" ]; then
        rc=0
    else
        for fault in $faults; do "$fault"; done
        {
            echo "1.00 start them: $peer"
            [ -z "$check" ] || echo "5.01 FAIL: $check"
            [ -z "$wrong" ] || echo "5.02 FAIL: $wrong"
            [ -z "$final" ] || echo "5.03 final checks are done"
            echo "5.04 failed ($rc)"
        } >>"$out/scenario.log"
    fi
    echo $rc >"$out/rc"
    echo "case $seconds $name" >>"$OUT/.guests/times.1"
done <"$QUEUE"
