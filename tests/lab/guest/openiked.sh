# OpenIKED behind the verbs. It has its own configuration language, so only
# the connection of openiked_site can be written for it; it starts exchanges
# by its mode and its lifetimes, not by command.
# shellcheck shell=bash

# The connection both sides understand. OpenIKED speaks PF_KEY to this kernel,
# which carries neither AEAD nor HMAC-SHA2-256 with its full 128 bits.
openiked_site() {
    site
    ike us mobike false
    net us esp_proposals "aes256-sha512${1:+-$1}"
    IKED_PFS="group ${2:-none}"
    # It sets up flows but no routes.
    ip -n right route add $LEFT_NET via "$US_OWN"
}

openiked_start() {
    local side=$1
    modules af_key
    (
        umask 077
        cat >"$STATE/$side.iked.conf" <<CONF
ikev2 "net" ${IKED_MODE:-passive} esp from $RIGHT_NET to $LEFT_NET local $THEM_OWN peer $US_SEEN \\
    ikesa enc aes-256-gcm prf hmac-sha2-256 group curve25519 \\
    childsa enc aes-256 auth hmac-sha2-512 $IKED_PFS \\
    srcid them.example.org dstid us.example.org ${IKED_LIFE:-} \\
    psk "a secret that only these two know"
CONF
    )
    cp "$STATE/$side.iked.conf" $OUT/
    ip netns exec "$(netns "$side")" iked -d -v -f "$STATE/$side.iked.conf" -s "$STATE/$side.iked" \
        >"$(log_of "$side")" 2>&1 &
    echo $! >"$STATE/$side.pid"
    wait_for 20 test -S "$STATE/$side.iked" || fail "iked of $side did not start"
}

openiked_down() { timeout 10 ikectl -s "$STATE/$1.iked" reset id FQDN/us.example.org; }

openiked_stop() {
    kill -TERM "$(cat "$STATE/$1.pid")"
    : >"$STATE/$1.killed"
}

# ikectl prints one line per IKE SA and one per ESP SA below it; the two ESP
# SAs of a child name each other (P=). A rekeyed one carries the flag R.
openiked_sas() {
    timeout 10 ikectl -s "$STATE/$1.iked" show sa | awk '
        function word(after,   i) { for (i = 1; i < NF; i++) if ($i == after) return $(i + 1) }
        function hex(s) { sub(/^0x/, "", s); return s }
        function flush_(   p, n) {
            if (!open) return
            printf "%s{\"name\":\"site\",\"state\":\"%s\",\"initiator-spi\":\"%s\",\"responder-spi\":\"%s\",\"child-sas\":[", comma, state, ispi, rspi
            for (p in in_) if (peer[p] in out_)
                printf "%s{\"name\":\"net\",\"state\":\"INSTALLED\",\"spi-in\":\"%s\",\"spi-out\":\"%s\"}", (n++ ? "," : ""), in_[p], out_[peer[p]]
            printf "]}"; comma = ","; open = 0
            delete in_; delete out_; delete peer }
        BEGIN { printf "[" }
        /^iked_sas:/ { flush_(); open = 1; ispi = hex(word("ispi")); rspi = hex(word("rspi"))
                       state = /ESTABLISHED/ ? "ESTABLISHED" : "OTHER"; next }
        /^ *sa_childsas:/ { match($0, /\([A-Z]*\)/); flags = substr($0, RSTART, RLENGTH)
                       if (flags ~ /R/ || flags !~ /L/) next
                       spi = sprintf("%08s", hex($4)); gsub(/ /, "0", spi)
                       for (i = 1; i <= NF; i++) if ($i ~ /^P=/) peer[$2] = substr($i, 3)
                       if ($5 == "in") in_[$2] = spi; else out_[$2] = spi; next }
        /^iked_/ { flush_() }
        END { flush_(); print "]" }'
}
