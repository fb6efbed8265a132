#!/bin/bash
# A gateway that strangers flood, and a client that comes all the same: both are
# release daemons without a data plane, on the loopback device of a network
# namespace of their own. No packet leaves it.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<USAGE
usage: strangers.sh [-t SECONDS] [-r TIMES] [-f FAMILIES] [-n HANDSHAKES]
  -t SECONDS     how long each flood lasts (120)
  -r TIMES       times 250 strangers in 14 seconds (10)
  -f FAMILIES    "4 6 peer", or some of them; peer is one authenticated peer with 70 IKE SAs
  -n HANDSHAKES  of each kind and direction, before each flood half of them (100)
IKE_DAEMON is the daemon (target/release/ike-daemon). Needs python3 with "cryptography".
USAGE
}

seconds=120 times=10 families="4 6 peer" count=100
while getopts t:r:f:n:h opt; do
    case $opt in
    t) seconds=$OPTARG ;;
    r) times=$OPTARG ;;
    f) families=$OPTARG ;;
    n) count=$OPTARG ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
skip_if_asked
need_daemon
if [ "${IKE_LAB_INSIDE:-}" != yes ]; then
    [ "$(id -u)" = 0 ] || die "needs root"
    exec env IKE_LAB_INSIDE=yes IKE_DAEMON="$DAEMON" unshare -n -p -f --mount-proc --kill-child \
        bash "$0" -t "$seconds" -r "$times" -f "$families" -n "$count"
fi

ip link set lo up
# The gateway, the client, and everywhere strangers are from.
for address in 10.99.0.1/32 10.99.0.3/32 fd99::1/128; do ip address add "$address" dev lo; done
ip route add local 10.96.0.0/15 dev lo
ip -6 route add local 2001:db8::/32 dev lo
sysctl -qw net.core.rmem_max=16777216 2>/dev/null || true
# Strangers send from addresses that only a route makes local.
sysctl -qw net.ipv6.ip_nonlocal_bind=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 077

pki() { "$DAEMON" pki "$@"; }
mkdir -p "$work"/{gw,client}/{x509,x509ca,private}
pki --gen --type mldsa87 --out "$work/ca.key"
pki --self --ca --in "$work/ca.key" --dn "O=example, CN=CA" --out "$work/ca.pem"
for role in gw client; do
    pki --gen --type mldsa87 --out "$work/$role/private/own.key"
    pki --issue --in "$work/$role/private/own.key" --cacert "$work/ca.pem" --cakey "$work/ca.key" \
        --dn "O=example, CN=$role" --san "$role.example.org" --out "$work/$role/x509/own.pem"
    cp "$work/ca.pem" "$work/$role/x509ca/"
done

# connection NAME LOCAL-AUTH REMOTE-AUTH PROPOSAL
connection() {
    cat <<EOT
[connections.$1]
local_addrs = "$own_address"
$peer
proposals = "$4"
[connections.$1.local]
$2
[connections.$1.remote]
$3
[connections.$1.children.$1]
local_ts = "$own_net"
remote_ts = "$peer_net"
esp_proposals = "aes256gcm16"
EOT
}
usual=aes256gcm16-prfsha384-x25519 hybrid=aes256gcm16-prfsha384-x25519-ke1_mlkem1024
gw_id='id = "gw.example.org"' client_id='id = "client.example.org"'
cert='auth = "pubkey"
certs = "own.pem"'
{
    own_address=10.99.0.1 own_net=10.1.0.0/16 peer_net=10.2.0.0/16
    printf '[charon]\nport = 0\nport_nat_t = 4600\n[charon.metrics]\nlisten = "127.0.0.1:9500"\n'
    peer='remote_addrs = "%any"'
    connection cert "$cert
$gw_id" "auth = \"pubkey\"
$client_id" "$usual\", \"aes256gcm16-prfsha256-x25519" | sed 's/^proposals = \(.*\)/proposals = [\1]/; s/^local_addrs = \(.*\)/local_addrs = [\1, "fd99::1"]/'
    connection mlkem "auth = \"psk\"
$gw_id" "auth = \"psk\"
id = \"psk.example.org\"" $hybrid
    connection eap "$cert
$gw_id" 'auth = "eap-mschapv2"
id = "carol@example.org"
eap_id = "carol"' $usual
    connection many "auth = \"psk\"
$gw_id" 'auth = "psk"
id = "many.example.org"' aes256gcm16-prfsha256-x25519 | sed 's/^proposals = .*/&\nunique = "never"/'
    peer='remote_addrs = "10.99.0.3"
remote_port = 4700'
    connection outcert "$cert
$gw_id" "auth = \"pubkey\"
$client_id" $usual
    connection outmlkem "auth = \"psk\"
$gw_id" "auth = \"psk\"
id = \"psk.example.org\"" $hybrid
    printf '[secrets.ike-1]\nid = ["gw.example.org", "psk.example.org", "many.example.org"]\nsecret = "a secret of the lab"\n'
    printf '[secrets.eap-1]\nid = "carol"\nsecret = "another of the lab"\n'
} >"$work/gw/gw.toml"
{
    own_address=10.99.0.3 own_net=10.2.0.0/16 peer_net=10.1.0.0/16
    printf '[charon]\nport = 0\nport_nat_t = 4700\n'
    peer='remote_addrs = "10.99.0.1"
remote_port = 4600'
    connection cert "$cert
$client_id" "auth = \"pubkey\"
$gw_id" $usual
    connection mlkem "auth = \"psk\"
id = \"psk.example.org\"" "auth = \"psk\"
$gw_id" $hybrid
    connection eap 'auth = "eap-mschapv2"
id = "carol@example.org"
eap_id = "carol"' "auth = \"pubkey\"
$gw_id" $usual
    printf '[secrets.ike-1]\nid = ["gw.example.org", "psk.example.org"]\nsecret = "a secret of the lab"\n'
    printf '[secrets.eap-1]\nid = "carol"\nsecret = "another of the lab"\n'
} >"$work/client/client.toml"

for role in gw client; do
    start_daemon $role "$work/$role/$role.toml" error
    eval "$role=$started"
    # Its end is not worth a word.
    disown
done
verdict=0
for family in $families; do
    timeout $((seconds + 120)) python3 "$(dirname "$0")/strangers.py" --daemon "$DAEMON" --work "$work" --family "$family" \
        --seconds "$seconds" --times "$times" --count "$count" --pid "$gw" || verdict=1
done
kill -9 "$gw" "$client"
exit $verdict
