# Our daemon ends under a running ping, in order or by kill -9, and leaves its SAs in the kernel; the next
# one takes them over, until the connection is up again by either side. What of it is not configured any
# more goes, and without --keep-sas all of it.
# CASES: stop kill trap them gone not-kept
# PLANE: kernel
# KERNELS: forky
net_direct
site
[ "$CASE" != trap ] || net us start_action trap
if [ "$CASE" = them ]; then
    # The peer finds out by itself that nobody knows its IKE SA any more, long after the pings have ended: traffic in
    # the child does not keep charon from asking, and charon drops its half of the child before the next one is up.
    ike them dpd_delay 12s
    # Else it finds out as soon as one of its own addresses is ready, and drops its half while it is pinged.
    ike them mobike no
    conf them charon.retransmit_timeout 0.5
    conf them charon.retransmit_base 1.0
    conf them charon.retransmit_tries 3
    net them dpd_action restart
fi
DAEMON_ARGS=(--keep-sas)

# Those of sockets do not count.
policies() { in_ns us ip xfrm policy list nosock | grep -c '^src' || true; }
# Nor do states that the kernel makes for packets while policies are held back: they have no keys.
keyed() { in_ns us ip xfrm state | grep -c -E '^\s+(aead|enc) ' || true; }
no_policies() { [ "$(policies)" = 0 ]; }
# The old SPI of what arrives is in the kernel no more.
replaced() { ! in_ns us ip xfrm state | grep -q "spi 0x$1"; }
spi_in() { sas us | jq -r '.[0]."child-sas"[0]."spi-in"'; }

start them us
[ "$CASE" = trap ] || up us
[ "$CASE" != trap ] || wait_for 10 ping_quietly us || fail "no traffic through the trap"
installed
old=$(spi_in)
ping_start
case $CASE in
stop | trap | them | gone) stop us ;;
*) kill_hard us ;;
esac
wait_for 10 dead us || fail "us does not end"
[ "$(kernel_states us)" = 2 ] || fail "$(kernel_states us) states are left, not 2"
[ "$(policies)" -ge 3 ] || fail "the policies are gone"
in_ns us ip rule | grep -q 'lookup 7296' || fail "the rule is gone"
sleep 1
rm -f "$STATE"/us.{pid,killed,ctl}
case $CASE in
gone)
    # Another network now: the old SA is nobody's.
    net us local_ts 10.7.0.0/16
    start us
    wait_for 10 replaced "$old" || fail "what is not configured any more is still there"
    [ "$(keyed)" = 0 ] || fail "states are left"
    # The pings go unanswered since.
    ping_end 1000000
    CLEARTEXT=yes
    ;;
not-kept)
    DAEMON_ARGS=()
    start us
    wait_for 10 replaced "$old" || fail "what a daemon left that crashed is still there"
    [ "$(keyed)" = 0 ] || fail "states are left"
    # Held back for ten seconds, until this run's own are there.
    wait_for 15 no_policies || fail "policies are left"
    ping_end 1000000
    CLEARTEXT=yes
    ;;
*)
    start us
    expect_log us 'goes on as an earlier run left it'
    sleep 2
    # The peer may be back already.
    [ "$CASE" = them ] || [ "$(kernel_states us)" = 2 ] || fail "$(kernel_states us) states, not the 2 that were left"
    # strongSwan drops its half of the old SA before it has the new one.
    case $CASE in
    them) ping_end ;;
    *) up us ;;
    esac
    expect us '[.[]."child-sas"[]] | length == 1'
    wait_for 15 replaced "$old" || fail "the old SA is still there"
    expect_log us 'Child SA up'
    [ "$CASE" = them ] || ping_end 4
    ping_both
    ;;
esac
# At an end without it nothing is left.
if [ "$CASE" != gone ]; then
    stop us
    wait_for 10 dead us || fail "us does not end"
    rm -f "$STATE"/us.{pid,killed,ctl}
    DAEMON_ARGS=()
    start us
    sleep 1
    stop us
    wait_for 10 dead us || fail "us does not end"
    [ "$(keyed)" = 0 ] || fail "states are left"
    [ "$(policies)" = 0 ] || fail "policies are left: $(in_ns us ip xfrm policy)"
    ! in_ns us ip rule | grep -q 7296 || fail "a rule is left"
    [ -z "$(in_ns us ip route show table 7296 2>/dev/null)" ] || fail "routes are left"
fi
