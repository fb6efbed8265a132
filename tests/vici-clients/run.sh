#!/bin/sh
# The VICI libraries of strongSwan, Python's vici and Go's govici, drive a daemon that
# is configured by them alone. No root; python3 with pip, and go with its module proxy:
# what is missing is left out.
# usage: tests/vici-clients/run.sh [DAEMON]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
daemon=$(realpath "${1:-target/release/ike-daemon}")
tmp=$(mktemp -d)
trap 'kill $pids 2>/dev/null || true; rm -rf "$tmp"' EXIT
pids=
side() { # NAME, its ports, and what its file has besides
    printf 'charon { port = %s\n port_nat_t = %s\n plugins { vici { socket = unix://%s/%s.vici } } }\n%s\n' \
        "$2" "$3" "$tmp" "$1" "$4" >"$tmp/$1.conf"
    chmod 600 "$tmp/$1.conf"
    "$daemon" --control "$tmp/$1.ctl" run --data-plane none --listen 127.0.0.1 --config "$tmp/$1.conf" \
        >"$tmp/$1.log" 2>&1 &
    pids="$pids $!"
}
side left 10500 14500 ''
side right 20500 24500 'connections { site { local_addrs = 127.0.0.1
    local { auth = psk
        id = right.example.org }
    remote { auth = psk
        id = left.example.org }
    children { net { local_ts = 10.2.0.0/16
        remote_ts = 10.1.0.0/16 } } } }
secrets { ike-1 { secret = "a secret of tests" } }'
for socket in left right; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -S "$tmp/$socket.vici" ] || sleep 0.5; done
    [ -S "$tmp/$socket.vici" ] || { cat "$tmp/$socket.log"; exit 1; }
done
done=
if python3 -m venv "$tmp/venv" >/dev/null 2>&1 && "$tmp/venv/bin/pip" install -q vici==6.0.3; then
    "$tmp/venv/bin/python" "$here/client.py" "$tmp/left.vici" 24500 || { tail "$tmp"/*.log; exit 1; }
    done=yes
else
    echo "python's vici: left out"
fi
if command -v go >/dev/null; then
    mkdir "$tmp/go" && cp "$here/main.go" "$tmp/go/" && cd "$tmp/go"
    go mod init viciclient >/dev/null 2>&1
    go get github.com/strongswan/govici@v0.7.0 >/dev/null 2>&1
    go run . "$tmp/left.vici" 24500 || { tail "$tmp"/*.log; exit 1; }
    done=yes
else
    echo "go's govici: left out"
fi
[ -n "$done" ]
