#!/bin/bash
# Two daemons of this project with many configured connections: start, list,
# reload, and all tunnels up at once, on loopback without a data plane.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<USAGE
usage: many-connections.sh [-n CONNECTIONS] [-p SECONDS] [-m]
  -n COUNT    connections, with an identity and a secret each (10000)
  -p SECONDS  fail if starting, listing, reloading or the tunnels take longer, each
  -m          with metrics at the hub: what a scrape of all of them takes
IKE_DAEMON is the daemon (target/release/ike-daemon).
USAGE
}

count=10000 limit= metrics=
while getopts n:p:mh opt; do
    case $opt in
    n) count=$OPTARG ;;
    p) limit=$OPTARG ;;
    m) metrics=-m ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
skip_if_asked
need_daemon
if [ "${IKE_LAB_INSIDE:-}" != yes ]; then
    [ "$(id -u)" = 0 ] || die "needs root"
    exec env IKE_LAB_INSIDE=yes unshare -n -p -f --mount-proc --kill-child bash "$0" -n "$count" ${limit:+-p "$limit"} $metrics
fi

ip link set lo up
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 077

# configuration ROLE PORT: both ends of each connection have the same secret.
configuration() {
    awk -v role="$1" -v port="$2" -v count="$count" 'BEGIN {
        print "[charon]\nport = 0\nport_nat_t = " port
        print "cookie_threshold = 0\ncookie_threshold_ip = 0\nblock_threshold = 0"
        for (i = 1; i <= count; i++) {
            net = int(i / 256) % 256 "." i % 256
            site = "site-" i ".example"; hub = "hub.example"
            own = role == "site" ? site : hub; other = role == "site" ? hub : site
            print "[connections.c" i "]"
            if (role == "site") print "remote_addrs = \"127.0.0.1\"\nremote_port = 4600"
            print "proposals = \"aes256gcm16-prfsha256-x25519\""
            print "[connections.c" i ".local]\nauth = \"psk\"\nid = \"" own "\""
            print "[connections.c" i ".remote]\nauth = \"psk\"\nid = \"" other "\""
            print "[connections.c" i ".children.net" i "]\nesp_proposals = \"aes256gcm16\""
            a = "10." net ".0/24"; b = "172.16.0.0/12"
            print "local_ts = \"" (role == "site" ? a : b) "\"\nremote_ts = \"" (role == "site" ? b : a) "\""
            # A secret is looked up by both identities.
            print "[secrets.ike-" i "]\nid = [\"" own "\", \"" other "\"]\nsecret = \"secret of site " i "\""
        }
    }'
}
configuration hub 4600 >"$work/hub.toml"
[ -z "$metrics" ] || printf '[charon.metrics]\nlisten = "127.0.0.1:9500"\nconnections = 100000\n' >>"$work/hub.toml"
configuration site 4700 >"$work/site.toml"

ready() { "$DAEMON" --control "$work/$1.socket" list >"$work/$1.list" 2>/dev/null; }
since() { printf '%d.%02d' $(((${EPOCHREALTIME/./} - $1) / 1000000)) $(((${EPOCHREALTIME/./} - $1) / 10000 % 100)); }
now() { echo "${EPOCHREALTIME/./}"; }
verdict=0
tell() { # tell WHAT SECONDS
    printf '%-52s %8s s\n' "$1" "$2"
    [ -z "$limit" ] || awk -v a="$2" -v b="$limit" 'BEGIN { exit a > b }' || {
        say "lab: longer than $limit s: $1" >&2
        verdict=1
    }
}

say "$count connections, each with its identities, secret and child"
for role in hub site; do
    begin=$(now)
    start_daemon $role "$work/$role.toml" warn
    eval "$role=$started"
    tell "$role: from start to an answer" "$(since "$begin")"
done
begin=$(now)
"$DAEMON" --control "$work/site.socket" reload || die "$(tail -n 5 "$work/site.log")"
tell "site: reload" "$(since "$begin")"
begin=$(now)
"$DAEMON" --control "$work/site.socket" up --all >"$work/up" 2>&1 || {
    tail -n 3 "$work/up" "$work/hub.log" "$work/site.log" >&2
    verdict=1
}
tell "all tunnels up at once" "$(since "$begin")"
for role in hub site; do
    begin=$(now)
    ready $role || die "no list of $role"
    tell "$role: list of $(grep -c ESTABLISHED "$work/$role.list") IKE SAs" "$(since "$begin")"
done
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$hub/stat"; }
scrape() {
    exec 3<>/dev/tcp/127.0.0.1/9500
    printf 'GET /metrics HTTP/1.1\r\nHost: hub\r\n\r\n' >&3
    cat <&3 >"$work/metrics"
    exec 3<&-
}
if [ -n "$metrics" ]; then
    before=$(ticks)
    for _ in 1 2 3 4 5; do
        # No sooner is anything looked up again.
        sleep 1.1
        begin=$(now)
        scrape
        tell "hub: a scrape, $(wc -c <"$work/metrics") octets, looked up in $(sed -n 's/^ike_scrape_seconds //p' "$work/metrics") s" "$(since "$begin")"
    done
    say "hub: five scrapes took $((($(ticks) - before) * 10)) ms of CPU"
fi
begin=$(now)
"$DAEMON" --control "$work/hub.socket" reload || die "$(tail -n 5 "$work/hub.log")"
tell "hub: reload with its SAs" "$(since "$begin")"
for role in hub site; do
    awk -v role=$role '/VmRSS/ { rss = $2 } END { printf "%s: %.0f MiB", role, rss / 1024 }' "/proc/${!role}/status"
    awk '{ sub(/.*\) /, ""); printf ", %.1f s of CPU\n", ($12 + $13) / 100 }' "/proc/${!role}/stat"
done
[ "$(grep -c ESTABLISHED "$work/hub.list")" = "$count" ] || verdict=1
begin=$(now)
kill "$site" && wait "$site" || true
tell "site: all deleted and ended" "$(since "$begin")"
kill -9 "$hub"
exit $verdict
