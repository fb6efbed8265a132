# Transport mode between the two hosts, brought up by either side.
# CASES: us them
# Clear text and ESP have the same addresses here; the counters tell.
net_direct
site
net both mode transport
net us local_ts "$US_OWN/32"
net us remote_ts "$THEM_OWN/32"
net them local_ts "$THEM_OWN/32"
net them remote_ts "$US_OWN/32"
start
up "$CASE"
installed
expect_both 'map_values(children[0].mode | ascii_downcase) == {us: "transport", them: "transport"}'
ping_both "$US_OWN" "$THEM_OWN"
counted 6
rekey us child
rekey them ike
ping_both "$US_OWN" "$THEM_OWN"
expect_wire 'ip proto 50'
