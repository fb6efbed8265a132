# A link on the way is narrow, and routers say so: what is too large is sent again in smaller fragments as
# soon as they have.
# AGAIN: strongSwan ignores a request it has answered if the fragments become smaller, and the larger ones are lost
# AGAIN_CASES: us-*
# AGAIN_FAILS: us could not bring up net
# AGAIN_SEEN: strongswan_ignores_smaller_pieces
# CASES: us-1400 them-1400 us-1000 ours-1000
# MORE: them-1000
# TIMEOUT: 120
side=${CASE%-*}
net_narrow "${CASE#*-}"
if [ "$side" = ours ]; then
    ours_too
    side=us
fi
site
ike both proposals aes256gcm16-prfsha384-x25519-ke1_mlkem1024
start
begun=$SECONDS
up "$side"
installed
took=$((SECONDS - begun))
note "up after $took s"
# strongSwan sends again after 4 s and 11 s, and what is too large goes by IP fragments then.
limit=8
[ "$side" = us ] || limit=16
[ "$took" -le $limit ] || fail "up only after $took s"
ping_both
rekey us ike
rekey them ike
ping_both
