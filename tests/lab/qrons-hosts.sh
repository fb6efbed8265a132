#!/bin/bash
# N tunnels between one host (this machine) and N tenants, with no, crypto and
# packet offload, and iperf3 over all of them at once: the set-up and the
# measurement of QRoNS (doi:10.3390/electronics14214234). Each tunnel is made by
# X25519 and ML-KEM-1024, ML-DSA-87 certificates, and carries AES-256-GCM.
# Runs on real machines and, by qrons.sh, in a guest of the lab.
set -eu

usage() {
    cat <<USAGE
usage: qrons-hosts.sh [OPTION]… TENANTS
  TENANTS         a file with one line for each tenant:
                    NAME HOST-ADDRESS HOST-DEVICE TENANT-ADDRESS TENANT-DEVICE COMMAND…
                  COMMAND runs a shell there that reads standard input, e.g.
                    ssh root@vm1 sh        ip netns exec t1 sh
  -o 'no crypto packet'   values of hw_offload to measure ("no crypto packet")
  -p 'tcp udp'            protocols ("tcp udp")
  -n '1 2 4 8 16'         numbers of tenants at once (1, then every even number)
  -t SECONDS              of each run (10)
  -r RUNS                 of each, the mean of which counts (1)
  -u OCTETS               of a UDP packet's payload (9000, for an MTU of 9214)
  -d COMMAND              ike-daemon, the same path everywhere (ike-daemon)
  -w FOLDER               where keys, configurations and logs go, everywhere (/tmp/qrons)
  -l TEXT                 what the table says of this run
  -L                      does without the line's own throughput
Needs root, iperf3 and jq here, and root and iperf3 at the tenants. An
ike-daemon, or another user of ports 500 and 4500, must not run already.
USAGE
}

MODES="no crypto packet" PROTOCOLS="tcp udp" NUMBERS="" TIME=10 RUNS=1 OCTETS=9000
DAEMON=ike-daemon WORK=/tmp/qrons LABEL="" LINE=yes
while getopts o:p:n:t:r:u:d:w:l:Lh opt; do
    case $opt in
    o) MODES=$OPTARG ;;
    p) PROTOCOLS=$OPTARG ;;
    n) NUMBERS=$OPTARG ;;
    t) TIME=$OPTARG ;;
    r) RUNS=$OPTARG ;;
    u) OCTETS=$OPTARG ;;
    d) DAEMON=$OPTARG ;;
    w) WORK=$OPTARG ;;
    l) LABEL=$OPTARG ;;
    L) LINE= ;;
    h) usage && exit ;;
    *) usage >&2 && exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# = 1 ] || { usage >&2 && exit 2; }

say() { printf '%s\n' "$*" >&2; }
die() { say "qrons: $*" && exit 1; }

[ "$(id -u)" = 0 ] || die "needs root"
for mode in $MODES; do case $mode in no | crypto | packet | auto) ;; *) die "no offload $mode" ;; esac done
for protocol in $PROTOCOLS; do case $protocol in tcp | udp) ;; *) die "no protocol $protocol" ;; esac done

NAMES=() HERE=() HERE_DEV=() THERE=() THERE_DEV=() HOW=()
while read -r name here here_dev there there_dev how; do
    case $name in '' | '#'*) continue ;; esac
    [ -n "$how" ] || die "$1: a line has too few words: $name $here $here_dev $there $there_dev"
    NAMES+=("$name") HERE+=("$here") HERE_DEV+=("$here_dev") THERE+=("$there") THERE_DEV+=("$there_dev") HOW+=("$how")
done <"$1"
N=${#NAMES[@]}
[ "$N" -gt 0 ] || die "$1 names no tenant"
[ -n "$NUMBERS" ] || NUMBERS="1 $(seq -s ' ' 2 2 "$N")"
for n in $NUMBERS; do [ "$n" -le "$N" ] || die "there are $N tenants, not $n"; done

# at I SCRIPT: runs it at tenant I.
# shellcheck disable=SC2086
at() { printf '{ %s\n} </dev/null\n' "$2" | ${HOW[$1]}; }
# put I FILE: standard input becomes that file there.
# shellcheck disable=SC2016,SC2086
put() { { printf 'umask 077; mkdir -p "$(dirname %s)"; base64 -d >%s <<"END"\n' "$2" "$2" && base64 && printf 'END\n'; } | ${HOW[$1]}; }

# -- certificates --------------------------------------------------------------

certificates() {
    local name
    say "qrons: $((N + 1)) ML-DSA-87 certificates"
    rm -rf "$WORK/pki"
    (umask 077 && mkdir -p "$WORK/pki" "$WORK/host/"{x509,x509ca,private})
    "$DAEMON" pki --gen --type mldsa87 --out "$WORK/pki/ca.key"
    "$DAEMON" pki --self --ca --in "$WORK/pki/ca.key" --dn "O=qrons, CN=ca" --out "$WORK/pki/ca.pem"
    for name in host "${NAMES[@]}"; do
        "$DAEMON" pki --gen --type mldsa87 --out "$WORK/pki/$name.key"
        "$DAEMON" pki --issue --in "$WORK/pki/$name.key" --cacert "$WORK/pki/ca.pem" --cakey "$WORK/pki/ca.key" \
            --dn "O=qrons, CN=$name" --san "$name.example.org" --out "$WORK/pki/$name.pem"
    done
    cp "$WORK/pki/ca.pem" "$WORK/host/x509ca/"
    cp "$WORK/pki/host.pem" "$WORK/host/x509/"
    cp "$WORK/pki/host.key" "$WORK/host/private/"
    for i in "${!NAMES[@]}"; do
        name=${NAMES[$i]}
        put "$i" "$WORK/$name/x509ca/ca.pem" <"$WORK/pki/ca.pem"
        put "$i" "$WORK/$name/x509/$name.pem" <"$WORK/pki/$name.pem"
        put "$i" "$WORK/$name/private/$name.key" <"$WORK/pki/$name.key"
    done
}

# -- configuration -------------------------------------------------------------

# connection NAME LOCAL REMOTE LOCAL-ID REMOTE-ID CERTIFICATE MODE
connection() {
    cat <<TOML
[connections.$1]
local_addrs = ["$2"]
remote_addrs = ["$3"]
proposals = ["aes256gcm16-prfsha384-x25519-ke1_mlkem1024"]
[connections.$1.local]
auth = "pubkey"
id = "$4.example.org"
certs = ["$6.pem"]
[connections.$1.remote]
auth = "mldsa87"
id = "$5.example.org"
[connections.$1.children.net]
local_ts = ["$2"]
remote_ts = ["$3"]
esp_proposals = ["aes256gcm16-x25519-ke1_mlkem1024"]
hw_offload = "$7"

TOML
}

host_toml() {
    local i
    for i in "${!NAMES[@]}"; do
        connection "${NAMES[$i]}" "${HERE[$i]}" "${THERE[$i]}" host "${NAMES[$i]}" host "$1"
    done
}

# -- daemons -------------------------------------------------------------------

# What starts one, in a shell there. run NAME
run() {
    cat <<SH
cd $WORK/$1 && rm -f control
NO_COLOR=1 $DAEMON run --data-plane kernel --config $WORK/$1/ike.toml --control $WORK/$1/control >$WORK/$1/log 2>&1 &
echo \$! >$WORK/$1/pid
for i in \$(seq 200); do [ -S $WORK/$1/control ] && exit 0; sleep 0.1; done
tail -n 5 $WORK/$1/log >&2; exit 1
SH
}
# What stops it, and waits until it is gone.
halt() {
    cat <<SH
[ -e $WORK/$1/pid ] || exit 0
kill \$(cat $WORK/$1/pid) 2>/dev/null
for i in \$(seq 100); do kill -0 \$(cat $WORK/$1/pid) 2>/dev/null || break; sleep 0.1; done
kill -9 \$(cat $WORK/$1/pid) 2>/dev/null; rm -f $WORK/$1/pid
SH
}

halt_all() {
    local i
    halt host | sh || true
    for i in "${!NAMES[@]}"; do at "$i" "$(halt "${NAMES[$i]}")" || true; done
}

control() { "$DAEMON" --control "$WORK/host/control" "$@"; }

# tunnels MODE: all of them, by one command.
tunnels() {
    local i name
    (umask 077 && host_toml "$1" >"$WORK/host/ike.toml")
    for i in "${!NAMES[@]}"; do
        name=${NAMES[$i]}
        connection host "${THERE[$i]}" "${HERE[$i]}" "$name" host "$name" "$1" | put "$i" "$WORK/$name/ike.toml"
        at "$i" "$(run "$name")" || die "ike-daemon of $name does not start"
    done
    run host | sh || die "ike-daemon of this host does not start"
    local begin=$EPOCHREALTIME
    control up --all >&2 || die "not all tunnels came up (log: $WORK/host/log)"
    say "qrons: $N tunnels by one command in $(jq -n "($EPOCHREALTIME - $begin) * 1000 | round") ms"
    expect_tunnels "$1"
}

# Each with the algorithms and the offload that were asked for, by what the
# daemon reports and by what the kernel has.
expect_tunnels() {
    local sas states
    sas=$(control list --json)
    printf '%s\n' "$sas" >"$WORK/list.$1.json"
    # Without the keys.
    ip -s xfrm state | sed 's/ 0x[0-9a-f]\{32,\} / KEY /' >"$WORK/state.$1"
    ip xfrm policy >"$WORK/policy.$1"
    [ "$(jq '[.[]."child-sas"[]] | length' <<<"$sas")" = "$N" ] || die "not $N children: $WORK/list.$1.json"
    states=$(grep -c 'aead rfc4106(gcm(aes)) KEY (288 bits) 128' "$WORK/state.$1" || true)
    [ "$states" = $((2 * N)) ] || die "$states states with AES-256-GCM in the kernel, not $((2 * N))"
    case $1 in
    crypto | packet)
        for dir in in out; do
            states=$(grep -c "offload parameters: .* dir $dir mode $1" "$WORK/state.$1" || true)
            [ "$states" = "$N" ] || die "$states SAs $dir with $1 offload, not $N: $WORK/state.$1"
        done
        ;;
    no) ! grep -q 'offload parameters' "$WORK/state.no" || die "offload that nobody asked for" ;;
    esac
    states=$(grep -c 'offload parameters: .* mode packet' "$WORK/policy.$1" || true)
    case $1 in
    packet) [ "$states" -gt 0 ] || die "no policy in the NIC" ;;
    no | crypto) [ "$states" = 0 ] || die "policies in the NIC" ;;
    esac
}

# nic: what the NICs of this host count of ESP.
nic() {
    local dev
    for dev in $(printf '%s\n' "${HERE_DEV[@]}" | sort -u); do
        ethtool -S "$dev" 2>/dev/null | sed -n "s/^ *\(.*ipsec.*\): /$dev \1 /p"
    done
}

# used_policies: those of tunnels that leave this host, are in the NIC, and were
# used: one word each.
used_policies() {
    ip -s xfrm policy | awk '
        function done() { if (out && nic && used && !ike) print "used"; out = nic = used = ike = 0 }
        /^src/ { done(); ike = / proto udp / }
        /dir out/ { out = 1 }
        /offload parameters: .* mode packet/ { nic = 1 }
        / use [0-9]/ { used = 1 }
        END { done() }'
}

# carried MODE: what was measured went through every tunnel, by the counters of
# its SAs. A simulated NIC in packet mode does not encrypt and counts nothing;
# there the policies of the NIC must have been used.
carried() {
    nic >"$WORK/nic.$1"
    control list --json | jq -e 'all(.[]."child-sas"[]; (."packets-in" | tonumber) > 0 and (."packets-out" | tonumber) > 0)' >/dev/null &&
        return
    case $1 in packet | auto) [ -d /sys/bus/netdevsim ] ;; *) false ;; esac || die "a tunnel carried nothing"
    [ "$(used_policies | wc -l)" = "$N" ] || die "a policy in the NIC was not used"
    say "qrons: the NIC counts nothing; its policies were used"
}

# -- throughput ----------------------------------------------------------------

# Two servers for each tenant, and two clients of each, which begin together.
servers() {
    local port
    PIDS=()
    for port in $(seq 0 $((2 * N - 1))); do
        server "${HERE[$((port / 2))]}" $((5201 + port)) &
        PIDS+=($!)
    done
    sleep 1
}
# server ADDRESS PORT: iperf3, started again whenever it ends. Since 3.16 it has threads, and now and then it aborts
# when a test begins or ends (https://github.com/esnet/iperf/issues/1750 and others).
server() {
    # shellcheck disable=SC2046
    trap 'kill -KILL $(jobs -p) 2>/dev/null; exit 0' TERM
    while :; do
        iperf3 -s -B "$1" -p "$2" >/dev/null 2>&1 &
        wait $! || say "qrons: the iperf3 server of $1, port $2, ended with status $?: it is started again"
        sleep 0.2
    done
}
servers_end() {
    [ ${#PIDS[@]} = 0 ] || kill -TERM "${PIDS[@]}" 2>/dev/null || true
    [ ${#PIDS[@]} = 0 ] || wait "${PIDS[@]}" 2>/dev/null || true
    PIDS=()
}
PIDS=()

# mbits PROTOCOL N: received from N tenants together, in Mbit/s. It fails if one of the clients has no result, because
# the sum would be too small.
mbits() {
    local options="" i k clients=() out=$WORK/iperf without=0
    [ "$1" = tcp ] || options="-u -b 0 -l $OCTETS"
    rm -rf "$out" && mkdir -p "$out"
    for i in $(seq 0 $(($2 - 1))); do
        for k in 0 1; do
            at "$i" "sleep 2; timeout $((TIME + 60)) iperf3 -c ${HERE[$i]} -B ${THERE[$i]} -p $((5201 + 2 * i + k)) \
                -t $TIME $options -J" >"$out/$i.$k.json" 2>"$out/$i.$k.err" &
            clients+=($!)
        done
    done
    wait "${clients[@]}" || true
    for i in "$out"/*.json; do
        jq -es "length == 1 and (.[0] | $RECEIVED != null)" "$i" >/dev/null 2>&1 || {
            say "qrons: $1, $2 tenants: $(basename "$i"): $(jq -r '.error // "no result"' "$i" 2>/dev/null)"
            without=$((without + 1))
        }
    done
    [ $without = 0 ] || return 1
    jq -s "[.[] | $RECEIVED] | add / 1e6 | round" "$out"/*.json
}
# What a client received in bit/s, or nothing if it has no result. Of UDP what arrived counts.
RECEIVED='(.end.sum_received.bits_per_second //
    if .end.sum.bits_per_second then .end.sum.bits_per_second * (1 - (.end.sum.lost_percent // 0) / 100) else null end)'

# measure WHAT: the means, in RESULT.
declare -A RESULT
measure() {
    local protocol n run sum value try
    servers
    for protocol in $PROTOCOLS; do
        for n in $NUMBERS; do
            sum=0
            for run in $(seq "$RUNS"); do
                # What fails is iperf3 itself, and seldom: a run of it is repeated.
                value=
                for try in 1 2 3; do
                    if value=$(mbits "$protocol" "$n"); then break; fi
                    value=
                    say "qrons: $1, $protocol, $n tenants: try $try of 3 gave no result for some clients"
                done
                [ -n "$value" ] || die "no result of iperf3 in three tries ($1, $protocol, $n tenants)"
                [ "$value" -gt 0 ] || die "nothing arrived ($1, $protocol, $n tenants)"
                sum=$((sum + value))
                say "qrons: $1, $protocol, $n tenants, run $run: $value Mbit/s"
            done
            RESULT[$1.$protocol.$n]=$((sum / RUNS))
        done
    done
    servers_end
}

# -- the table -----------------------------------------------------------------

table() {
    local protocol n mode value line
    echo "${LABEL:-$(uname -sr), $(nproc) CPUs}"
    echo "$N tenants; X25519 + ML-KEM-1024, ML-DSA-87, AES-256-GCM; $RUNS runs of $TIME s, 2 streams a tenant, UDP of $OCTETS octets"
    for protocol in $PROTOCOLS; do
        printf '\n%s, Mbit/s received, and per cent of the line\n%7s' "${protocol^^}" tenants
        [ -z "$LINE" ] || printf '  %10s' line
        for mode in $MODES; do printf '  %18s' "$mode offload"; done
        echo
        for n in $NUMBERS; do
            printf '%7s' "$n"
            line=${RESULT[line.$protocol.$n]:-}
            [ -z "$LINE" ] || printf '  %10s' "$line"
            for mode in $MODES; do
                value=${RESULT[$mode.$protocol.$n]}
                if [ -n "$line" ]; then
                    printf '  %10s %6s%%' "$value" "$(jq -n "$value / $line * 1000 | round / 10")"
                else printf '  %18s' "$value"; fi
            done
            echo
        done
    done
    for mode in $MODES; do
        [ ! -s "$WORK/nic.$mode" ] || printf '\nCounted by the NICs of this host until the end of %s offload:\n%s\n' "$mode" "$(cat "$WORK/nic.$mode")"
    done
}

trap 'rc=$?; trap - EXIT; servers_end; halt_all; exit $rc' EXIT
mkdir -p "$WORK"
certificates
[ -z "$LINE" ] || measure line
for mode in $MODES; do
    tunnels "$mode"
    measure "$mode"
    carried "$mode"
    halt_all
done
table
