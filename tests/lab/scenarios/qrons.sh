# QRoNS's set-up: sixteen tenants and one host, hybrid ML-KEM-1024 handshakes with
# ML-DSA-87 certificates, AES-256-GCM, all tunnels brought up by one command;
# TCP and UDP over all of them at once, with no, crypto and packet offload. Its
# whole measurement is tests/lab/qrons.sh.
# KERNELS: netdevsim
# KERNEL_ARGS: mem=1G
# PLANE: kernel
# US: none
# THEM: none
# TIMEOUT: 280
tenants 16
qrons -n 16 -t 1
left=$(ip xfrm state; ip xfrm policy; for i in $(seq 16); do ip -n "t$i" xfrm state; ip -n "t$i" xfrm policy; done)
[ -z "$left" ] || fail "left behind: $left"
