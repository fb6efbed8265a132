# A road warrior gets virtual IPs of both families and a name server, from
# either program; they are installed, survive rekeys, go when it goes, and are
# the same when it comes again. The updown program is told the same by both.
# CASES: us them
# PLANE: userspace kernel
# TIMEOUT: 120
warrior=$CASE gateway=$(other "$CASE")
net_direct
site
case $gateway in
us) nets="$LEFT_NET, $LEFT_NET6" in4=$LEFT_IN in6=$LEFT_IN6 ;;
them) nets="$RIGHT_NET, $RIGHT_NET6" in4=$RIGHT_IN in6=$RIGHT_IN6 ;;
esac
ike "$warrior" vips "0.0.0.0, ::"
net "$warrior" local_ts dynamic
net "$warrior" remote_ts "$nets"
ike "$gateway" pools "four, six"
conf "$gateway" pools.four.addrs 10.9.0.0/24
conf "$gateway" pools.four.dns 10.2.0.53
conf "$gateway" pools.six.addrs fd09::/112
net "$gateway" local_ts "$nets"
net "$gateway" remote_ts dynamic
STRONGSWAN_MORE=resolve
conf "$warrior" charon.plugins.resolve.file "$STATE/resolv.conf"
echo "nameserver 192.0.2.53" >"$STATE/resolv.conf"
cat >"$STATE/updown" <<HOOK
#!/bin/sh
echo "\$PLUTO_VERB \$PLUTO_CONNECTION \$PLUTO_ME \$PLUTO_PEER_ID \$PLUTO_MY_CLIENT \$PLUTO_PEER_CLIENT" \
    "\$PLUTO_MY_SOURCEIP \$PLUTO_MY_SOURCEIP4_1 \$PLUTO_MY_SOURCEIP6_1 \$PLUTO_INTERFACE" >>$STATE/updown.out
HOOK
chmod +x "$STATE/updown"
net "$warrior" updown "$STATE/updown"
start
has_vips() { [ "$(in_ns "$warrior" ip -o addr | grep -c -E ' (10\.9\.0\.1/32|fd09::1/128) ')" = 2 ]; }
no_vips() { ! in_ns "$warrior" ip -o addr | grep -q -E ' (10\.9\.0\.|fd09::)'; }
for round in first again; do
    note "$round"
    up "$warrior"
    installed
    expect "$warrior" '.[0]."local-vips" == ["10.9.0.1", "fd09::1"]'
    expect "$gateway" '.[0]."remote-vips" == ["10.9.0.1", "fd09::1"]'
    wait_for 5 has_vips || fail "no virtual IPs on an interface"
    grep -q '^nameserver 10.2.0.53 ' "$STATE/resolv.conf" || fail "no name server"
    ping_from "$warrior" 10.9.0.1 "$in4"
    ping_from "$warrior" fd09::1 "$in6"
    ping_from "$gateway" "$in4" 10.9.0.1
    rekey "$warrior" ike
    rekey "$gateway" child
    # Without a source of its own a packet has the virtual IP.
    in_ns "$warrior" ping -q -n -c 2 -i 0.2 -W 3 "$in4" >/dev/null || fail "the route has no source"
    down "$warrior" ike
    gone
    wait_for 5 no_vips || fail "virtual IPs left behind"
done
[ "$(cat "$STATE/resolv.conf")" = "nameserver 192.0.2.53" ] || fail "the name server stays"
cp "$STATE/updown.out" $OUT/
for verb in up-client up-client-v6 down-client down-client-v6; do
    [ "$(grep -c "^$verb " "$STATE/updown.out")" = 2 ] || fail "updown was not run twice for $verb"
done
interface=$([ "$warrior" = us ] && echo l0 || echo r0)
me=$([ "$warrior" = us ] && echo "$US_OWN" || echo "$THEM_OWN")
grep -q -x "up-client net $me $gateway.example.org 10.9.0.1/32 ${nets%%,*} 10.9.0.1 10.9.0.1 fd09::1 $interface" \
    "$STATE/updown.out" || fail "updown was told something else"
[ "$gateway" = them ] || ctl us leases | grep -q -E "^ +10\.9\.0\.1 +offline +'them.example.org'" || fail "no lease"
