#!/bin/bash
# OpenSSL verifies what both ends of a handshake signed, with the public keys
# in the certificates they sent, and those certificates. OpenSSL 3.5 or later
# of this machine, else that of the lab's root.
# usage: openssl-auth.sh [DIR]
set -eu
. "$(dirname "$0")/common.sh"
skip_if_asked

DIR=${1:-$LAB_TOP/target/lab/openssl-auth}
rm -rf "$DIR"
mkdir -p "$DIR"
# In the whole workspace, for which CI has built it: nothing is compiled again.
(cd "$LAB_TOP" && cargo build --workspace --example auth_dump --locked --quiet)
"${CARGO_TARGET_DIR:-$LAB_TOP/target}/debug/examples/auth_dump" "$DIR"

recent() { "$@" openssl list -signature-algorithms 2>/dev/null | grep -qi ml-dsa-87; }
if recent env; then
    run=()
    at=$DIR
elif [ -e "$LAB_ROOT/usr/bin/openssl" ] && recent chroot "$LAB_ROOT"; then
    at=/tmp/openssl-auth.$$
    trap 'rm -rf "$LAB_ROOT$at"' EXIT
    cp -r "$DIR" "$LAB_ROOT$at"
    run=(chroot "$LAB_ROOT")
else
    die "no OpenSSL with ML-DSA, here or in the lab's root; run tests/lab/setup.sh"
fi

# Digest and padding where the scheme is not all that the key says.
options() {
    case $1 in
    *PSS*) echo "-digest sha256 -pkeyopt rsa_padding_mode:pss -pkeyopt rsa_pss_saltlen:32" ;;
    ECDSA-256*) echo "-digest sha256" ;;
    ECDSA-384*) echo "-digest sha384" ;;
    ECDSA-521*) echo "-digest sha512" ;;
    esac
}

openssl() { "${run[@]}" openssl "$@"; }

good=0
cd "$DIR"
openssl x509 -inform der -in "$at/root.der" -out "$at/root.pem"
for octets in *.octets; do
    name=${octets%.octets}
    openssl x509 -inform der -in "$at/$name.der" -out "$at/$name.pem"
    # Simulated worlds begin on 2030-06-01.
    openssl verify -attime 1906502400 -CAfile "$at/root.pem" "$at/$name.pem" >/dev/null || die "$name: certificate"
    openssl x509 -in "$at/$name.pem" -noout -pubkey >"$name.pub"
    [ "$at" = "$DIR" ] || cp "$name.pub" "$LAB_ROOT$at/"
    # shellcheck disable=SC2046
    check() {
        openssl pkeyutl -verify -pubin -inkey "$at/$name.pub" -rawin -in "$1" \
            -sigfile "$at/$name.sig" $(options "$name") >/dev/null 2>&1
    }
    check "$at/$octets" || die "$name: OpenSSL refuses the signature"
    # The check can fail: over other octets the signature is wrong.
    ! check "$at/$name.der" || die "$name: OpenSSL takes anything"
    good=$((good + 1))
done
[ "$good" -gt 0 ] || die "nothing to verify"
openssl version
say "$good signatures of AUTH payloads verified, with their certificates"
