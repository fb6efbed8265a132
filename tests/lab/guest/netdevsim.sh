# Two ports of the simulated offloading NIC, joined by a wire. Needs the kernel
# netdevsim.
# shellcheck shell=bash

# net_netdevsim [packet]: as net_direct, but l0 and r0 are such ports. As shipped
# they take AES-GCM in crypto mode; `packet` has them take packet mode as well.
# What an offloaded SA sends arrives decrypted at the peer's offloaded SA.
net_netdevsim() {
    new_ns left right
    nic ipsec_packet "$([ "${1:-}" = packet ] && echo Y || echo N)"
    nic ipsec_deliver Y
    port left l0 1
    port right r0 2
    exec 8</run/netns/left 9</run/netns/right
    echo "8:$(ifindex left l0) 9:$(ifindex right r0)" >/sys/bus/netdevsim/link_device
    exec 8<&- 9<&-
    device_up left l0 "192.0.2.1/24 2001:db8::1/64"
    device_up right r0 "192.0.2.2/24 2001:db8::2/64"
    inner_networks
    capture
}

# nic PARAMETER VALUE
nic() { echo "$2" >"/sys/module/netdevsim/parameters/$1"; }

# port NAMESPACE NAME NUMBER
port() {
    echo "$3 1" >/sys/bus/netdevsim/new_device
    ip link set "$(basename /sys/bus/netdevsim/devices/"netdevsim$3"/net/*)" netns "$1" name "$2"
    ip -n "$1" link set "$2" up
}

ifindex() { ip -n "$1" -j link show "$2" | jq '.[0].ifindex'; }

# nic_has SIDE: what that side's port was given, as it tells.
nic_has() { cat "/run/debug/netdevsim/netdevsim$([ "$1" = us ] && echo 1 || echo 2)/ports/0/ipsec"; }

# nic_sas SIDE: "in|out SPI KEY" for each SA in the port, the salt at the key's end.
nic_sas() {
    nic_has "$1" | perl -ne '
        $dir = $1 eq "r" ? "in" : "out" if / ([rt])x ipaddr/;
        ($spi, $salt) = ($1, $2) if /spi=0x(\w+) .* salt=0x(\w+)/;
        if (/key=0x(\w+) (\w+) (\w+) (\w+)/) { print "$dir $spi ", (map { unpack "H8", pack "V", hex } $1, $2, $3, $4, $salt), "\n" }' | sort
}

# state_keys SIDE: the same of the SAs in that side's kernel that have a device.
state_keys() {
    ip -n "$(netns "$1")" xfrm state | perl -ne '
        $spi = sprintf "%08x", hex $1 if /spi (0x\w+)/;
        $key = $1 if /aead rfc4106\(gcm\(aes\)\) 0x(\w+) 128/;
        print "$1 $spi $key\n" if /crypto offload parameters: dev \w+ dir (\w+)/' | sort
}
