# A simulated NIC is on a bus of the whole guest, and its driver's parameters are, too.
# CASES: left gone
# KERNELS: netdevsim
# PLANE: kernel
# US: none
# THEM: none
if [ "$CASE" = gone ]; then
    [ -z "$(ls /sys/bus/netdevsim/devices)" ] || fail "there is a device"
    for parameter in packet deliver; do
        [ "$(cat /sys/module/netdevsim/parameters/ipsec_$parameter)" = N ] || fail "$parameter is still on"
    done
fi
net_netdevsim packet
