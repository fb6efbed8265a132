# Our end loses its only address, and has another one some time later: before the peer is taken for dead, or after.
# CASES: strongswan-mobike strongswan-plain strongswan-dead
# MORE: libreswan-mobike libreswan-plain libreswan-dead ours-mobike ours-plain ours-dead ours-plain-dead strongswan-plain-dead beside-charon-mobike beside-charon-plain beside-charon-dead
# PLANE: userspace kernel
# TIMEOUT: 180
. /lab/guest/outage.sh
how=${CASE#*-} CASE=${CASE%%-*}
[ "$CASE" != beside ] || { CASE=beside-charon how=${how#*-}; }
away=10
settings() {
    # charon prefers IPv6 when it looks for another path.
    ip -n left -6 addr flush dev $US_IF scope global
    ip -n right -6 addr flush dev $THEM_IF scope global
    conf us connections.site.local_addrs %any
    conf them connections.site.remote_addrs %any
    # Without MOBIKE the peer keeps the old IKE SA until it finds that nobody answers.
    case $how in plain*) conf both connections.site.mobike false && impatient them ;; esac
    case $how in *dead) impatient us && away=20 ;; esac
}
outage() {
    note "no address for $away s"
    ip -n left addr flush dev $US_IF
    sleep "$away"
    ip -n left addr add 192.0.2.101/24 dev $US_IF
    way_in_clear
    note "another address"
    back
}
tunnel_comes_back 10
