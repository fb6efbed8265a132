# A daemon on a file in strongSwan's own syntax is told to read it again while traffic
# goes through its tunnel: nothing is lost, whatever has changed; a broken file is
# refused whole.
net_direct
site
CONF_SYNTAX=swanctl
conf us connections.site.dpd_delay 30s
start
file=$STATE/us.d/us.conf
good=$(cat "$file")
up us
installed
ping_start
old=$(mark child)

note "the same, by SIGHUP and by command"
kill -HUP "$(cat "$STATE/us.pid")"
expect_log us 'configuration reloaded'
ctl us reload
note "another connection beside it"
printf '%s\n' "$good" 'connections { other : connections.site { local_addrs = 192.0.2.77
    children { net { local_ts = 10.77.0.0/16 } } } }' >"$file"
ctl us reload
expect_log us 'connections=2 added=1'
note "a broken file"
printf '%s\n' "$good" 'connections { site { dpd_dealy = 1s } }' >"$file"
! ctl us reload >"$OUT/broken.out" 2>&1 || fail "a broken file was taken"
grep -q 'us.conf:[0-9]*:[0-9]*: unknown option .connections.site.dpd_dealy.' "$OUT/broken.out" ||
    fail "the mistake is not named: $(cat "$OUT/broken.out")"
expect_log us 'the configuration stays as it was'
note "the connection itself, then gone"
printf '%s\n' "$good" 'connections { site { dpd_delay = 20s } }' >"$file"
ctl us reload
rekey us child
wait_for "$PATIENCE" rekeyed child "$old" || fail "the child was not rekeyed"
printf '%s\n' "${good//site/elsewhere}" >"$file"
ctl us reload
expect_log us 'removed=1'
old=$(mark ike)
rekey us ike
wait_for "$PATIENCE" rekeyed ike "$old" || fail "the IKE SA was not rekeyed"
ping_end
