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

# token_by_vici SIDE: after in_token, what its file had of connection, certificates and the token's key is in a folder
# of swanctl's instead; the module stays.
token_by_vici() {
    local folder=$STATE/swanctl
    mkdir -p "$folder"
    mv "$STATE/$1.d/x509" "$STATE/$1.d/x509ca" "$folder/"
    conf "$1" secrets.token-"$1".pin_file ""
    conf "$1" secrets.token-"$1".pin 1234
    to_swanctl "$1" >"$folder/swanctl.conf"
    grep -E '^charon\.plugins\.pkcs11\.' "$STATE/$1.conf" >"$STATE/$1.only"
    mv "$STATE/$1.only" "$STATE/$1.conf"
    conf "$1" charon.plugins.vici.socket "unix://$STATE/$1.vici"
}

swanctl_of() {
    local side=$1
    shift
    SWANCTL_DIR=$STATE/swanctl timeout 30 swanctl "$@" --uri "unix://$STATE/$side.vici" >"$OUT/swanctl.out" 2>&1
}

# load_token SIDE: swanctl loads it all.
load_token() {
    swanctl_of "$1" --load-all --noprompt || { cat "$OUT/swanctl.out"; fail "swanctl --load-all"; }
    grep -q "loaded key token-$1 from token" "$OUT/swanctl.out" || { cat "$OUT/swanctl.out"; fail "no key from the token"; }
    swanctl_of "$1" --list-certs
    grep -q 'has private key' "$OUT/swanctl.out" || { cat "$OUT/swanctl.out"; fail "the certificate has no key"; }
}

# key_in_memory PID: the private scalar of us' EC key is there, in either order of its octets.
key_in_memory() {
    openssl pkey -in "$PKI/us.key" -outform der | perl /lab/guest/in-memory.pl "$1"
}
