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
in_ns us ping -q -n -i 0.2 $THEM_OWN >/dev/null 2>&1 &
pinging=$!
installed
kill $pinging
ping_both "$US_OWN" "$THEM_OWN"
counted 6
down us ike
CLEARTEXT=yes
