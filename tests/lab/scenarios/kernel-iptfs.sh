# AGGFRAG payloads (RFC 9347) by kernel ESP, with strongSwan and with ourselves: started
# and rekeyed by either side, also where the peer wants inner packets whole;
# tunnel mode where one side does not want it.
# CASES: both ours whole us them
# PLANE: kernel
# KERNELS: travel
net_direct
case $CASE in ours | whole) ours_too ;; esac
site
mode=IPTFS
case $CASE in
us | them)
    net "$CASE" mode iptfs
    mode=TUNNEL
    ;;
*) net both mode iptfs ;;
esac
[ "$CASE" != whole ] || conf them charon.iptfs.accept_fragments no
size=4000
[ "$CASE" != whole ] || size=1000
conf both charon.delete_rekeyed_delay 1
in_mode() {
    local side
    for side in us them; do
        expect $side "[.[].\"child-sas\"[].mode] | length > 0 and all(. == \"$mode\")"
        [ "$mode" = TUNNEL ] || expect_kernel $side state 'mode (iptfs|5)'
    done
}
start
for side in us them; do
    up $side
    installed
    in_mode
    ping_both
    # Larger than the path takes: split over several payloads where that is allowed.
    in_ns left ping -q -c 3 -i 0.2 -s "$size" -I $LEFT_IN $RIGHT_IN >/dev/null || fail "no large packets"
    rekey $side child
    for end in us them; do states $end 2; done
    in_mode
    ping_both
    rekey "$(other $side)" ike
    expect_wire 'ip proto 50'
    down $side ike
    gone
    kernel_clean us them
done
