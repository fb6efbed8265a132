# No NAT, but the side named asks for UDP encapsulation as if there were one.
# Where it is ours, packets have what is said to nobody or to one alone: a DSCP
# (IKE), one length (ESP), and HMAC-SHA-256 cut to 96 bits.
# CASES: us them
# PLANE: userspace kernel
net_direct
site
ike "$CASE" encap true
if [ "$CASE" = us ]; then
    ike us dscp 101110
    ike them dscp 001010
    net both tfc_padding 1200
    net both esp_proposals aes256-sha256
    net both sha256_96 true
fi
start
up us
installed
expect_both 'map_values(children[0].encap) == {us: true, them: true}'
ping_both
counted 6
expect_wire 'udp port 4500'
[ "$(wire 'ip proto 50')" = 0 ] || fail "plain ESP although encapsulation was forced"
if [ "$CASE" = us ]; then
    esp='udp port 4500 and udp[8:4] != 0 and udp[4:2] > 9'
    expect_wire "$esp"
    [ "$(wire "$esp and udp[4:2] < 1200")" = 0 ] || fail "a packet is as short as what is in it"
    # IV and ICV: 16 octets and 12.
    expect_wire "$esp and udp[4:2] = $((8 + 8 + 16 + 1216 + 12))"
    for from in "$US_OWN 0xb8" "$THEM_OWN 0x28"; do
        sent="src host ${from% *} and (udp port 500 or (udp port 4500 and udp[8:4] = 0))"
        expect_wire "$sent"
        [ "$(wire "$sent and ip[1] & 0xfc != ${from#* }")" = 0 ] || fail "an IKE packet without its DSCP"
    done
fi
