#!/usr/bin/env bash
# A mesh in which every host begins with every other one at once: after SECONDS there is one IKE SA and one child
# for each pair at each end, none twice.
#
#   mesh.sh [HOSTS [UNIQUE [SECONDS [none|userspace]]]]      default: 30 no 30 none
#
# Each host is a network namespace on one bridge, with a daemon of its own. UNIQUE is what `unique` is set to. With
# `userspace` ESP is in user space, and each host sends to three others from when both ends have the child until the
# end: every packet must be answered. IKE_DAEMON names another daemon than target/release/ike-daemon. Needs root.
set -euo pipefail
hosts=${1:-30} unique=${2:-no} seconds=${3:-30} plane=${4:-none}
daemon=$(realpath "${IKE_DAEMON:-$(dirname "$0")/../../target/release/ike-daemon}")
work=$(mktemp -d)
tag=m$$
pids=()
# The kernel keeps one table of neighbours for all namespaces, of 1024 entries as a rule.
neighbours=/proc/sys/net/ipv4/neigh/default/gc_thresh3
before=$(cat "$neighbours")
[ "$before" -ge 65536 ] || echo 65536 >"$neighbours"

end() {
    echo "$before" >"$neighbours"
    kill "${pids[@]}" 2>/dev/null || true
    for _ in $(seq 20); do
        kill -0 "${pids[@]}" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "${pids[@]}" 2>/dev/null || true
    for name in $(seq "$hosts") b; do ip netns del "$tag-$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap end EXIT

connection() { # OWN PEER
    cat <<END
[connections.n$2]
local_addrs = ["10.77.0.$1"]
remote_addrs = ["10.77.0.$2"]
proposals = ["aes256gcm16-prfsha384-x25519-ke1_mlkem768"]
unique = "$unique"
[connections.n$2.local]
auth = "psk"
id = "node$1"
[connections.n$2.remote]
auth = "psk"
id = "node$2"
[connections.n$2.children.c]
local_ts = ["10.88.0.$1/32"]
remote_ts = ["10.88.0.$2/32"]
esp_proposals = ["aes256gcm16"]
start_action = "start"
END
}

ip netns add "$tag-b"
ip -n "$tag-b" link add br0 type bridge
ip -n "$tag-b" link set br0 up
for i in $(seq "$hosts"); do
    ip netns add "$tag-$i"
    ip link add "p$i" netns "$tag-b" type veth peer name eth0 netns "$tag-$i"
    ip -n "$tag-b" link set "p$i" master br0 up
    ip -n "$tag-$i" addr add "10.77.0.$i/24" dev eth0
    ip -n "$tag-$i" addr add "10.88.0.$i/32" dev lo
    ip -n "$tag-$i" link set lo up
    ip -n "$tag-$i" link set eth0 up
    {
        for j in $(seq "$hosts"); do [ "$i" = "$j" ] || connection "$i" "$j"; done
        printf '[secrets.ike-all]\nsecret = "the secret of the whole mesh 0123456789"\n'
    } >"$work/$i.toml"
    chmod 600 "$work/$i.toml"
done

"$daemon" check --config "$work/1.toml" --data-plane none >/dev/null
for i in $(seq "$hosts"); do
    IKE_LOG=${IKE_LOG:-warn} ip netns exec "$tag-$i" "$daemon" run --config "$work/$i.toml" \
        --control "$work/s$i" --data-plane "$plane" --keys-in daemon >"$work/log$i" 2>&1 &
    pids+=($!)
done

status=0
python3 "$(dirname "$0")/mesh.py" "$hosts" "$work" "$daemon" "$seconds" "$plane" "$tag" || status=$?
grep -hE 'WARN|ERROR' "$work"/log* | sed 's/.*\(WARN\|ERROR\)/\1/' | cut -c1-110 | sort | uniq -c |
    sort -rn | head -8 || true
exit "$status"
