# Private keys in a token, and in memory.
# shellcheck shell=bash

# in_token NAME: the key of NAME is in a token of SoftHSM's, and the configuration of us says so.
in_token() {
    local store=$STATE/token
    mkdir -p "$store"
    printf 'directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n' "$store" >"$STATE/softhsm2.conf"
    export SOFTHSM2_CONF=$STATE/softhsm2.conf
    openssl pkcs8 -topk8 -nocrypt -in "$PKI/$1.key" -out "$PKI/$1.p8"
    softhsm2-util --init-token --free --label lab --so-pin 12345678 --pin 1234
    softhsm2-util --import "$PKI/$1.p8" --token lab --label "$1" --id 0a01 --pin 1234
    conf us charon.plugins.pkcs11.modules.softhsm.path /usr/lib/softhsm/libsofthsm2.so
    conf us secrets.token-"$1".handle 0x0a01
    conf us secrets.token-"$1".module softhsm
    # Not a number to TOML.
    printf 1234 >"$STATE/us.d/pin"
    chmod 600 "$STATE/us.d/pin"
    conf us secrets.token-"$1".pin_file pin
}

# key_in_memory PID: the private scalar of us' EC key is there, in either order of its octets.
key_in_memory() {
    openssl pkey -in "$PKI/us.key" -outform der | perl /lab/guest/in-memory.pl "$1"
}
