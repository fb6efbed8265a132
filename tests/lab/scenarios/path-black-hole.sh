# A link on the way is narrow and nobody says so: smaller fragments are tried when nothing comes back.
# CASES: us-1400 them-1400 us-1000 ours-1000
# MORE: them-1000
# TIMEOUT: 150
side=${CASE%-*}
net_narrow "${CASE#*-}" silent
if [ "$side" = ours ]; then
    ours_too
    side=us
fi
site
# strongSwan's datagrams vanish as well, and it does not try smaller ones.
[ "$THEM" != strongswan ] || conf them charon.fragment_size 576
ike both proposals aes256gcm16-prfsha384-x25519-ke1_mlkem1024
start
begun=$SECONDS
up "$side"
installed
took=$((SECONDS - begun))
note "up after $took s"
# A busy guest takes half a second to answer, and timers go by that.
[ "$took" -le 20 ] || fail "up only after $took s"
ping_both
rekey us ike
rekey them ike
ping_both
