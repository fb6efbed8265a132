# Extended sequence numbers past 2^32: the counters of both ends are set shortly
# before, and traffic goes on across without loss; a rekey starts them anew.
# CASES: gcm cbc
# MORE: gcm-ours
# PLANE: kernel
# KERNELS: forky trixie@gcm
net_direct
case $CASE in *-ours) ours_too ;; esac
site
case $CASE in
gcm*) net both esp_proposals aes256gcm16-x25519-esn ;;
cbc) net both esp_proposals aes256-sha256-x25519-esn ;;
esac
start
up us
installed
for side in us them; do expect_kernel $side state 'flag .*esn|anti-replay esn'; done
ping_both
# Whoever checks no sequence number would pass the rest.
replay_from $((0x00000000ffffffe0))
ping_start
over() { in_kernel us state 'oseq-hi 0x1,' && in_kernel us state '[^o]seq-hi 0x1,' && in_kernel them state 'oseq-hi 0x1,'; }
wait_for "$PATIENCE" over || fail "the counters did not pass 2^32"
sleep 1
ping_end
note "$(ip -n left xfrm state | grep -A 1 'anti-replay esn' | grep seq-hi | tr '\n' ';')"
rekey them child
ping_both
