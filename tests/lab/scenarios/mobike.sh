# The address of the initiator is taken away under ping: the SAs move to another one (RFC 4555). Ours announces an address of
# the loopback, and none of a VRF, from which the kernel does not send.
# Faults: in `HostWatch::addresses` (crates/routes), do not ask `in_a_vrf`; in `usable`, leave links with LOOPBACK out (case us).
# CASES: us them
# PLANE: userspace kernel
net_direct
# charon prefers IPv6 when it looks for another path.
ip -n left -6 addr flush dev $US_IF scope global
ip -n right -6 addr flush dev $THEM_IF scope global
site
conf both connections.site.local_addrs %any
conf "$(other "$CASE")" connections.site.remote_addrs %any
if [ "$CASE" = us ]; then
    modules vrf
    ip -n left -batch - <<IP
addr add 203.0.113.7/32 dev lo
link add red type vrf table 10
link set red up
addr add 203.0.113.8/32 dev red
IP
fi
start
up "$CASE"
installed
case $CASE in
us) dev=$US_IF old=192.0.2.1 new=192.0.2.101 ;;
them) dev=$THEM_IF old=192.0.2.2 new=192.0.2.102 ;;
esac
ping_start
# With a prefix of its own: what is secondary goes along with the first.
ip -n "$(netns "$CASE")" addr add $new/25 dev $dev
sleep 1
ip -n "$(netns "$CASE")" addr del $old/24 dev $dev
note "$old is gone"
expect "$(other "$CASE")" ".[0].\"remote-host\" == \"$new\""
expect "$CASE" ".[0].\"local-host\" == \"$new\""
sleep 1
ping_end 60
ping_both
[ "$US" != daemon ] || expect us '.[0].mobike == true'
rekey us child
rekey them ike
ping_both
if [ "$CASE" = us ]; then
    expect_log them 'additional MOBIKE peer address: 203\.0\.113\.7'
    ! log_has them '203\.0\.113\.8' || fail "an address of a VRF was announced"
fi
