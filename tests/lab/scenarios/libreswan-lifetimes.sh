# Defaults at both ends but for the lifetimes, a child for 60 s and an IKE SA for 180 s: traffic both
# ways goes on, and nothing of it in clear; two minutes, or ten where named. The side named brings it up.
# CASES: two-us
# MORE: two-them ten-us ten-them
# THEM: libreswan
# PLANE: kernel
# TIMEOUT: 700
net_direct
site
for key in proposals children.net.esp_proposals; do conf both connections.site.$key ''; done
ip -n right route add $LEFT_NET via "$US_OWN"
net us life_time 60s
ike us rekey_time 162s
ike us over_time 18s
conf them libreswan.salifetime 60s
conf them libreswan.ikelifetime 180s
IFS=- read -r minutes side <<<"$CASE"
start
up "$side"
installed
first_ike=$(mark ike)
ping_start
for minute in $(seq "$([ "$minutes" = two ] && echo 2 || echo 10)"); do
    child=$(mark child)
    sleep 60
    [ "$(mark child)" != "$child" ] || fail "minute $minute: the child was not rekeyed"
done
[ "$minutes" = two ] || [ "$(mark ike)" != "$first_ike" ] || fail "the IKE SA was not rekeyed"
# As responder of a rekey libreswan sends by the new SA before the other end can have it, as RFC 7296 §2.8
# allows: then, and only then, a packet of its own may be lost.
ours=$(grep -c 'responder rekeyed Child SA' "$(log_of them)" || true)
note "$ours rekeys of the child by us"
ping_end "$ours"
expect us 'live | length == 1 and (.[0]."child-sas" | length == 1)'
