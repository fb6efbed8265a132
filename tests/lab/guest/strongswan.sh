# strongSwan behind the verbs. Sockets and files are per side, so two of them
# run next to each other without mount namespaces.
# shellcheck shell=bash

STRONGSWAN_PLUGINS="random nonce openssl kdf aes sha1 sha2 hmac gcm ccm ctr cmac xcbc chapoly \
pem pkcs1 pkcs8 x509 pubkey constraints vici kernel-netlink socket-default updown"

vici() { echo "unix://$STATE/$1.vici"; }

swan() {
    local side=$1
    shift
    STRONGSWAN_CONF=$STATE/$side.strongswan.conf \
        timeout 30 swanctl "$@" --uri "$(vici "$side")"
}

strongswan_start() {
    local side=$1
    mkdir -p "$STATE/$side.d"
    to_swanctl "$side" >"$STATE/$side.d/$side.swanctl.conf"
    cp "$STATE/$side.d/$side.swanctl.conf" $OUT/
    charon_start "$side"
    charon_load "$side" "$STATE/$side.d/$side.swanctl.conf"
}

# charon_start SIDE: charon without connections.
charon_start() {
    local side=$1
    # swanctl looks for certificates and keys beside its file.
    mkdir -p "$STATE/$side.d"
    cat >"$STATE/$side.strongswan.conf" <<CONF
charon {
    # Only what is needed: plugins such as forecast or bypass-lan would change
    # the guest's routes and policies, and all of them slow every swanctl down.
    load = $STRONGSWAN_PLUGINS ${STRONGSWAN_MORE:-}
    plugins {
        vici {
            socket = $(vici "$side")
        }
    }
    filelog {
        lab {
            path = $(log_of "$side")
            time_format = %H:%M:%S
            time_add_ms = yes
            default = 1
            ike = ${STRONGSWAN_LOG:-2}
            flush_line = yes
        }
    }
}
swanctl {
    load = random ${STRONGSWAN_MORE:+openssl pem pkcs1 pkcs8 x509 pubkey sha1}
}
$(to_strongswan "$side")
CONF
    cp "$STATE/$side.strongswan.conf" $OUT/
    STRONGSWAN_CONF=$STATE/$side.strongswan.conf \
        ip netns exec "$(netns "$side")" charon-systemd >"$OUT/$side.charon.out" 2>&1 &
    echo $! >"$STATE/$side.pid"
    wait_for 20 test -S "$STATE/$side.vici" || fail "charon of $side did not start"
}

# charon_load SIDE FILE: certificates and keys are beside the file.
charon_load() {
    local side=$1
    swan "$side" --load-all --file "$2" >"$OUT/$side.load.out" 2>&1 || {
        cat "$OUT/$side.load.out"
        fail "swanctl refused the configuration of $side"
    }
}

# strongswan_up SIDE [CHILD]
strongswan_up() {
    swan "$1" --initiate --child "${2:-net}" --timeout 20 >>"$OUT/$1.swanctl.out" 2>&1 || {
        tail -n 20 "$OUT/$1.swanctl.out"
        fail "$1 could not bring up ${2:-net}"
    }
}

# The IKE SA alone.
strongswan_up_ike() {
    swan "$1" --initiate --ike "${2:-site}" --timeout 20 >>"$OUT/$1.swanctl.out" 2>&1 ||
        fail "$1 could not bring up ${2:-site}"
}

strongswan_rekey() { strongswan_verb --rekey "$@"; }
strongswan_down() { strongswan_verb --terminate "$@"; }

# A refusal is only noted: it may be what a lost packet looks like, and the
# state that the scenario expects next tells.
strongswan_verb() {
    local verb=$1 side=$2 what=$3 name=${4:-}
    [ -n "$name" ] || case $what in child) name=net ;; ike) name=site ;; esac
    swan "$side" "$verb" "--$what" "$name" >>"$OUT/$side.swanctl.out" 2>&1 ||
        note "swanctl $verb $name: $(tail -n 1 "$OUT/$side.swanctl.out")"
}

strongswan_stop() {
    kill -TERM "$(cat "$STATE/$1.pid")"
    : >"$STATE/$1.killed"
}

# swanctl prints "key = value", "key = [" and "key {" lines, one each.
strongswan_sas() {
    swan "$1" --list-sas --pretty 2>/dev/null | awk '
        function sep() { if (depth && count[depth]++) printf "," }
        function str(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }
        BEGIN { printf "["; depth = 1 }
        { sub(/^ +/, "") }
        /^list-sa event/ { top = 1; next }
        /^list-sas reply/ { exit }
        top && /\{$/ { sub(/ *\{$/, ""); sep(); printf "{\"name\":%s", str($0)
                       depth++; count[depth] = 1; top = 0; next }
        /\{$/ { sub(/ *\{$/, ""); sep(); printf "%s:{", str($0); depth++; count[depth] = 0; next }
        /= \[$/ { sub(/ = \[$/, ""); sep(); printf "%s:[", str($0); depth++; count[depth] = 0; list = 1; next }
        /^\]$/ { printf "]"; depth--; list = 0; next }
        /^\}$/ { if (depth > 1) { printf "}"; depth-- } next }
        list { sep(); printf "%s", str($0); next }
        / = / { i = index($0, " = "); sep(); printf "%s:%s", str(substr($0, 1, i - 1)), str(substr($0, i + 3)) }
        END { print "]" }'
}
