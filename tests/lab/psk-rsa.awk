# The table of psk-rsa.sh: means of link,program,method,metric,value lines, the
# paper's figures (its Tables 6 and 7) beside them.
BEGIN {
    FS = ","
    split("ike_ms ike_median child_ms latency_ms jitter_ms tcp_up tcp_down udp_up udp_down udp_up_loss udp_down_loss loss", metrics, " ")
    title["ike_ms"] = "IKE SA, ms"
    title["ike_median"] = "the same, median"
    title["child_ms"] = "CHILD SA after it, ms"
    title["latency_ms"] = "latency (ping), ms"
    title["jitter_ms"] = "jitter (ping), ms"
    title["tcp_up"] = "TCP upload, Mbit/s"
    title["tcp_down"] = "TCP download, Mbit/s"
    title["udp_up"] = "UDP upload, Mbit/s"
    title["udp_down"] = "UDP download, Mbit/s"
    title["udp_up_loss"] = "lost of UDP upload, %"
    title["udp_down_loss"] = "lost of UDP download, %"
    title["loss"] = "loss (ping), %"
    paper("normal", "psk", "10.05 - - 0.82 0.14 93.19 93.44 94.38 93.35 - - 0")
    paper("normal", "rsa", "20.80 - - 0.88 0.16 93.37 93.43 35.66 93.66 - - 0")
    paper("impaired", "psk", "206.95 - - 96.19 23.92 1.05 21.21 2.06 93.82 - - 5")
    paper("impaired", "rsa", "234.35 - - 106.80 26.79 1.12 21.89 1.18 93.38 - - 16")
}
function paper(link, method, values,   i, v) {
    split(values, v, " ")
    for (i in v) theirs[link, method, metrics[i]] = v[i]
}
$4 ~ /_failed$/ { failed = failed sprintf("iperf3 failed: %s, %s, %s, %s\n", $1, $2, $3, $4); next }
FNR > 1 { sum[$1, $2, $3, $4] += $5; n[$1, $2, $3, $4]++; links[$1] = 1 }
FNR > 1 && $4 == "ike_ms" { k = $1 SUBSEP $2 SUBSEP $3; value[k, ++m[k]] = $5 }
function median(link, program, method,   k, i, j, v, count, half) {
    k = link SUBSEP program SUBSEP method
    count = m[k]
    if (!count) return "-"
    for (i = 1; i <= count; i++) {
        v = value[k, i]
        for (j = i - 1; j > 0 && sorted[j] > v; j--) sorted[j + 1] = sorted[j]
        sorted[j + 1] = v
    }
    half = int((count + 1) / 2)
    return sprintf("%.2f", count % 2 ? sorted[half] : (sorted[half] + sorted[half + 1]) / 2)
}
function mean(link, program, method, metric,   k) {
    if (metric == "ike_median") return median(link, program, method)
    k = link SUBSEP program SUBSEP method SUBSEP metric
    return n[k] ? sprintf("%.2f", sum[k] / n[k]) : "-"
}
END {
    split("normal impaired", order, " ")
    for (l = 1; l <= 2; l++) {
        link = order[l]
        if (!(link in links)) continue
        printf "%-26s %22s %22s %22s\n", link, "the paper", "ike-daemon", "strongSwan 6.1"
        printf "%-26s %11s %10s %11s %10s %11s %10s\n", "", "PSK", "RSA", "PSK", "RSA", "PSK", "RSA"
        for (i = 1; i in metrics; i++) {
            name = metrics[i]
            printf "%-26s %11s %10s %11s %10s %11s %10s\n", title[name], theirs[link, "psk", name], theirs[link, "rsa", name],
                mean(link, "daemon", "psk", name), mean(link, "daemon", "rsa", name),
                mean(link, "strongswan", "psk", name), mean(link, "strongswan", "rsa", name)
        }
        print ""
    }
    printf "%s", failed
}
