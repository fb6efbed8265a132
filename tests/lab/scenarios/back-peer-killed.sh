# The peer's process is killed and is away until our end has noticed; then it is started again and waits to be asked.
# CASES: strongswan
# MORE: ours libreswan beside-charon
# PLANE: userspace
# TIMEOUT: 240
. /lab/guest/outage.sh
settings() { impatient us; }
outage() {
    them_dies
    sleep 20
    them_again
    back
}
tunnel_comes_back 85
