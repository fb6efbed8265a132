#!/bin/bash
# The inside of load.sh: both responders on CPU 0, idle while the other one is
# measured, and the initiator on CPU 1, in turns.
set -eu
. /out/env
ip link set lo up
OURS=4600 THEIRS=4500

fail() {
    echo "load: $*" >&2
    exit 1
}

# Sixteen threads and no log, as in the figures to beat, and no limit that would refuse.
# Its tables of IKE SAs are as its documentation recommends for many SAs.
export STRONGSWAN_CONF=/tmp/strongswan.conf
cat >$STRONGSWAN_CONF <<CONF
charon {
    load = random nonce openssl kdf aes sha1 sha2 hmac gcm pem pkcs1 pkcs8 x509 pubkey constraints vici \
        fake-kernel kernel-netlink socket-default
    threads = 16
    port_nat_t = $THEIRS
    dos_protection = no
    cookie_threshold = 0
    block_threshold = 0
    ikesa_table_size = 16384
    ikesa_table_segments = 16
    install_routes = no
    plugins {
        vici {
            socket = unix:///tmp/vici
        }
    }
    journal {
        default = -1
    }
    syslog {
        daemon {
            default = -1
        }
        auth {
            default = -1
        }
    }
}
swanctl {
    load = random openssl pem pkcs1 pkcs8 x509 pubkey
}
CONF
mkdir -p /tmp/swanctl
cp -r /out/bundle/responder/. /tmp/swanctl
taskset -c 0 charon-systemd >/out/charon.log 2>&1 &
charon=$!
for _ in $(seq 100); do
    [ ! -S /tmp/vici ] || break
    sleep 0.1
done
swanctl --load-all --file /tmp/swanctl/swanctl.conf --uri unix:///tmp/vici >/out/swanctl.log 2>&1 ||
    fail "swanctl refused the configuration"

cp -r /out/bundle/responder /tmp/ours
sed -i "s/^port_nat_t = .*/port_nat_t = $OURS/" /tmp/ours/ike.toml
IKE_LOG=error taskset -c 0 /bin-under-test/ike-daemon --control /tmp/control run --data-plane none --keys-in daemon \
    --config /tmp/ours/ike.toml >/out/daemon.log 2>&1 &
daemon=$!
for _ in $(seq 100); do
    [ ! -S /tmp/control ] || break
    sleep 0.1
done

# measure WHO PID PORT SUITE ROUND
measure() {
    kill -0 "$2" 2>/dev/null || fail "$1 has ended"
    taskset -c 1 /bin-under-test/ike-bench load --to 127.0.0.1 --port "$3" --bundle /out/bundle --suite "$4" \
        --handshakes "$COUNT" --concurrency "$CONCURRENCY" --responder-pid "$2" --floor --json /tmp/json \
        >>/out/bench.log 2>&1 || fail "$1, $4"
    jq --arg who "$1" '.suites[] | {who: $who} + .' /tmp/json >"/out/round.$5.$4.$1.json"
}

for round in $(seq "$ROUNDS"); do
    for suite in $SUITES; do
        measure ours $daemon $OURS "$suite" "$round"
        measure strongswan $charon $THEIRS "$suite" "$round"
    done
done
kill $daemon $charon
wait
