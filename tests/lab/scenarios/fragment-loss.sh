# The same with one packet in ten lost each way: only whole messages count.
# TIMEOUT: 150
net_direct
site
conf both charon.fragment_size 256
conf both charon.retransmit_timeout 0.6
conf both charon.retransmit_base 1.2
conf both charon.retransmit_tries 12
lefts=$LEFT_NET rights=$RIGHT_NET
for i in $(seq 1 12); do
    lefts="$lefts, 10.101.$i.0/24"
    rights="$rights, 10.102.$i.0/24"
done
net us local_ts "$lefts"
net us remote_ts "$rights"
net them local_ts "$rights"
net them remote_ts "$lefts"
impair us delay 5ms 3ms loss 10%
impair them delay 5ms 3ms loss 10%
start
up us
installed
down us ike
gone
up them
installed
