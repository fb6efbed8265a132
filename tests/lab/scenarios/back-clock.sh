# The wall clock of the guest, of both ends and of their kernels, is set years forward or back.
# CASES: strongswan-forward
# MORE: libreswan-forward libreswan-back ours-forward ours-back strongswan-back beside-charon-forward beside-charon-back
# PLANE: kernel userspace
# TIMEOUT: 150
# BOOT: own
. /lab/guest/outage.sh
how=${CASE##*-} CASE=${CASE%-*}
# Traffic does not stop for longer than the outage may last.
GAP=10 WATCH=15
settings() { ike us dpd_delay 5s; }
outage() {
    case $how in
    forward) date -s '+20 years' ;;
    back) date -s '-20 years' ;;
    esac
    back
}
tunnel_comes_back 10
