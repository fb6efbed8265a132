# Lifetimes of seconds at both ends: rekeys of both kinds, from both sides,
# on their own, for a quarter of a minute of traffic without loss.
# PLANE: userspace kernel
net_direct
site
ike both rekey_time 5s
ike both over_time 5s
ike both rand_time 2s
net both rekey_time 3s
net both life_time 8s
net both rand_time 1s
start
up us
installed
first=$(mark child)
first_ike=$(mark ike)
ping_start
sleep 14
[ "$(mark ike)" != "$first_ike" ] || fail "the IKE SA was never rekeyed"
[ "$(mark child)" != "$first" ] || fail "the child was never rekeyed"
ping_end
agree
