# What a scenario may leave: all of it ends with the case.
# CASES: processes namespaces files
# US: none
# THEM: none
case $CASE in
processes)
    # Neither a hang-up nor TERM ends it, and it is nobody's child.
    (trap '' TERM HUP && setsid sleep 1000 &)
    in_background() { pgrep -x sleep; }
    wait_for 5 in_background || fail "it does not run"
    ;;
namespaces)
    new_ns left right
    join left l0 192.0.2.1/24 right r0 192.0.2.2/24
    for at in "-n left" ""; do
        # shellcheck disable=SC2086
        ip $at -batch - <<'IP'
xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000 mode tunnel aead rfc4106(gcm(aes)) 0x000102030405060708090a0b0c0d0e0f10111213 128
xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp mode tunnel
link add d0 type veth peer name d1
addr add 198.51.100.1/24 dev d0
link set d0 up
route add 203.0.113.0/24 dev d0
rule add from 198.51.100.1 table 77
IP
    done
    sysctl -qw net.ipv4.ip_forward=1
    hostname elsewhere
    (in_ns left sleep 1000 &)
    ;;
files)
    for folder in /tmp /run "$STATE" /dev/shm; do echo left >"$folder/left"; done
    mount -t tmpfs tmpfs /tmp
    ! echo left 2>/dev/null >/etc/left || fail "the root can be written to"
    ! echo 1 2>/dev/null >/proc/sys/vm/overcommit_memory || fail "a setting of the whole guest can be changed"
    [ -z "$(ls -A /mnt)" ] || fail "the folders of other cases are there"
    ;;
esac
