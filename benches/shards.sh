#!/bin/sh
# Responder CPU and handshakes per second by number of shards: a daemon brings many connections up at another
# one, over loopback, without a data plane. Repeats are interleaved, since machines are noisy; the least of
# each is printed beside that of the first number of shards.
#
#     cargo build --release -p ike-daemon && benches/shards.sh [SHARDS...]       (1 2)
#
# CONNECTIONS (600), REPEATS (5), DAEMON, INITIATORS (daemons that bring them up, 1), PROPOSAL.
set -eu
cd "$(dirname "$0")/.."
daemon=${DAEMON:-target/release/ike-daemon}
connections=${CONNECTIONS:-600} repeats=${REPEATS:-5} initiators=${INITIATORS:-1}
proposal=${PROPOSAL:-aes256gcm16-prfsha256-x25519}
[ $# -gt 0 ] || set -- 1 2
work=$(mktemp -d)
trap 'kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null || true; rm -rf "$work"' EXIT

charon() { # port port_nat_t shards
    printf '[charon]\nport = %s\nport_nat_t = %s\n' "$1" "$2"
    [ "$3" = 1 ] || echo "shards = $3"
    printf 'cookie_threshold = 0\ncookie_threshold_ip = 0\nblock_threshold = 0\n'
    printf '[secrets.ike]\nsecret = "0x5e17a3c0ffee42421234567890abcdef"\n'
}

connection() { # name local-id remote-id local-net remote-net more
    printf '[connections.%s]\nlocal_addrs = "127.0.0.1"\nremote_addrs = "127.0.0.1"\n%s\n' "$1" "$6"
    printf 'proposals = "%s"\n' "$proposal"
    printf '[connections.%s.local]\nauth = "psk"\nid = "%s"\n' "$1" "$2"
    printf '[connections.%s.remote]\nauth = "psk"\nid = "%s"\n' "$1" "$3"
    printf '[connections.%s.children.net]\nlocal_ts = "%s"\nremote_ts = "%s"\n' "$1" "$4" "$5"
    printf 'esp_proposals = "aes256gcm16"\n'
}

start() { # name
    IKE_LOG=error "$daemon" --control "$work/$1.sock" run --data-plane none --listen 127.0.0.1 \
        --config "$work/$1.toml" 2>"$work/$1.log" &
    echo $! >"$work/$1.pid"
    for _ in $(seq 100); do [ -S "$work/$1.sock" ] && return; sleep 0.05; done
    cat "$work/$1.log" >&2
    exit 1
}

stop() { # name
    kill -9 "$(cat "$work/$1.pid")" && wait "$(cat "$work/$1.pid")" 2>/dev/null || true
    rm -f "$work/$1.pid" "$work/$1.sock"
}

cpu() { # pid: nanoseconds that its threads have run
    cat "/proc/$1"/task/*/schedstat | awk '{ sum += $1 } END { printf "%d", sum }'
}

once() { # shards: microseconds of responder CPU per handshake, handshakes per second
    { charon 15500 15501 "$1"; connection site gw.example.org %any 10.1.0.0/16 10.2.0.0/16 ''; } \
        >"$work/responder.toml"
    start responder
    for i in $(seq "$initiators"); do
        {
            charon "1560$i" "1570$i" 1
            for n in $(seq $((connections / initiators))); do
                connection "c$n" "p$n-$i.example.org" gw.example.org 10.2.0.0/24 10.1.0.0/16 \
                    'remote_port = 15501'
            done
        } >"$work/i$i.toml"
        start "i$i"
    done
    pid=$(cat "$work/responder.pid")
    before=$(cpu "$pid") began=$(date +%s%N)
    ups=
    for i in $(seq "$initiators"); do
        "$daemon" --control "$work/i$i.sock" up --all >"$work/i$i.out" 2>&1 &
        ups="$ups $!"
    done
    for up in $ups; do wait "$up" || { cat "$work"/i*.out >&2; exit 1; }; done
    ended=$(date +%s%N)
    after=$(cpu "$pid")
    done=$((connections / initiators * initiators))
    echo "$(((after - before) / done)) $((done * 1000000000 / (ended - began)))"
    stop responder
    for i in $(seq "$initiators"); do stop "i$i"; done
}

for _ in $(seq "$repeats"); do
    for shards in "$@"; do
        once "$shards" | sed "s/^/$shards /" | tee -a "$work/all" >&2
    done
done
echo "shards  CPU per handshake (us)  to the first  handshakes/s"
for shards in "$@"; do
    least=$(awk -v s="$shards" '$1 == s { print $2 }' "$work/all" | sort -n | head -1)
    most=$(awk -v s="$shards" '$1 == s { print $3 }' "$work/all" | sort -n | tail -1)
    first=${first:-$least}
    awk -v s="$shards" -v l="$least" -v f="$first" -v m="$most" \
        'BEGIN { printf "%6d  %22.1f  %12.2f  %12d\n", s, l / 1000, l / f, m }'
done
