# Ten thousand SAs in the guest's kernel, five thousand for each of two daemons,
# brought up by one command; meanwhile the daemons answer others.
# PLANE: kernel
# TIMEOUT: 300
# KERNEL_ARGS: mem=1G
CONNECTIONS=5 CHILDREN=500
# In ms, on a host where the tunnels take less than fifteen seconds; a fifth of what they take on a
# slower one, for the two daemons and the kernel share the guest's one CPU.
LONGEST=3000
net_direct
ours_too
connection beside beside 10.1.255.0/24 10.2.255.0/24
# By awk: a line at a time would take longer than the test. The responder tells
# connections by identity.
awk -v n=$CONNECTIONS -v m=$CHILDREN -v us="$STATE/us.conf" -v them="$STATE/them.conf" \
    -v a="$US_OWN" -v b="$THEM_OWN" '
    function side(file, own, name, other, peer, i,   c) {
        c = "connections.many" i
        print c ".local_addrs = " own "\n" c ".remote_addrs = " other "\n" c ".version = 2" >> file
        print c ".proposals = aes256gcm16-prfsha256-x25519" >> file
        print c ".local.auth = psk\n" c ".remote.auth = psk" >> file
        print c ".local.id = " name i "\n" c ".remote.id = " peer i >> file
        print "secrets.ike-many" i ".id = " name i ", " peer i >> file
        print "secrets.ike-many" i ".secret = a secret of many" >> file
    }
    function child(file, i, j, left, right,   c) {
        c = "connections.many" i ".children.c" i "x" j
        print c ".local_ts = " left "/32\n" c ".remote_ts = " right "/32\n" c ".esp_proposals = aes256gcm16" >> file
    }
    BEGIN {
        for (i = 0; i < n; i++) {
            side(us, a, "us", b, "them", i)
            side(them, b, "them", a, "us", i)
            for (j = 0; j < m; j++) {
                end = (2 * i + int(j / 250)) "." (j % 250 + 1)
                child(us, i, j, "10.1." end, "10.2." end)
                child(them, i, j, "10.2." end, "10.1." end)
            }
        }
    }'
start
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
rss() { awk '/VmRSS/ { print $2 }' "/proc/$(cat "$STATE/$1.pid")/status"; }
all_up() {
    local rc=0
    timeout 240 "$DAEMON" --control "$STATE/us.ctl" up --all --timeout 240s >"$OUT/up.out" 2>&1 || rc=$?
    echo $rc >"$STATE/up.rc"
}
before=$(rss us)
begin=$(milliseconds)
all_up &
worst=0 rounds=0
while [ ! -e "$STATE/up.rc" ]; do
    from=$(milliseconds)
    ctl us up --child beside >/dev/null || fail "no answer while others are brought up"
    ctl us down --child beside >/dev/null || fail "no answer to down while others are brought up"
    took=$(($(milliseconds) - from))
    [ $took -le $worst ] || worst=$took
    rounds=$((rounds + 1))
    sleep 0.2
done
took=$(($(milliseconds) - begin))
[ "$(cat "$STATE/up.rc")" = 0 ] || { grep -v ' is up' "$OUT/up.out" | tail; fail "not all came up"; }
tunnels=$((CONNECTIONS * CHILDREN))
note "$tunnels tunnels in $took ms; one of another connection made and deleted $rounds times meanwhile, in $worst ms at most"
note "memory of the daemon: $before KiB before, $(rss us) KiB now"
[ $((took / 5)) -le $LONGEST ] || LONGEST=$((took / 5))
[ $worst -le $LONGEST ] || fail "the daemon answered after $worst ms"
for side in us them; do
    n=$(kernel_states $side)
    [ "$n" -ge $((2 * tunnels)) ] || fail "$side has $n states"
done
begin=$(milliseconds)
stop us
wait_for 60 dead us || fail "us still runs"
note "all removed in $(($(milliseconds) - begin)) ms"
kernel_clean us
wait_for 60 nothing_left them || fail "them kept something"
