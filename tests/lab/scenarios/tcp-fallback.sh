# UDP and ESP are blocked, as in many a hotel: IKE_SA_INIT is tried over UDP first,
# then TCP carries all. Where they are not blocked, TCP is not used.
# CASES: blocked open
# KERNELS: travel
net_direct
ours_too
site
conf them charon.listen_tcp true
ike us enable_tcp fallback
ike us tcp_fallback_after 2s
ike both separate_transports no
if [ "$CASE" = blocked ]; then
    # At the receiving end, so that the wire shows what was tried.
    for end in left:l0 right:r0; do
        ip netns exec "${end%:*}" nft -f - <<NFT
table netdev block {
    chain arrives {
        type filter hook ingress device ${end#*:} priority 0
        meta l4proto { udp, esp } drop
    }
}
NFT
    done
fi
start
up us
installed
ping_both
expect_wire 'udp port 500'
if [ "$CASE" = blocked ]; then
    expect_both 'map_values(.[0].transport == "tcp" and children[0].tcp) == {us: true, them: true}'
    expect_log us 'IKE goes by TCP'
    [ "$(wire 'ip proto 50')" = 0 ] || fail "ESP where it cannot go"
else
    expect_both 'map_values(.[0].transport == "udp") == {us: true, them: true}'
    [ "$(wire 'tcp')" = 0 ] || fail "TCP where UDP does"
fi
rekey us child
rekey them ike
ping_both
down us ike
gone
