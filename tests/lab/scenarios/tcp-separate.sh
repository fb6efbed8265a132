# Separate transports (draft-ietf-ipsecme-ikev2-reliable-transport): IKE over TCP
# from the start or after IKE_SA_INIT, ESP over IP, or in UDP through a NAT. In
# transport mode the policies cover the connection's own addresses.
# CASES: tcp udp tcp-nat udp-nat transport
# PLANE: userspace kernel
# KERNELS: travel
case $CASE in *-nat) net_nat us ;; *) net_direct ;; esac
ours_too
site
conf both charon.delete_rekeyed_delay 1
conf them charon.listen_tcp true
inside=() && [ "$CASE" != transport ] || { transport && inside=("$US_OWN" "$THEM_OWN"); }
case $CASE in tcp* | transport) ike us enable_tcp yes ;; esac
ike us separate_transports yes
start
up us
installed
expect_both 'map_values(.[0].transport == "tcp" and (children[0].tcp | not)) == {us: true, them: true}'
# Behind a NAT only that side can be the first to send.
[ "$CASE" = transport ] || wait_for "$PATIENCE" ping_quietly us || fail "no traffic"
ping_both "${inside[@]}"
[ "$CASE" = transport ] || ping_start
for side in us them; do
    rekey $side child
    rekey $side ike
done
[ "$CASE" = transport ] || ping_end
ping_both "${inside[@]}"
expect_wire 'tcp port 4500'
[ "$(wire 'udp port 500')" = 0 ] || fail "IKE by UDP port 500"
case $CASE in
*-nat) expect_wire 'udp port 4500' && [ "$(wire 'ip proto 50')" = 0 ] || fail "ESP not in UDP" ;;
*) expect_wire 'ip proto 50' ;;
esac
down us ike
gone
