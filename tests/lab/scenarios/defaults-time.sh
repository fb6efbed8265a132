# An end that names no proposals, and a peer that is classical: setting up takes
# at most a tenth longer than with the classical proposals named. By turns, 40
# times each. What else the machine does only ever adds to a time, so that the
# lower ends are compared: the fifth of forty. Both are in scenario.log.
# MORE: strongswan libreswan openiked
# TIMEOUT: 200
net_direct
if [ "$CASE" = openiked ]; then
    THEM=openiked
    openiked_site ''
else
    THEM=$CASE
    site
    net them esp_proposals aes256gcm16
fi
connection named named-net "$LEFT_NET" "$RIGHT_NET"
conf us connections.named.mobike "$([ "$CASE" = openiked ] && echo false || echo true)"
methods=x25519-ecp256-ecp384-ecp521-modp3072-modp4096-modp2048
prfs=prfsha256-prfsha384-prfsha512
conf us connections.named.proposals "aes256gcm16-aes128gcm16-chacha20poly1305-$prfs-$methods, \
aes256-aes128-sha256-sha384-sha512-$prfs-$methods"
conf us connections.named.children.named-net.esp_proposals \
    "aes256gcm16-aes128gcm16-chacha20poly1305, aes256-aes128-sha256-sha384-sha512"
conf them connections.named.children.named-net.esp_proposals aes256gcm16
ike us proposals ''
net us esp_proposals ''
start

# once CHILD: brings it up and takes it down; the milliseconds from the first message on.
once() {
    local connection=site
    [ "$1" = net ] || connection=named
    daemon_up us "$1"
    sas us | jq '.[0]."setup-time-ms"' >>"$STATE/$1.times"
    ctl us down --ike "$connection" >>$OUT/us.ctl.out 2>&1
    gone us
}
for n in $(seq 43); do
    if [ $((n % 2)) = 0 ]; then once net && once named-net; else once named-net && once net; fi
    # Whatever is slow the first times is of neither.
    [ "$n" != 3 ] || rm "$STATE"/*.times
done
fifth() { sort -n "$STATE/$1.times" | sed -n 5p; }
note "by default $(fifth net) ms, named $(fifth named-net) ms"
awk -v new="$(fifth net)" -v old="$(fifth named-net)" 'BEGIN { exit !(old > 0 && new <= 1.1 * old) }' ||
    fail "by default it takes more than a tenth longer"
