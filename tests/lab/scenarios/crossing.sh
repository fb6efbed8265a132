# Both ends start at the same moment, or one a little after the other, again and again: one IKE SA and one child stay,
# and this end loses no packet meanwhile.
# TIMEOUT: 400
# CASES: strongswan ours
# PLANE: userspace
[ "$CASE" = strongswan ] || ours_too
net_direct
site
# Delay makes the requests cross on the wire.
impair us delay 30ms
impair them delay 30ms
net both start_action start
# What the peer ends is not brought up beside what is there.
net us close_action start
for round in 1 2 3 4 5 6; do
    if [ "$round" -gt 1 ]; then
        stop us
        stop them
        # It leaves its socket, by which it would seem to be up.
        rm -f "$STATE/them.vici"
    fi
    case $((round % 3)) in
    1)
        start us & first=$!
        start them & second=$!
        wait "$first" "$second"
        ;;
    2) start us them ;;
    0) start them us ;;
    esac
    expect_both '(.us | children | length > 0) and (.them | children | length > 0)'
    ping_start
    wait_for 60 both_have 'installed(1)' || fail "more than one in round $round"
    # A strongSwan that was up first may go on with its old request.
    sleep 8
    wait_for 30 both_have 'installed(1)' || fail "more than one in round $round after all"
    # strongSwan sends by a new child before its IKE_AUTH response leaves: this packet is lost, unless it waits here.
    if [ "$CASE" = strongswan ]; then ping_end 1; else ping_end; fi
done
