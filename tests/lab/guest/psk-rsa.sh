#!/bin/bash
# The inside of psk-rsa.sh. The link is limited to 100 Mbit/s in both directions;
# what is impaired is what one gateway, "us", sends, as in the paper.
# shellcheck disable=SC2154,SC2034
set -eu
. /out/env
US=none THEM=none
. /lab/guest/lib.sh
capture() { :; }
SHEET=$OUT/results.csv
STRONGSWAN_LOG=1
DATA_PLANE=kernel
if [ "$WHERE" = host ]; then
    DATA_PLANE=userspace
    # Before kernel-netlink: the first to offer ESP provides it.
    STRONGSWAN_PLUGINS="kernel-libipsec $STRONGSWAN_PLUGINS"
fi

# A host's kernel need not have netem.
limited() {
    impair us "$@" rate 100mbit && impair them rate 100mbit && return
    [ "$WHERE" = host ] && [ $# = 0 ] && echo "== this kernel has no netem: the link has no limit"
}

begin() {
    local link=$1 method=$2
    rm -rf "${STATE:?}"/us* "${STATE:?}"/them*
    STRONGSWAN_MORE=
    net_direct
    site
    ike both proposals aes256-sha256-modp2048
    net both esp_proposals aes256-sha256-modp2048
    if [ "$method" = rsa ]; then
        by_certificate
        give us x509ca ca.pem
        give them x509ca ca.pem
    fi
    link "$link"
    start
}

link() {
    case $1 in
    normal) limited ;;
    impaired) limited delay 100ms 20ms distribution normal loss 1% ;;
    esac
}

# note_value METRIC VALUE
put() { echo "$LINK,$PROGRAM,$METHOD,$1,$2" >>"$SHEET"; }

# Milliseconds from the log, as the paper takes them: of the IKE SA from the first message
# until it is established, of the child from then on.
setup_times() {
    case $PROGRAM in
    strongswan)
        awk 'function ms(t,   p, s) { split(t, p, ":"); return ((p[1] * 60 + p[2]) * 60 + p[3]) * 1000 }
             / initiating IKE_SA / { begin = ms($1) }
             /IKE_SA site\[.*established between/ { ike = ms($1) - begin; done = ms($1) }
             /CHILD_SA net\{.*established with SPIs/ { child = ms($1) - done }
             END { printf "%.3f %.3f\n", ike, child }' "$(log_of us)"
        ;;
    daemon)
        # Its log has no line for the first message, but says how long that was ago.
        awk 'function ms(t,   p) { split(substr(t, 12), p, ":"); return ((p[1] * 60 + p[2]) * 60 + p[3]) * 1000 }
             / IKE SA established / { done = ms($1) }
             / Child SA up / { child = ms($1) - done }
             END { printf "%.3f\n", child }' "$(log_of us)" >"$STATE/child"
        echo "$(sas us | jq -r '.[0]."setup-time-ms"') $(cat "$STATE/child")"
        ;;
    esac
}

handshakes() {
    local i ike child
    for i in $(seq "$HANDSHAKES"); do
        up us
        setup_times >"$STATE/times"
        read -r ike child <"$STATE/times" || fail "no setup times"
        put ike_ms "$ike"
        put child_ms "$child"
        [ "$i" = "$HANDSHAKES" ] && break
        # A delete whose answer is lost is made again for minutes.
        link normal
        down us ike
        gone
        link "$LINK"
    done
}

# throughput METRIC IPERF3_OPTION…: what the receiver got, Mbit/s; of UDP, the share lost too.
throughput() {
    local metric=$1 i
    shift
    for i in $(seq "$IPERFS"); do
        in_ns them timeout $((SECONDS_EACH + 60)) iperf3 -s -1 -B $RIGHT_IN >"$OUT/iperf.server.log" 2>&1 &
        wait_for 10 listening || fail "no iperf3 server"
        in_ns us timeout $((SECONDS_EACH + 40)) iperf3 -c $RIGHT_IN -B $LEFT_IN -t "$SECONDS_EACH" -J "$@" \
            >"$OUT/iperf.json" || {
            # Its control connection is lost where nothing gets through beside the flood.
            note "iperf3 $*: $(jq -r .error "$OUT/iperf.json")"
            put "${metric}_failed" 1
            kill $! 2>/dev/null || true
            wait $! || true
            continue
        }
        wait $! || true
        cp "$OUT/iperf.json" "$OUT/$LINK.$METHOD.$PROGRAM.$metric.$i.json"
        put "$metric" "$(jq '(.end.sum_received // .end.sum).bits_per_second / 1e6' "$OUT/iperf.json")"
        case $metric in
        udp_*) put "${metric}_loss" "$(jq '(.end.sum_received // .end.sum).lost_percent' "$OUT/iperf.json")" ;;
        esac
    done
}
listening() { in_ns them ss -Hltn 'sport = :5201' | grep -q .; }

# 50 pings, 0.2 s apart: mean round-trip time, mean difference between one and the next, lost.
pings() {
    local i
    for i in $(seq "$PINGS"); do
        in_ns us ping -n -c 50 -i 0.2 -W 2 -I $LEFT_IN $RIGHT_IN >"$OUT/$LINK.$METHOD.$PROGRAM.ping.$i" || true
        awk '/time=/ { sub(/.*time=/, ""); t = $1 + 0; sum += t; if (n++) jitter += t > last ? t - last : last - t; last = t }
             / packet loss/ { match($0, /[0-9.]+% packet loss/); lost = substr($0, RSTART) + 0 }
             END { if (n > 1) printf "%.4f %.4f %s\n", sum / n, jitter / (n - 1), lost }' \
            "$OUT/$LINK.$METHOD.$PROGRAM.ping.$i" >"$STATE/ping"
        read -r latency jitter lost <"$STATE/ping" || fail "no ping was answered"
        put latency_ms "$latency"
        put jitter_ms "$jitter"
        put loss "$lost"
    done
}

mkdir -p "$STATE"
echo "link,program,method,metric,value" >"$SHEET"
ca ours ca rsa
certificate ours us rsa ca
certificate ours them rsa ca
for LINK in $LINKS; do
    for METHOD in $METHODS; do
        for PROGRAM in daemon strongswan; do
            echo "== $LINK link, $METHOD, $PROGRAM"
            US=$PROGRAM THEM=$PROGRAM
            begin "$LINK" "$METHOD"
            handshakes
            installed
            pings
            throughput tcp_up -w 256K
            throughput tcp_down -w 256K -R
            throughput udp_up -u -b 100M
            throughput udp_down -u -b 100M -R
            finish "$LINK.$METHOD.$PROGRAM"
        done
    done
done
