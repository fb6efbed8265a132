# Both sides rekey at the same moment, five times; they agree each time and no
# packet is lost.
# TIMEOUT: 180
# CASES: child ike
# PLANE: userspace kernel
net_direct
site
# Delay makes the requests cross on the wire.
impair us delay 30ms
impair them delay 30ms
start
up us
installed
ping_start
for _ in 1 2 3 4 5; do
    before=$(mark "$CASE")
    rekey_trigger us "$CASE" &
    rekey_trigger them "$CASE" &
    wait_for "$PATIENCE" rekeyed "$CASE" "$before" || fail "not rekeyed"
    sleep 0.5
    installed
done
ping_end
# A redundant IKE SA may linger while it is being deleted (strongSwan forgets
# some of its own, even between two of them), but only one is in use.
installed
