#!/usr/bin/env bash
# A daemon without optional parts works: two hosts, which are network namespaces, have a tunnel by a pre-shared key and
# one by certificates, with ESP in user space, and it refuses what it is built without.
#   tests/lean.sh [BINARY]   without BINARY it builds one, for debugging, and keeps it in target/lean
# Without network namespaces or TUN the tunnels are left out; with IKE_KERNEL_TESTS=must that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
binary=${1:-}

if [ "${LEAN_INSIDE:-}" != yes ]; then
    if [ -z "$binary" ]; then
        # Other people's crates have the features of the whole workspace, so that they are not compiled again.
        cargo build --locked -p ike-daemon --no-default-features -p ike-test-features
        # Cargo puts the program with all parts into its place again.
        binary=$target/lean/ike-daemon
        mkdir -p "$target/lean"
        cp "$target/debug/ike-daemon" "$binary"
    fi
    tests/features.sh refusals "$binary"
    for way in "--user --map-root-user --net" "--net"; do
        # shellcheck disable=SC2086
        unshare $way ip tuntap add dev probe0 mode tun 2>/dev/null || continue
        # shellcheck disable=SC2086
        LEAN_INSIDE=yes exec unshare $way tests/lean.sh "$binary"
    done
    echo "ignored: the tunnels: no unshare, ip, network namespaces or TUN"
    [ "${IKE_KERNEL_TESTS:-}" != must ]
    exit
fi

# From here on in a namespace of its own, which is the host `left`; `right` is beside it.
work=$(mktemp -d)
umask 077
processes=()
end() {
    kill -KILL "${processes[@]}"
    wait
    rm -rf "$work"
    exit "$1"
} 2>/dev/null
trap 'end $?' EXIT
wrong() {
    tail -n 20 "$work"/*.log >&2
    echo "lean: $*" >&2
    exit 1
}

# until_true SECONDS COMMAND…
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

unshare --net sleep 1000 &
right=$!
processes+=("$right")
in_right() { nsenter --target $right --net "$@"; }
apart() { [ "$(readlink /proc/$right/ns/net)" != "$(readlink /proc/self/ns/net)" ]; }
until_true 10 apart || wrong "no second namespace"
ip link set lo up
in_right ip link set lo up
ip link add l0 type veth peer name r0
ip link set r0 netns $right
ip addr add 192.0.2.1/24 dev l0
in_right ip addr add 192.0.2.2/24 dev r0
# The networks behind the hosts.
ip addr add 10.1.0.1/32 dev lo
ip addr add 10.3.0.1/32 dev lo
in_right ip addr add 10.2.0.1/32 dev lo
in_right ip addr add 10.4.0.1/32 dev lo
ip link set l0 up
in_right ip link set r0 up

pki() { "$binary" pki "$@" >/dev/null; }
pki --gen --type ecdsa --out "$work/ca.key"
pki --self --ca --in "$work/ca.key" --dn "O=test, CN=CA" --out "$work/ca.pem"

# connection NAME OWN-AUTH PEER-AUTH OWN-NET PEER-NET
connection() {
    cat <<TOML
[connections.$1]
local_addrs = "$own"
remote_addrs = "$other"
local = { $2 }
remote = { $3 }
children.$1 = { local_ts = "$4", remote_ts = "$5" }
TOML
}

# host NAME OWN-ADDRESS PEER OTHER-ADDRESS NETS…: its folder, with a configuration and a certificate.
host() {
    local name=$1 own=$2 peer=$3 other=$4
    mkdir -p "$work/$name"/{x509,x509ca,private}
    cp "$work/ca.pem" "$work/$name/x509ca/"
    pki --gen --type ecdsa --out "$work/$name/private/own.key"
    pki --issue --in "$work/$name/private/own.key" --cacert "$work/ca.pem" --cakey "$work/ca.key" \
        --dn "O=test, CN=$name" --san "$name.example.org" --out "$work/$name/x509/own.pem"
    {
        connection psk "auth = 'psk', id = '$name'" "auth = 'psk', id = '$peer'" "$5" "$6"
        connection cert "auth = 'pubkey', certs = 'own.pem', id = '$name.example.org'" \
            "auth = 'pubkey', id = '$peer.example.org'" "$7" "$8"
        printf "[secrets.ike]\nid = ['left', 'right']\nsecret = 'a secret of this test'\n"
    } >"$work/$name/ike.toml"
}
host left 192.0.2.1 right 192.0.2.2 10.1.0.0/16 10.2.0.0/16 10.3.0.0/16 10.4.0.0/16
host right 192.0.2.2 left 192.0.2.1 10.2.0.0/16 10.1.0.0/16 10.4.0.0/16 10.3.0.0/16

ask() { "$binary" --control "$work/$1.socket" "${@:2}"; }
# begin NAME [COMMAND…]: the daemon of that host, by the command.
begin() {
    "${@:2}" "$binary" --control "$work/$1.socket" run --data-plane userspace --config "$work/$1/ike.toml" \
        >"$work/$1.log" 2>&1 &
    processes+=($!)
    until_true 20 ask "$1" list || wrong "$1 does not start"
}
begin left env
begin right nsenter --target $right --net

pings() { "${@:3}" ping -q -n -c 3 -i 0.1 -W 5 -I "$1" "$2"; }
one_ping() { ping -q -n -c 1 -W 1 -I "$1" "$2"; }
# tunnel NAME OWN PEER: nothing passes before it, and pings pass both ways after it, and after a rekey of its child.
tunnel() {
    ! one_ping "$2" "$3" >/dev/null 2>&1 || wrong "$1: pings pass without a tunnel"
    ask left up "$1" >"$work/$1.up.log" 2>&1 || wrong "$1: not up"
    pings "$2" "$3" env >"$work/$1.ping.log" || wrong "$1: no ping from left"
    pings "$3" "$2" in_right >"$work/$1.ping.log" || wrong "$1: no ping from right"
    ask left rekey --child "$1" >"$work/$1.rekey.log" 2>&1 || wrong "$1: not rekeyed"
    pings "$2" "$3" env >"$work/$1.ping.log" || wrong "$1: no ping after the rekey"
}
tunnel psk 10.1.0.1 10.2.0.1
tunnel cert 10.3.0.1 10.4.0.1
ask left list >"$work/list.log"
[ "$(grep -c ESTABLISHED "$work/list.log")" = 2 ] || wrong "there are other IKE SAs than two"
for daemon in "${processes[@]:1}"; do
    kill -TERM "$daemon"
    wait "$daemon" || wrong "a daemon ended with $?"
done
! grep "panicked at" "$work"/*.log || wrong "a daemon panicked"
echo "a daemon without optional parts has tunnels by a pre-shared key and by certificates"
