# Our end is suspended past the hard limits of the IKE SA and its child; the peer is there all the time, or was restarted.
# CASES: strongswan-alive ours-restarted
# MORE: ours-alive strongswan-restarted libreswan-alive libreswan-restarted beside-charon-alive beside-charon-restarted
# PLANE: userspace kernel
# TIMEOUT: 150
. /lab/guest/outage.sh
how=${CASE##*-} CASE=${CASE%-*}
settings() {
    ike us rekey_time 12s
    ike us over_time 4s
    ike us rand_time 0s
    net us rekey_time 10s
    net us life_time 14s
    net us rand_time 0s
}
outage() {
    suspend 22
    [ "$how" = alive ] || { them_dies && them_again; }
    resume 22
}
tunnel_comes_back 10
