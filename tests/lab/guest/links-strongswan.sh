# charon as initiator, timed by its own log: from "initiating IKE_SA" to its child.
# shellcheck shell=bash disable=SC2154

# sent SIDE: sets DATAGRAMS and OCTETS (of IKE) that its namespace has sent; reads
# no more than files, for programs take long to start in a guest.
sent() {
    local pid names values i file out_octets=0
    pid=$(<"$STATE/$1.pid")
    DATAGRAMS=0
    for file in snmp netstat; do
        while read -r -a names && read -r -a values; do
            for i in "${!names[@]}"; do
                case ${names[i]}:${names[0]} in
                OutDatagrams:Udp:) DATAGRAMS=${values[i]} ;;
                OutOctets:IpExt:) out_octets=${values[i]} ;;
                esac
            done
        done <"/proc/$pid/net/$file"
    done
    # Without IPv4 and UDP headers.
    OCTETS=$((out_octets - 28 * DATAGRAMS))
}

# seconds HH:MM:SS.mmm: in milliseconds.
milliseconds() {
    local h=${1:0:2} m=${1:3:2} s=${1:6:2} ms=${1:9:3}
    MS=$(((10#$h * 3600 + 10#$m * 60 + 10#$s) * 1000 + 10#$ms))
}

# Reads what the log has got since the last time. Sets BEGIN and END (ms), AGAIN, ATTEMPTS.
read_log() {
    local line
    while IFS= read -r -u 7 line; do
        case $line in
        *'initiating IKE_SA '*)
            milliseconds "${line%% *}"
            ATTEMPTS=$((ATTEMPTS + 1))
            [ -n "$BEGIN" ] || BEGIN=$MS
            ;;
        *' retransmit '*' of request '*) AGAIN=$((AGAIN + 1)) ;;
        *'CHILD_SA net{'*'established with SPIs'*)
            milliseconds "${line%% *}"
            END=$MS
            ;;
        esac
    done
}

strongswan_handshakes() {
    local run i_d i_o r_d r_o began setup wall
    echo "link,pair,suite,setup_s,attempts,i_datagrams,i_octets,i_again,r_datagrams,r_octets,r_again" >"$SHEET"
    echo "run,log_s,swanctl_s" >"$OUT/wall.csv"
    exec 7<"$(log_of us)"
    BEGIN='' END='' AGAIN=0 ATTEMPTS=0
    read_log
    for run in $(seq "$RUNS"); do
        BEGIN='' END='' AGAIN=0 ATTEMPTS=0
        sent us
        i_d=$DATAGRAMS i_o=$OCTETS
        sent them
        r_d=$DATAGRAMS r_o=$OCTETS
        began=${EPOCHREALTIME/./}
        while [ -z "$END" ] && [ $(((${EPOCHREALTIME/./} - began) / 1000000)) -lt "$LIMIT" ]; do
            STRONGSWAN_CONF=$STATE/us.strongswan.conf swanctl --initiate --ike "$SUITE" --child net \
                --timeout "$LIMIT" --uri "$(vici us)" >>"$OUT/us.swanctl.out" 2>&1 || true
            read_log
        done
        wall=$((${EPOCHREALTIME/./} - began))
        sent us
        i_d=$((DATAGRAMS - i_d)) i_o=$((OCTETS - i_o))
        sent them
        r_d=$((DATAGRAMS - r_d)) r_o=$((OCTETS - r_o))
        setup=
        if [ -n "$END" ]; then
            # Past midnight.
            [ "$END" -ge "$BEGIN" ] || END=$((END + 86400000))
            printf -v setup '%d.%03d' $(((END - BEGIN) / 1000)) $(((END - BEGIN) % 1000))
        fi
        echo "$LINK,$PAIR,$SUITE,$setup,$ATTEMPTS,$i_d,$i_o,$AGAIN,$r_d,$r_o,0" >>"$SHEET"
        printf '%d,%s,%d.%06d\n' "$run" "$setup" $((wall / 1000000)) $((wall % 1000000)) >>"$OUT/wall.csv"
        # The next one does not wait for a delete that was lost.
        STRONGSWAN_CONF=$STATE/us.strongswan.conf timeout 30 swanctl --terminate --ike "$SUITE" --force --timeout 1 \
            --uri "$(vici us)" >>"$OUT/us.swanctl.out" 2>&1 || true
    done
}
