# What ordinary life does to a tunnel that is wanted up, and how long it takes until it carries traffic again. Used by
# the scenarios back-*.sh, each of which is a `settings` and an `outage`; `tunnel_comes_back` runs them.
#
# A suspend stops the process (SIGSTOP) while the link is down. Its clock goes on, as CLOCK_BOOTTIME does in a laptop, which
# is the clock the daemon keeps its limits by. Both ends are in one guest, so that the guest itself cannot be suspended.
# shellcheck shell=bash

now() { cut -d' ' -f1 /proc/uptime; }

# A tunnel that our end alone wants, as an administrator would write it for either program.
wanted() {
    site
    net us start_action start
    ike us keyingtries 0
    ike us dpd_delay 30s
    [ "$(kind us)" != strongswan ] || { net us dpd_action restart && net us close_action start; }
    # Without a tunnel there is a way in clear: what is to be protected would be seen on the wire.
    way_in_clear
    # libreswan leaves its routes to a script that is not here.
    [ "$(kind them)" != libreswan ] || ip -n right route add $LEFT_NET via "$US_OWN"
}

way_in_clear() { ip -n left route replace $RIGHT_NET via "${1:-$THEM_OWN}" src $LEFT_IN; }

# impatient SIDE…: that side notices a dead peer within some seconds, in either program.
impatient() {
    local side
    for side; do
        ike "$side" dpd_delay 2s
        conf "$side" charon.retransmit_timeout 1.0
        conf "$side" charon.retransmit_base 1.0
        conf "$side" charon.retransmit_tries 3
        [ "$(kind "$side")" != libreswan ] || conf "$side" libreswan.retransmit-timeout 8s
    done
}

suspend() {
    note "suspend us for $1 s"
    kill -STOP "$(cat "$STATE/us.pid")"
    ip -n left link set $US_IF down
    SUSPENDED=$SECONDS
}

# resume SECONDS: no sooner than that after `suspend`.
resume() {
    while [ $((SECONDS - SUSPENDED)) -lt "$1" ]; do sleep 0.2; done
    ip -n left link set $US_IF up
    way_in_clear
    kill -CONT "$(cat "$STATE/us.pid")"
    note "us resumes"
    back
}

# The other end loses everything, and starts again when `them_again` says so.
them_dies() {
    kill_hard them
    forget them
    rm -rf "$STATE/them.vici" "$STATE/them.pluto"
}
them_again() { start them; }

# The peer reads its configuration as `conf` has it now.
them_reads_again() {
    note "them reads its configuration again"
    case $(kind them) in
    strongswan)
        to_swanctl them >"$STATE/them.d/them.swanctl.conf"
        charon_load them "$STATE/them.d/them.swanctl.conf"
        ;;
    libreswan) libreswan_load them ;;
    daemon)
        to_toml them >"$STATE/them.d/them.toml"
        ctl them reload
        ;;
    esac
}

# dark, light: no packet passes, either way.
dark() {
    note "no packet passes"
    impair us loss 100%
    impair them loss 100%
}
light() {
    tc -n left qdisc del dev $US_IF root
    tc -n right qdisc del dev $THEM_IF root
    note "packets pass"
    back
}

# back: from now on the tunnel can be up.
back() { BACK=$(now); }

echoes_start() {
    in_ns them perl /lab/guest/echoes.pl $RIGHT_IN >"$OUT/echo.log" 2>&1 &
    echo $! >"$STATE/echo.pids"
    in_ns us perl /lab/guest/echoes.pl $LEFT_IN $RIGHT_IN >"$OUT/echoes" 2>&1 &
    echo $! >>"$STATE/echo.pids"
}
# shellcheck disable=SC2046
echoes_end() { kill $(cat "$STATE/echo.pids") 2>/dev/null || true; }

# The first answer to what was sent since TIME, in seconds after it.
answered_after() { awk -v since="$1" '$1 >= since { printf "%.1f\n", $2 - since; exit }' "$OUT/echoes"; }
answered() { [ -n "$(answered_after "$1")" ]; }

# gap_since TIME: the longest time without an answer since the first one after it.
gap_since() {
    awk -v since="$1" -v now="$(now)" '$1 >= since { if (last && $2 - last > most) most = $2 - last; last = $2 }
        END { if (now - last > most) most = now - last; printf "%.1f\n", most }' "$OUT/echoes"
}

over() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }

# once LIMIT: from a tunnel that carries traffic to one that does so again; how long that took is in $TOOK.
# WATCH more seconds it stays so (5), with no gap above a second, or GAP. $LEAKED packets left in clear.
once() {
    local clear
    net_direct
    wanted
    settings
    # The test can fail: without a tunnel packets leave in clear.
    ! in_ns us ping -q -n -c 1 -W 0.3 -I $LEFT_IN $RIGHT_IN >/dev/null 2>&1 || true
    expect_wire "$INNER"
    start
    installed
    ping_from us
    sleep 0.3
    clear=$(wire "$INNER")
    echoes_start
    wait_for 10 answered 0 || fail "no traffic"
    BACK=
    outage
    wait_for $((${1%.*} + 30)) answered "$BACK" || fail "no traffic $((${1%.*} + 30)) s after it could be"
    TOOK=$(answered_after "$BACK")
    note "$(kind us) and $(kind them): traffic again after $TOOK s"
    sleep "${WATCH:-5}"
    GAP_SEEN=$(gap_since "$BACK")
    LEAKED=$(($(wire "$INNER") - clear))
}

# Which peer a case has.
peer_of() {
    case $1 in
    ours) ours_too ;;
    strongswan) ;;
    libreswan) THEM=libreswan ;;
    *) fail "no peer $1" ;;
    esac
}

# tunnel_comes_back LIMIT: the case is the peer; or beside-charon, by turns with two strongSwans, of which ours is no more
# than five seconds slower.
tunnel_comes_back() {
    local charon
    CLEARTEXT=yes
    if [ "$CASE" = beside-charon ]; then
        US=strongswan
        charon=none
        # In a shell of its own: charon may well not come back.
        # An echo that went in clear is no sign of a tunnel.
        (once "$1" && note "charon: $LEAKED packets in clear" && [ "$LEAKED" = 0 ] && echo "$TOOK" >"$STATE/charon.took") || true
        [ ! -e "$STATE/charon.took" ] || charon=$(cat "$STATE/charon.took")
        echoes_end
        CLEARTEXT=yes finish charon
        rm -f "$STATE"/*.{conf,vici,pid,killed}
        US=daemon
    else
        peer_of "$CASE"
    fi
    once "$1"
    [ "$LEAKED" = 0 ] || fail "$LEAKED packets of the inner networks went unprotected"
    ! over "$TOOK" "$1" || fail "traffic only after $TOOK s"
    [ "$CASE" != beside-charon ] || note "ours $TOOK s, charon ${charon} s"
    if [ "${charon:-none}" != none ] && over "$TOOK" "$(awk -v c="$charon" 'BEGIN { print c + 5 }')"; then
        fail "ours is more than 5 s slower than charon"
    fi
    ! over "$GAP_SEEN" "${GAP:-1}" || fail "then there was a gap of $GAP_SEEN s"
    wait_for 60 both_have 'installed(1)' || fail "not one IKE SA and one child: $(both .)"
    echoes_end
}
