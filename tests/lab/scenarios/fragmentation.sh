# IKE_AUTH grown by many traffic selectors goes in small fragments, request
# and response; the side named initiates.
# CASES: us them
net_direct
site
conf both charon.fragment_size 256
ike both fragmentation yes
lefts=$LEFT_NET rights=$RIGHT_NET
for i in $(seq 1 24); do
    lefts="$lefts, 10.101.$i.0/24"
    rights="$rights, 10.102.$i.0/24"
done
net us local_ts "$lefts"
net us remote_ts "$rights"
net them local_ts "$rights"
net them remote_ts "$lefts"
start
up "$CASE"
installed
expect_log them 'splitting IKE message .* into [3-9]'
expect_log them 'received fragment #[3-9] of'
ping_both
rekey us child
rekey them child
ping_both
