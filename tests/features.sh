#!/usr/bin/env bash
# Checks that crates with optional parts build without them.
#   tests/features.sh ends              with all and with none: ike-daemon, ike-tokio, ike-aaa
#   tests/features.sh                   these, the same of ike-control, ike-pki and ike-esp, and each feature alone
#   tests/features.sh refusals BINARY   what BINARY, an ike-daemon without optional parts, says of a file that needs one
# The checks are clippy's, so that what only a smaller build leaves unused is found as well.
set -euo pipefail
cd "$(dirname "$0")/.."

# More options for cargo.
beside=()

check() {
    echo "== $*"
    # units: none, a build with fewer features has other units
    cargo clippy --quiet --locked "$@" "${beside[@]}" -- -D warnings
}

# With all features and with none.
ends() {
    for crate in "$@"; do
        check -p "$crate"
        check -p "$crate" --no-default-features
    done
}

# The features of a crate, but for `default`.
features() {
    cargo metadata --no-deps --locked --format-version 1 |
        python3 -c 'import json, sys
packages = json.load(sys.stdin)["packages"]
print(*next(p["features"] for p in packages if p["name"] == sys.argv[1]))' "$1" |
        tr ' ' '\n' | grep -v '^default$'
}

alone() {
    for crate in "$@"; do
        for feature in $(features "$crate"); do
            check -p "$crate" --no-default-features --features "$feature"
        done
    done
}

# A file and the line about it. `refused PART FEATURE TEXT` fails if BINARY takes the file.
refused() {
    local part="$1" feature="$2" said status=0
    printf '%b' "$3" >"$folder/file.toml"
    said=$("$binary" check --config "$folder/file.toml" 2>&1) || status=$?
    if [ "$status" != 3 ] || ! grep -qF "ike-daemon was built without $part (feature \`$feature\`)" <<<"$said"; then
        echo "not refused for want of $feature (status $status): $3" >&2
        echo "$said" >&2
        exit 1
    fi
}

# The same of a command.
absent() {
    local part="$1" feature="$2" said status=0
    shift 2
    said=$("$binary" "$@" 2>&1) || status=$?
    if [ "$status" != 2 ] || [ "$said" != "ike-daemon was built without $part (feature \`$feature\`)" ]; then
        echo "not refused for want of $feature (status $status): $*" >&2
        echo "$said" >&2
        exit 1
    fi
}

refusals() {
    binary="$1"
    folder=$(mktemp -d)
    umask 077
    trap 'rm -rf "$folder"' EXIT
    local site="[connections.a]\nlocal.auth = 'psk'\nremote = { auth = 'psk', id = 'b' }\nchildren.net = {}\n"
    local secret="[secrets.ike]\nsecret = 'x'\n"
    printf '%b' "$site$secret" >"$folder/file.toml"
    "$binary" check --config "$folder/file.toml" >/dev/null
    refused EAP eap "[connections.a]\nlocal.auth = 'pubkey'\nremote = { auth = 'eap-mschapv2', id = 'b' }\n"
    refused EAP eap "[secrets.eap-c]\nid = 'c'\nsecret = 'x'\n"
    refused RADIUS radius "[charon.plugins.eap-radius]\naddress = '192.0.2.1'\nsecret = 'x'\n"
    refused VICI vici "[charon.plugins.vici]\n"
    refused metrics metrics "[charon.metrics]\n"
    refused PKCS#11 pkcs11 "[charon.plugins.pkcs11.modules.m]\npath = '/m.so'\n"
    refused PKCS#12 pkcs12 "[secrets.pkcs12-a]\nfile = 'a.p12'\nsecret = 'x'\n"
    refused TCP tcp "[charon]\nlisten_tcp = true\n"
    refused TCP tcp "${site/local/enable_tcp = \"yes\"\\nlocal}$secret"
    mkdir "$folder/pkcs12"
    : >"$folder/pkcs12/a.p12"
    refused PKCS#12 pkcs12 "$site$secret"
    absent "the demo" demo demo --suite classical
    absent "manual pages and completions" man man --out "$folder"
    absent "manual pages and completions" man completions bash
    echo "$binary refuses what it is built without"
}

case "${1:-all}" in
ends)
    # Other people's crates have the features of the whole workspace, so that they are not compiled again.
    beside=(-p ike-test-features)
    ends ike-daemon ike-tokio ike-aaa
    ;;
all)
    ends ike-daemon ike-tokio ike-aaa ike-control ike-pki ike-esp
    alone ike-daemon ike-tokio ike-aaa ike-control ike-pki ike-esp
    ;;
refusals)
    refusals "${2:?the program}"
    ;;
*)
    echo "usage: tests/features.sh [ends | refusals BINARY]" >&2
    exit 2
    ;;
esac
