# Quick crash detection (RFC 6290): a gateway is killed and starts again with the secret of its file. Its client, whose
# timers would give up after 165 s, finds out by its next message and is up again. strongSwan does not know tokens, and is
# none the worse for them, nor for the exchange that tells it that of a rekeyed IKE SA.
# CASES: ours strongswan
# PLANE: kernel
net_direct
[ "$CASE" = strongswan ] || ours_too
site
conf us charon.qcd_secret "$STATE/us.qcd"
if [ "$CASE" = ours ]; then
    conf them charon.qcd_secret "$STATE/them.qcd"
    ike us dpd_delay 1s
    net us dpd_action start
fi
start
[ "$(stat -c %a "$STATE/us.qcd")" = 600 ] || fail "the secret is for others to read"
up us
installed
ping_both
rekey us ike
installed
if [ "$CASE" = strongswan ]; then
    rekey them ike
    rekey us child
    ping_both
else
    kill_hard them
    forget them
    start them
    expect_log us 'IKE SA down.*the peer has lost the SA \(QCD\)'
    expect_log them 'the peer is told that its IKE SA is gone \(QCD\)'
    installed
    ping_both
fi
