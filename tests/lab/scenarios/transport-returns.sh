# Transport mode between two hosts, for a child that is to come up by itself:
# what holds its traffic while it is down is no obstacle once it is up.
# CASES: start trap
# PLANE: userspace kernel
# KERNELS: forky
net_direct
site
net both mode transport
net us local_ts "$US_OWN/32"
net us remote_ts "$THEM_OWN/32"
net them local_ts "$THEM_OWN/32"
net them remote_ts "$US_OWN/32"
net us start_action "$CASE"
net us close_action "$CASE"
start them us
# ping ends immediately if its packet is held: start it again.
while :; do in_ns us ping -q -n -c 1 -W 1 $THEM_OWN >/dev/null 2>&1 || pause 0.1; done &
pinging=$!
installed
kill $pinging
ping_both "$US_OWN" "$THEM_OWN"
counted 6
down us ike
CLEARTEXT=yes
