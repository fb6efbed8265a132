# Nothing is there of what others left.
# US: none
# THEM: none
nothing() { [ -z "$2" ] || fail "there is $1: $2"; }
nothing "a process" "$(pgrep -l -x 'sleep|tcpdump' || true)"
nothing "a namespace" "$(ip netns list)"
nothing "a state" "$(ip xfrm state)"
nothing "a policy" "$(ip xfrm policy)"
nothing "a device" "$(ip -o link | grep -v '^1: lo:' || true)"
nothing "an address" "$(ip -o addr)"
nothing "a route" "$(ip route show table all)"
nothing "a rule" "$(ip rule | grep -v -E 'lookup (local|main|default)' || true)"
nothing "forwarding" "$(sysctl -n net.ipv4.ip_forward | grep -v -x 0 || true)"
nothing "another name" "$(hostname | grep elsewhere || true)"
nothing "a file" "$(find /tmp /run /dev/shm -name left)"
nothing "a file" "$(ls -A /tmp "$STATE" | grep -v : || true)"
