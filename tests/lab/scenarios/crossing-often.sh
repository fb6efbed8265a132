# Both ends start 20 connections at the same moment, ten times: never more than one duplicate of an IKE SA or child, none
# older than a minute, and no ping lost from when a child is up at both ends. With two strongSwans it is only told what
# they have.
# MORE: ours strongswan charon
# TIMEOUT: 1200
# PLANE: userspace kernel
ROUNDS=${ROUNDS:-10}
case $CASE in ours) ours_too ;; charon) US=strongswan ;; esac
conf both charon.cookie_threshold 0
conf both charon.block_threshold 0
connections=$(seq 20)
for n in $connections; do
    connection "s$n" "n$n" $LEFT_IN/32 "10.2.9.$n/32"
    conf us "connections.s$n.local.id" "us$n.example.org"
    conf us "connections.s$n.remote.id" "them$n.example.org"
    conf them "connections.s$n.local.id" "them$n.example.org"
    conf them "connections.s$n.remote.id" "us$n.example.org"
    conf both "secrets.ike-s$n.id" "us$n.example.org, them$n.example.org"
    conf both "connections.s$n.children.n$n.start_action" start
done

# The greatest number of IKE SAs, and of children, that a connection has at an end; and how many have none.
counts() {
    both 'map_values(live | [group_by(.name)[] | [length, ([.[]."child-sas"[] | select(.state == "INSTALLED")] | length)]])
        | [([.us[][0], .them[][0]] | max // 0), ([.us[][1], .them[][1]] | max // 0),
           ([.us[] | select(.[1] > 0)] | length), ([.them[] | select(.[1] > 0)] | length)] | map(tostring) | join(" ")' -r
}
most=0 late=0 lost=0 sent=0 doubled=0
for round in $(seq "$ROUNDS"); do
    net_direct
    for n in $connections; do ip -n right addr add "10.2.9.$n/32" dev inner0; done
    impair us delay 30ms
    impair them delay 30ms
    start us & first=$!
    start them & second=$!
    wait "$first" "$second"
    begun=$SECONDS pinging=no double=no ikes=0 children=0 ours=0 theirs=0
    while [ $((SECONDS - begun)) -lt 62 ]; do
        counts >"$STATE/counts" || true
        read -r ikes children ours theirs <"$STATE/counts" || true
        if [ "$pinging" = no ] && [ "${ours:-0} ${theirs:-0}" = "20 20" ]; then
            pinging=yes
            # shellcheck disable=SC2046
            in_ns us fping -q -c 200 -p 200 -t 5000 -S $LEFT_IN $(seq -f 10.2.9.%g 20) >"$OUT/ping.$round.log" 2>&1 &
            ping=$!
        fi
        for many in ${ikes:-0} ${children:-0}; do
            [ "$many" -le "$most" ] || most=$many
            [ "$many" -le 1 ] || double=yes
        done
        # Alone they come to rest soon.
        sleep 1
    done
    [ $double = no ] || doubled=$((doubled + 1))
    [ "$ikes $children $ours $theirs" = "1 1 20 20" ] || late=$((late + 1))
    [ $pinging = yes ] || fail "not all up in round $round: $ikes $children $ours $theirs"
    wait "$ping" || true
    sed -n 's|.*xmt/rcv/%loss = \([0-9]*\)/\([0-9]*\)/.*|\1 \2|p' "$OUT/ping.$round.log" |
        awk '{ a += $1; b += $2 } END { print a + 0, b + 0 }' >"$STATE/counts"
    read -r out back <"$STATE/counts"
    sent=$((sent + out)) lost=$((lost + out - back))
    note "round $round: after a minute at most $ikes IKE SAs and $children children each, $ours and $theirs are up, $back of $out pings"
    [ "$round" = "$ROUNDS" ] || { finish "round$round" && rm -f "$STATE"/*.{vici,ctl,pid,killed}; }
done
note "$most at a time at the most, duplicates in $doubled rounds, $late rounds with one after a minute, $lost of $sent pings lost"
[ "$CASE" != charon ] || return 0
[ "$most" -le 2 ] || fail "more than one duplicate"
[ "$late" = 0 ] || fail "duplicates are older than a minute"
[ "$lost" = 0 ] || [ "$CASE" = strongswan ] || fail "pings are lost"
