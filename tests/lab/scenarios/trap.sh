# A packet meets the trap of the side named. It is offered before the trap's wide
# selectors, so that of two children the other side takes the one it belongs to.
# CASES: us them
net_direct
case $CASE in
us) child site extra "$LEFT_NET" 10.3.0.0/16 ;;
them) child site extra 10.3.0.0/16 "$RIGHT_NET" ;;
esac
site
net "$CASE" remote_ts 10.0.0.0/8
net "$CASE" start_action trap
start
no_child_yet() { [ "$(sas us)" = '[]' ] && [ "$(sas them)" = '[]' ]; }
no_child_yet || fail "an SA before there was a packet"
wait_for "$PATIENCE" ping_quietly "$CASE" || fail "no traffic through the trap"
installed
case $CASE in
us) expect us '.[0]."child-sas"[0]."remote-ts" == ["10.2.0.0/16"]' ;;
them) expect them '.[0]."child-sas"[0]."remote-ts" == ["10.1.0.0/16"]' ;;
esac
ping_both
rekey "$(other "$CASE")" child
ping_both
