# libreswan behind the verbs. Its file is written from the same options as
# the others', as far as it has a word for them; what has no other word is
# `conf them libreswan.KEY VALUE`. One connection, "site", with one child.
# shellcheck shell=bash

LIBRESWAN_BIN=/opt/libreswan/usr/bin

# whack_to SIDE SECONDS ARGUMENT…
whack_to() {
    local side=$1 seconds=$2
    shift 2
    timeout "$seconds" /usr/libexec/ipsec/whack --rundir "$STATE/$side.pluto" "$@"
}

libreswan_start() {
    local side=$1 dir=$STATE/$1.pluto
    # One that was killed leaves a file that keeps the next from starting.
    rm -rf "$dir"
    mkdir -p "$dir/nss" "$dir/ipsec.d"
    : >"$(log_of "$side")"
    to_libreswan "$side" >"$dir/ipsec.conf"
    (umask 077 && libreswan_secrets "$side" >"$dir/ipsec.secrets")
    cp "$dir/ipsec.conf" "$OUT/$side.ipsec.conf"
    libreswan_certificates "$side" >"$OUT/$side.nss.out" 2>&1 || {
        cat "$OUT/$side.nss.out"
        fail "no certificates for libreswan of $side"
    }
    ip netns exec "$(netns "$side")" /usr/libexec/ipsec/pluto --nofork --stderrlog \
        --config "$dir/ipsec.conf" --secretsfile "$dir/ipsec.secrets" --ipsecdir "$dir/ipsec.d" --nssdir "$dir/nss" \
        --rundir "$dir" --nhelpers 0 >"$(log_of "$side")" 2>&1 &
    echo $! >"$STATE/$side.pid"
    wait_for 20 log_has "$side" '"site".*: added ' 2>/dev/null|| fail "pluto of $side did not start"
}

# libreswan_load SIDE: its file and secrets as `conf` has them now.
libreswan_load() {
    local dir=$STATE/$1.pluto
    to_libreswan "$1" >"$dir/ipsec.conf"
    (umask 077 && libreswan_secrets "$1" >"$dir/ipsec.secrets")
    whack_to "$1" 10 --rereadsecrets
    /usr/libexec/ipsec/addconn --config "$dir/ipsec.conf" --ctlsocket "$dir/pluto.ctl" site
}

# A database without a password, the end's own certificate and key, and the CAs it trusts.
libreswan_certificates() {
    local nss=sql:$STATE/$1.pluto/nss from=$STATE/$1.d file name
    "$LIBRESWAN_BIN/certutil" -N -d "$nss" --empty-password
    for file in "$from"/private/*.key; do
        [ -e "$file" ] || continue
        name=$(basename "$file" .key)
        openssl pkcs12 -export -in "$from/x509/$name.pem" -inkey "$file" -name "$name" -passout pass:lab -out "$STATE/$1.p12"
        "$LIBRESWAN_BIN/pk12util" -i "$STATE/$1.p12" -d "$nss" -W lab
    done
    for file in "$from"/x509ca/*.pem; do
        [ ! -e "$file" ] || "$LIBRESWAN_BIN/certutil" -A -d "$nss" -n "$(basename "$file" .pem)" -t CT,, -i "$file"
    done
}

# Certificates come from $STATE/SIDE.d as for the others.
to_libreswan() {
    local dir=$STATE/$1.pluto
    printf 'config setup\n\tuniqueids=yes\nconn site\n'
    conf_lines "$1" | awk '
        function put(key, value) { if (!(key in v)) order[++n] = key; v[key] = value }
        # The first proposal, in its words; a key exchange of a child is for pfs.
        function algorithms(value, child,   i, m, part, enc, integ, dh) {
            sub(/,.*/, "", value); m = split(value, part, "-")
            for (i = 1; i <= m; i++) {
                if (part[i] ~ /^aes(128|192|256)gcm16$/) enc = "aes_gcm" substr(part[i], 4, 3)
                else if (part[i] ~ /^aes(128|192|256)$/) enc = "aes" substr(part[i], 4, 3)
                else if (part[i] ~ /^(prf)?sha(256|384|512)$/) { integ = part[i]; sub(/^prfsha|^sha/, "sha2_", integ) }
                else if (part[i] == "x25519") dh = "dh31"
                else if (part[i] ~ /^ecp(256|384|521)$/) dh = "dh" (part[i] == "ecp256" ? 19 : part[i] == "ecp384" ? 20 : 21)
                else if (part[i] == "modp2048") dh = "dh14"
            }
            if (child) put("pfs", dh == "" ? "no" : "yes")
            return enc (integ == "" ? "" : "-" integ) (dh == "" ? "" : (child ? ";" : "-") dh)
        }
        function authentication(value) { return value == "psk" ? "secret" : value == "null" ? "null" : "" }
        function identity(value) { return value ~ /^[a-z.]+$/ ? "@" value : value }
        function subnet(value) { sub(/,.*/, "", value); return value }
        { key = $1; value = $0; sub(/^[^=]*= /, "", value)
          if (sub(/^libreswan\./, "", key)) { raw[key] = value; next }
          # A range, as the pools of all three take it.
          if (key ~ /^pools\..*\.addrs$/) { put("rightaddresspool", value); next }
          if (!sub(/^connections\.site\./, "", key)) next
          sub(/^children\.net\./, "net.", key)
          if (key == "local_addrs") put("left", value)
          else if (key == "remote_addrs") put("right", value)
          else if (key == "proposals") put("ike", algorithms(value, 0))
          else if (key == "net.esp_proposals") put("esp", algorithms(value, 1))
          else if (key == "net.mode") put("type", value)
          else if (key == "mobike") put("mobike", value == "true" || value == "yes" ? "yes" : "no")
          else if (key == "dpd_delay" && value !~ /^0/) put("dpddelay", value)
          else if (key == "local.id") put("leftid", identity(value))
          else if (key == "remote.id") put("rightid", identity(value))
          else if (key == "local.auth") put("leftauth", authentication(value))
          else if (key == "remote.auth") put("rightauth", authentication(value))
          else if (key == "local.certs") { sub(/\.pem$/, "", value); put("leftcert", value) }
          else if (key == "ppk_id") { put("ppk-ids", "\"" value "\""); if (!("ppk" in v)) put("ppk", "yes") }
          else if (key == "ppk_required") put("ppk", value == "yes" ? "insist" : "yes")
          else if (key == "vips") { put("leftmodecfgclient", "yes"); put("rightmodecfgserver", "yes"); put("modecfgpull", "yes"); put("narrowing", "yes") }
          else if (key == "pools") { put("leftmodecfgserver", "yes"); put("rightmodecfgclient", "yes"); put("modecfgpull", "yes") }
          else if (key == "net.local_ts") local_ts = subnet(value)
          else if (key == "net.remote_ts") remote_ts = subnet(value)
        }
        END {
            # It takes these from addresses and pools.
            if (v["type"] != "transport") {
                # What is to be narrowed to the virtual IP; without it it asks for its own address.
                if ("leftmodecfgclient" in v) local_ts = "0.0.0.0/0"
                if (local_ts != "" && local_ts != "dynamic") put("leftsubnet", local_ts)
                if (remote_ts != "" && remote_ts != "dynamic") put("rightsubnet", remote_ts)
            }
            # Its program adds routes and virtual IPs, and takes a third of a second here.
            if (!("leftmodecfgclient" in v)) put("leftupdown", "%disabled")
            for (key in raw) put(key, raw[key])
            for (i = 1; i <= n; i++) if (v[order[i]] != "" && v[order[i]] != "none") print "\t" order[i] "=" v[order[i]]
        }'
    printf '\tkeyexchange=ikev2\n\tauto=add\n'
}

libreswan_secrets() {
    local id secret
    secret=$(conf_lines "$1" | sed -n 's/^secrets\.ike-site\.secret = //p')
    [ -z "$secret" ] || printf '%%any %%any : PSK "%s"\n' "$secret"
    id=$(conf_lines "$1" | sed -n 's/^secrets\.ppk-site\.id = //p')
    secret=$(conf_lines "$1" | sed -n 's/^secrets\.ppk-site\.secret = //p')
    [ -z "$id" ] || printf '%%any %%any : PPKS "%s" "%s"\n' "$id" "$secret"
}

libreswan_up() {
    whack_to "$1" 30 --initiate --name site >>"$OUT/$1.whack.out" 2>&1 || {
        tail -n 20 "$OUT/$1.whack.out"
        fail "$1 could not bring up site"
    }
}

libreswan_rekey() { libreswan_verb "$1" "--rekey-$2"; }

# It has no word for a child alone where the connection has but one.
libreswan_down() { libreswan_verb "$1" --terminate; }

# As with the others, a refusal is only noted; what comes next tells.
libreswan_verb() {
    whack_to "$1" 30 "$2" --name site >>"$OUT/$1.whack.out" 2>&1 ||
        note "whack $2: $(tail -n 1 "$OUT/$1.whack.out")"
}

libreswan_stop() {
    kill -TERM "$(cat "$STATE/$1.pid")"
    : >"$STATE/$1.killed"
}

# One line for each IKE SA, two for each child; whack names no SPIs of an IKE
# SA, so that its serial number, which is new after each rekey, stands for them. It counts
# no packets either: the kernel does.
libreswan_sas() {
    { ip -n "$(netns "$1")" -s xfrm state && whack_to "$1" 10 --showstates; } | tee "$OUT/$1.showstates" | awk '
        function padded(spi) { spi = sprintf("%8s", spi); gsub(/ /, "0", spi); return spi }
        function option(after,   rest) { rest = $0; return sub(".*; " after " #", "", rest) ? rest + 0 : 0 }
        $1 == "proto" && $3 == "spi" { spi = substr($4, 3); sub(/\(.*/, "", spi) }
        /^\t  [0-9]+\(bytes\), [0-9]+\(packets\)/ { split($2, count, "("); if (!(spi in packets)) packets[spi] = count[1] }
        !/^#[0-9]+: "/ { next }
        { serial = substr($1, 2) + 0 }
        / ESTABLISHED_IKE_SA / { ike[++ikes] = serial; next }
        / ESTABLISHED_CHILD_SA / { child[++children] = serial; parent[serial] = option("IKE SA"); newest[serial] = /; newest;/; next }
        / esp[.:][0-9a-f]+@/ {
            n = 0
            for (i = 2; i <= NF; i++) if ($i ~ /^esp[.:]/) { split(substr($i, 5), part, "@"); if (!n++) out[serial] = padded(part[1]); else in_[serial] = padded(part[1]) }
            mode[serial] = / tun[.:]/ ? "TUNNEL" : "TRANSPORT" }
        END {
            printf "["
            for (i = 1; i <= ikes; i++) {
                printf "%s{\"name\":\"site\",\"state\":\"ESTABLISHED\",\"initiator-spi\":\"%d\",\"responder-spi\":\"0\",\"child-sas\":[", (i > 1 ? "," : ""), ike[i]
                m = 0
                for (j = 1; j <= children; j++) {
                    c = child[j]
                    if (parent[c] != ike[i] || !(c in in_)) continue
                    printf "%s{\"name\":\"net\",\"state\":\"%s\",\"mode\":\"%s\",\"spi-in\":\"%s\",\"spi-out\":\"%s\",\"packets-in\":%d,\"packets-out\":%d}",
                        (m++ ? "," : ""), (newest[c] ? "INSTALLED" : "REKEYED"), mode[c], in_[c], out[c], packets[in_[c]], packets[out[c]]
                }
                printf "]}"
            }
            print "]" }'
}
