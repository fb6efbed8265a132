# Configuration. Both programs use the vocabulary of swanctl.conf(5), so one
# list of "dotted.key = value" lines per side is written out in either syntax.
# shellcheck shell=bash

# conf us|them|both KEY VALUE: the last value given counts, an empty one removes the key.
conf() {
    case $1 in
    both)
        conf us "$2" "$3"
        conf them "$2" "$3"
        ;;
    *) printf '%s = %s\n' "$2" "$3" >>"$STATE/$1.conf" ;;
    esac
}

# conf_lines SIDE: each key once, with its last value.
conf_lines() {
    awk '{ key = $1; value = $0; sub(/^[^=]*= ?/, "", value)
           if (!(key in v)) order[++n] = key
           v[key] = value }
         END { for (i = 1; i <= n; i++) if (v[order[i]] != "") print order[i] " = " v[order[i]] }' "$STATE/$1.conf"
}

# A connection "site" with a child "net" between the two inner networks.
site() {
    connection site net "$LEFT_NET" "$RIGHT_NET"
}

# connection NAME CHILD LEFT_TS RIGHT_TS
connection() {
    local c=connections.$1
    conf us "$c.local_addrs" "$US_OWN"
    conf us "$c.remote_addrs" "$THEM_SEEN"
    conf them "$c.local_addrs" "$THEM_OWN"
    conf them "$c.remote_addrs" "$US_SEEN"
    conf both "$c.version" 2
    conf both "$c.proposals" aes256gcm16-prfsha256-x25519
    # The defaults of swanctl.conf(5), which differ from those of our own file format.
    conf both "$c.keyingtries" 1
    conf both "$c.dpd_delay" 0s
    conf us "$c.local.auth" psk
    conf them "$c.local.auth" psk
    conf both "$c.remote.auth" psk
    conf us "$c.local.id" us.example.org
    conf us "$c.remote.id" them.example.org
    conf them "$c.local.id" them.example.org
    conf them "$c.remote.id" us.example.org
    child "$@"
    conf both "secrets.ike-$1.id" "us.example.org, them.example.org"
    conf both "secrets.ike-$1.secret" "a secret that only these two know"
}

# child CONNECTION NAME LEFT_TS RIGHT_TS
child() {
    local c=connections.$1.children.$2
    conf us "$c.local_ts" "$3"
    conf us "$c.remote_ts" "$4"
    conf them "$c.local_ts" "$4"
    conf them "$c.remote_ts" "$3"
    conf both "$c.esp_proposals" aes256gcm16-x25519
    conf both "$c.mode" tunnel
    conf both "$c.close_action" none
    conf both "$c.dpd_action" clear
}

ike() { conf "$1" "connections.site.$2" "$3"; }
net() { conf "$1" "connections.site.children.net.$2" "$3"; }

# transport: the child of "site" is between the two hosts themselves.
transport() {
    net both mode transport
    net us local_ts "$US_OWN/32"
    net us remote_ts "$THEM_OWN/32"
    net them local_ts "$THEM_OWN/32"
    net them remote_ts "$US_OWN/32"
}

to_toml() {
    conf_lines "$1" | awk '
        function quoted(s) { gsub(/^ +| +$/, "", s); return "\"" s "\"" }
        { path = $1; value = $0; sub(/^[^=]*= /, "", value)
          key = path; sub(/.*\./, "", key)
          section = substr(path, 1, length(path) - length(key) - 1)
          if (key ~ /^(local_addrs|remote_addrs|proposals|esp_proposals|ah_proposals|local_ts|remote_ts|vips|pools)$/ ||
              (key == "id" && section ~ /^secrets\./)) {
              n = split(value, part, ","); out = ""
              for (i = 1; i <= n; i++) out = out (i > 1 ? ", " : "") quoted(part[i])
              value = "[" out "]"
          } else if (value !~ /^([0-9]+(\.[0-9]+)?|true|false)$/) value = quoted(value)
          if (!(section in body)) order[++sections] = section
          body[section] = body[section] key " = " value "\n" }
        END { for (i = 1; i <= sections; i++) printf "[%s]\n%s\n", order[i], body[order[i]] }'
}

# Sections may be repeated in this syntax, so every line stands alone.
to_swanctl() {
    conf_lines "$1" | grep -v '^charon\.' | awk '
        { path = $1; value = $0; sub(/^[^=]*= /, "", value)
          n = split(path, p, ".")
          if (p[1] == "secrets" && p[n] == "id") {
              m = split(value, id, / *, */)
              for (i = 1; i <= m; i++) put("id-" i, id[i])
          } else put(p[n], value) }
        function put(key, value,   i, line, close_) {
            for (i = 1; i < n; i++) { line = line p[i] " { "; close_ = close_ " }" }
            print line key " = \"" value "\"\n" close_ }'
}

to_strongswan() {
    conf_lines "$1" | grep '^charon\.' | awk '
        { path = $1; value = $0; sub(/^[^=]*= /, "", value)
          n = split(path, p, "."); line = ""; close_ = ""
          for (i = 1; i < n; i++) { line = line p[i] " { "; close_ = close_ " }" }
          print line p[n] " = " value "\n" close_ }' || true
}
