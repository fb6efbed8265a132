# The side named initiates with wider selectors than the other allows, and
# gets the narrower ones.
# CASES: us them
# PLANE: userspace kernel
net_direct
site
case $CASE in
us) net us local_ts 10.0.0.0/8 && net us remote_ts 10.0.0.0/8 ;;
them) net them local_ts 10.0.0.0/8 && net them remote_ts 10.0.0.0/8 ;;
esac
start
up "$CASE"
installed
expect us '.[0]."child-sas"[0] | ."local-ts" == ["10.1.0.0/16"] and ."remote-ts" == ["10.2.0.0/16"]'
expect them '.[0]."child-sas"[0] | ."local-ts" == ["10.2.0.0/16"] and ."remote-ts" == ["10.1.0.0/16"]'
ping_both
