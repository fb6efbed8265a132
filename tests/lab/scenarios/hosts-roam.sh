# Two hosts with a child for their own addresses (`dynamic`) and a trap. Ours gets another address: child and trap follow.
# Faults: in `ChildSa::follow_addresses` (crates/ike-proto), take no child in tunnel mode; in `Endpoint::on_network`, let no trap
# leave.
# CASES: us
# PLANE: userspace kernel
net_direct
# charon prefers IPv6 when it looks for another path.
ip -n left -6 addr flush dev $US_IF scope global
ip -n right -6 addr flush dev $THEM_IF scope global
site
ike us local_addrs %any
ike them remote_addrs %any
net both local_ts dynamic
net both remote_ts dynamic
net us start_action trap
new=192.0.2.101
# Inside and outside have the same addresses. What strongSwan sends does not count: it answers a packet from the new address in
# clear until it has handled the request that tells of the move.
clear() { wire "(icmp[icmptype] = icmp-echo or icmp[icmptype] = icmp-echoreply) and not src host $THEM_OWN"; }
reached() { in_ns us ping -q -n -c 1 -W 1 "$THEM_OWN" >/dev/null 2>&1 && both_have 'installed(1)'; }
start
wait_for "$PATIENCE" reached || fail "no child through the trap"
before=$(clear)
ping_both "$US_OWN" "$THEM_OWN"
# With a prefix of its own: what is secondary goes along with the first.
ip -n left addr add $new/25 dev $US_IF
ip -n left addr del "$US_OWN/24" dev $US_IF
wait_for 2 log_has us 'path of the IKE SA changed' || fail "ours has not moved"
in_ns us ping -q -n -i 0.05 -c 60 -W 1 "$THEM_OWN" >"$OUT/moved.log" 2>&1 || true
grep -q -E ' (5[0-9]|60) received' "$OUT/moved.log" || fail "from the new address: $(grep received "$OUT/moved.log")"
installed
expect us ".[0].\"child-sas\"[0].\"local-ts\" == [\"$new/32\"]"
rekey us child
ping_both $new "$THEM_OWN"
down them ike
# The trap has the new address, too.
wait_for "$PATIENCE" reached || fail "no child through the trap"
[ "$(clear)" = "$before" ] || fail "$(($(clear) - before)) packets in clear"
expect_wire 'ip proto 50'
