#!/bin/bash
# The inside of prometheus.sh.
set -eu
US=daemon THEM=daemon
. /lab/guest/lib.sh
capture() { :; }
exec 4>&1 >"$OUT/prometheus.log" 2>&1
trap 'rc=$?; trap - EXIT; [ $rc = 0 ] || tail -n 25 "$OUT/prometheus.log" >&4; kill $(jobs -p) 2>/dev/null; exit $rc' EXIT
say() { echo "$*" >&4; }

METRICS=127.0.0.1:9500 PROMETHEUS=127.0.0.1:9090

# get HOST:PORT PATH: the body of the answer. HTTP/1.0, for the answer comes in one piece.
get() {
    # shellcheck disable=SC2016
    in_ns us bash -c 'exec 3<>"/dev/tcp/${1/:/\/}"; printf "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" "$2" "$1" >&3
        sed "1,/^\r*$/d" <&3' - "$1" "$2"
}
encoded() { jq -rn --arg text "$1" '$text | @uri'; }
api() { get $PROMETHEUS "/api/v1/$1" 2>/dev/null; }
# ask QUERY: Prometheus' whole answer, in $STATE/answer. An error, and a warning of PromQL's, is a failure.
ask() {
    api "query?query=$(encoded "$1")" >"$STATE/answer" || return
    [ "$(jq '.status == "success" and (.warnings // []) == [] and (.infos // []) == []' "$STATE/answer")" = true ]
}
# A query is answered with a number, of which none is NaN.
has_data() { ask "$1" && [ "$(jq '.data.result | length > 0 and all(.value[1] != "NaN")' "$STATE/answer")" = true ]; }
is() { ask "$1" && [ "$(jq -r '.data.result[0].value[1]' "$STATE/answer")" = "$2" ]; }
must_be() { wait_for 20 is "$1" "$2" || fail "$1 is not $2: $(cat "$STATE/answer")"; }
# values LABEL MATCH: what Grafana fills its variables from.
values() { api "label/$1/values?match%5B%5D=$(encoded "$2")" | jq -c .data; }

net_direct
site
ca ours ca ecdsa256
certificate ours us ecdsa256 ca
certificate ours them ecdsa256 ca
by_certificate
give us x509ca ca.pem
give them x509ca ca.pem
conf us charon.metrics.listen $METRICS
# Nobody is at that address.
nobody=connections.nobody
conf us $nobody.remote_addrs 192.0.2.9
conf us $nobody.local.auth psk
conf us $nobody.remote.auth psk
conf us $nobody.children.nowhere.start_action start
conf us $nobody.children.nowhere.remote_ts 10.9.0.0/16
conf us secrets.ike-nobody.secret "never used"
conf us charon.retransmit_timeout 0.3
conf us charon.retransmit_tries 1
# What the peer has not.
conf us connections.site.children.alien.remote_ts 10.8.0.0/16
start them us
cat >"$STATE/prometheus.yml" <<YML
global: { scrape_interval: 1s, scrape_timeout: 1s }
scrape_configs:
  - job_name: ike
    static_configs: [ { targets: [ "$METRICS" ] } ]
YML
promtool check config "$STATE/prometheus.yml"
in_ns us prometheus --config.file="$STATE/prometheus.yml" --storage.tsdb.path="$STATE/tsdb" \
    --web.listen-address=$PROMETHEUS >"$OUT/prometheus.server.log" 2>&1 &
must_be 'up{job="ike"}' 1

note "what there is to count"
up us
installed
ping_both
rekey us child
rekey us ike
down us ike
gone
up us
installed
up_fails us alien
in_ns them bash -c "printf '%0.s\\001' {1..80} >/dev/udp/$US_OWN/500"
ping_from us

get $METRICS /metrics >"$OUT/scrape.txt"
promtool check metrics <"$OUT/scrape.txt" >"$OUT/promtool.log" 2>&1 || fail "promtool: $(cat "$OUT/promtool.log")"
[ ! -s "$OUT/promtool.log" ] || fail "promtool: $(cat "$OUT/promtool.log")"
say "promtool takes the scrape: $(grep -c '^[a-z]' "$OUT/scrape.txt") samples"

must_be 'sum(ike_sas{connection="site",state="established"})' 1
must_be 'sum(ike_child_sas{connection="site",state="installed"})' 1
must_be 'ike_configured_children_down{connection="nobody"}' 1
must_be 'ike_configured_children_down{connection="site"}' 0
must_be 'ike_handshake_failures_total{reason="timeout"} > bool 0' 1
must_be 'ike_child_failures_total{reason="TS_UNACCEPTABLE"} > bool 0' 1
must_be 'ike_rekeys_total{kind="child"} > bool 0' 1
must_be 'sum(ike_esp_packets_total{connection="site",direction="out"}) > bool 5' 1
say "Prometheus has what happened"

[ "$(values job ike_build_info)" = '["ike"]' ] || fail "no job"
[ "$(values instance 'ike_build_info{job="ike"}')" = "[\"$METRICS\"]" ] || fail "no instance"
[ "$(values connection 'ike_sas{job="ike"}' | jq -c 'map(select(. != ""))')" = '["nobody","site"]' ] || fail "no connections"

# What goes wrong in the data plane and what no device offloads has no samples here.
may_lack='ike_data_plane_errors_total|ike_offloaded_sas'
jq -r '.panels[].targets[]?.expr' "$OUT/dashboard.json" >"$STATE/queries"
asked=0 full=0
while read -r query; do
    filled=${query//\$__rate_interval/1m}
    filled=${filled//\$job/ike}
    filled=${filled//\$instance/.*}
    filled=${filled//\$connection/.*}
    [[ $filled != *\$* ]] || fail "a variable that is not filled in: $query"
    ask "$filled" || fail "$filled: $(cat "$STATE/answer")"
    asked=$((asked + 1))
    [[ ! $filled =~ $may_lack ]] || continue
    wait_for 20 has_data "$filled" || fail "no data for $filled: $(cat "$STATE/answer")"
    full=$((full + 1))
done <"$STATE/queries"
[ "$asked" -ge 30 ] || fail "only $asked queries in the dashboard"
# This can fail.
! ask 'sum(ike_sas' || fail "Prometheus takes anything"
! has_data 'ike_no_such_metric' || fail "everything has data"
final_checks
say "$asked queries of the dashboard evaluated, $full with data, by $(prometheus --version 2>&1 | sed -n 's/^prometheus, \(version [^ ]*\).*/\1/p')"
