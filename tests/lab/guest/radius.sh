# FreeRADIUS on the loopback of one side: carol's password, by MSCHAPv2 and MD5, and what she is granted;
# $STATE/radius/detail is what it hears of sessions.
# shellcheck shell=bash

RADIUS_SECRET="a secret of gateway and server"
RADIUS_DAE_SECRET="another one"

# radius_start SIDE
radius_start() {
    local dir=$STATE/radius
    note "start freeradius beside $1"
    mkdir -p "$dir/run"
    in_ns "$1" ip link set lo up
    cat >"$dir/users" <<USERS
carol Cleartext-Password := "Ar3etTnp"
	Class := "sales", Session-Timeout := 36000, Framed-IP-Address := 10.9.0.77
USERS
    cat >"$dir/radiusd.conf" <<CONF
prefix = /usr
libdir = /usr/lib/freeradius
logdir = $dir
run_dir = $dir/run
db_dir = $dir
max_request_time = 30
max_requests = 1024
security {
    max_attributes = 200
    reject_delay = 0
    require_message_authenticator = yes
}
client lab {
    ipaddr = 127.0.0.0/8
    secret = "$RADIUS_SECRET"
    require_message_authenticator = yes
}
modules {
    mschap {
        use_mppe = yes
        require_encryption = yes
        require_strong = yes
    }
    eap {
        default_eap_type = mschapv2
        timer_expire = 60
        md5 {
        }
        mschapv2 {
        }
    }
    detail {
        filename = $dir/detail
    }
    files {
        usersfile = $dir/users
    }
}
server lab {
    listen {
        type = auth
        ipaddr = 127.0.0.1
        port = 1812
    }
    listen {
        type = acct
        ipaddr = 127.0.0.1
        port = 1813
    }
    accounting {
        detail
    }
    authorize {
        files
        eap
    }
    authenticate {
        Auth-Type MS-CHAP {
            mschap
        }
        eap
    }
}
CONF
    in_ns "$1" freeradius -f -xx -l "$OUT/radius.log" -d "$dir" -n radiusd >"$OUT/radius.out" 2>&1 &
    wait_for 20 grep -q 'Ready to process requests' "$OUT/radius.log" || {
        tail -n 20 "$OUT/radius.log" "$OUT/radius.out"
        fail "freeradius did not start"
    }
}

# radius_asks SIDE coa|disconnect REGEX ATTRIBUTES: what the side at that loopback is asked about sessions (RFC 5176), and
# how it answers.
radius_asks() {
    local answer
    note "$2: $4"
    answer=$(echo "$4, Event-Timestamp = $(date +%s), Message-Authenticator = 0x00" |
        in_ns "$1" radclient -x -D /usr/share/freeradius -r 3 -t 3 127.0.0.1:3799 "$2" "$RADIUS_DAE_SECRET" 2>&1) || true
    grep -q -E -- "$3" <<<"$answer" || {
        echo "$answer"
        fail "$2: $4: no $3"
    }
}

# accounted REGEX…: one record of the detail file has all of these.
accounted() {
    local want
    awk -v RS= '{ gsub(/\n/, " "); print }' "$STATE/radius/detail" 2>/dev/null >"$STATE/radius/records"
    for want; do
        grep -E -- "$want" "$STATE/radius/records" >"$STATE/radius/found"
        mv "$STATE/radius/found" "$STATE/radius/records"
    done
    [ -s "$STATE/radius/records" ]
}
expect_accounted() {
    wait_for "$PATIENCE" accounted "$@" && return
    cat "$STATE/radius/detail"
    fail "the RADIUS server has not heard: $*"
}
