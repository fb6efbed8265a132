# A gateway dies and comes back with its ticket keys; the client notices, and its session goes on by a ticket
# (RFC 5723), ours with ours. "keys": with other keys it refuses the ticket, and the client begins anew.
# CASES: crash keys
# PLANE: userspace kernel
net_direct
ours_too
site
ike both session_resumption true
ike us dpd_delay 1s
net us dpd_action start
conf us charon.retransmit_timeout 0.5
conf us charon.retransmit_base 1.0
conf us charon.retransmit_tries 4
mkdir -p "$STATE/them.d"
ticket_key() { "$DAEMON" ticket-key "$STATE/them.d/$1" || fail "ticket-key"; }
ticket_key ticket.key
conf them charon.session_resumption.keys ticket.key
start
up us
installed
expect_both '[.us, .them] | all(.[0] | .resumed != true)'
ping_both
kill_hard them
forget them
[ "$CASE" = crash ] || { rm "$STATE/them.d/ticket.key"; ticket_key ticket.key; }
start them
installed
case $CASE in
crash)
    expect_both '[.us, .them] | all(.[0].resumed)'
    expect_wire 'udp[26] == 38'
    ;;
keys)
    expect_both '[.us, .them] | all(.[0] | .resumed != true)'
    expect_log us 'TICKET_NACK'
    expect_log them 'ticket refused.*not sealed by a key of this gateway'
    ;;
esac
ping_both
