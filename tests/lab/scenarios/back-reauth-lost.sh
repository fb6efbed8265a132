# Nothing passes while our end authenticates anew, until the attempt has failed; the old IKE SA reaches its hard limit later.
# CASES: strongswan
# MORE: ours libreswan beside-charon
# PLANE: kernel
# TIMEOUT: 180
. /lab/guest/outage.sh
settings() {
    impatient us
    ike us dpd_delay 30s
    ike us reauth_time 8s
    ike us over_time 17s
    ike us rand_time 0s
}
# The hard limit falls into what is watched.
WATCH=20
outage() {
    sleep 5
    dark
    sleep 12
    light
}
tunnel_comes_back 10
