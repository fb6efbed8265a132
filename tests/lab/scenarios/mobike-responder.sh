# Our address is taken away under ping, and we are the responder: it takes another one and says so, and the
# initiator moves (RFC 4555 §3.6).
# PLANE: kernel
net_direct
# charon prefers IPv6 when it looks for another path.
ip -n left -6 addr flush dev $US_IF scope global
ip -n right -6 addr flush dev $THEM_IF scope global
site
conf both connections.site.local_addrs %any
conf us connections.site.remote_addrs %any
start
up them
installed
ping_start
# With a prefix of its own: what is secondary goes along with the first.
ip -n left addr add 192.0.2.101/25 dev $US_IF
sleep 1
ip -n left addr del 192.0.2.1/24 dev $US_IF
expect them '.[0]."remote-host" == "192.0.2.101"'
expect us '.[0]."local-host" == "192.0.2.101"'
sleep 1
ping_end 60
ping_both
rekey us child
rekey them ike
ping_both
