# Tenants in namespaces, each joined to the host, which is the guest itself, by a
# pair of simulated offloading ports; and QRoNS's measurement over them.
# shellcheck shell=bash

# As wide as QRoNS's wires.
TENANTS_MTU=9214

# tenants N
tenants() {
    local i dev
    nic ipsec_packet Y
    nic ipsec_deliver Y
    for i in $(seq "$1"); do
        new_ns "t$i"
        echo "$i 1" >/sys/bus/netdevsim/new_device
        dev=$(basename /sys/bus/netdevsim/devices/"netdevsim$i"/net/*)
        ip link set "$dev" name "h$i"
        port "t$i" eth0 $((100 + i))
        exec 9<"/run/netns/t$i" 8</proc/self/ns/net
        echo "8:$(cat "/sys/class/net/h$i/ifindex") 9:$(ifindex "t$i" eth0)" >/sys/bus/netdevsim/link_device
        exec 9<&- 8<&-
        ip addr add "10.77.$i.1/30" dev "h$i"
        ip link set "h$i" mtu $TENANTS_MTU up
        ip -n "t$i" addr add "10.77.$i.2/30" dev eth0
        ip -n "t$i" link set eth0 mtu $TENANTS_MTU
        echo "t$i 10.77.$i.1 h$i 10.77.$i.2 eth0 ip netns exec t$i sh"
    done >"$STATE/tenants"
    ip link set lo up
}

# qrons OPTION…: of qrons-hosts.sh. The table goes to standard output.
qrons() {
    bash /lab/qrons-hosts.sh -d "$DAEMON" -w "$STATE/qrons" \
        -l "Functional run: one user-mode kernel, simulated NICs" "$@" "$STATE/tenants" 2>"$OUT/progress.log" && return
    tail -n 20 "$OUT/progress.log"
    cp -r "$STATE/qrons" "$OUT/" 2>/dev/null || true
    rm -rf "$OUT"/qrons/*/private "$OUT"/qrons/pki
    fail "not measured"
}
