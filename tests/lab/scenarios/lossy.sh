# A quarter of the packets lost each way, some doubled, some out of order:
# establish by either side, rekey by both, delete.
# CASES: us them
# TIMEOUT: 150
# PLANE: userspace kernel
net_direct
site
conf both charon.retransmit_timeout 0.6
conf both charon.retransmit_base 1.2
conf both charon.retransmit_tries 15
PATIENCE=40
impair us delay 10ms 5ms loss 25% duplicate 10% reorder 20%
impair them delay 10ms 5ms loss 25% duplicate 10% reorder 20%
start
up "$CASE"
installed
rekey us child
rekey them ike
rekey us ike
rekey them child
down "$(other "$CASE")" ike
# A delete of an SA rekeyed before may still be asking for its lost answer.
expect_both 'map(live == []) | all'
