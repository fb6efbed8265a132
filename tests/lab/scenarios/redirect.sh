# A gateway sends its client to its other address (RFC 5685): strongSwan by command, ours in IKE_SA_INIT, after
# IKE_AUTH, and by command.
# CASES: us them auth
net_direct
site
case $CASE in
us) client=us gateway=them first=192.0.2.2 other=192.0.2.12 dev=$THEM_IF ;;
*) client=them gateway=us first=192.0.2.1 other=192.0.2.11 dev=$US_IF ;;
esac
ip -n "$(netns $gateway)" addr add $other/24 dev $dev
conf $gateway connections.site.local_addrs %any
[ $gateway = them ] || conf us charon.redirect.to $other
[ "$CASE" != auth ] || conf us charon.redirect.in_auth true
start
served_at() { expect $client "live | length == 1 and .[0].\"remote-host\" == \"$1\""; }
up $client
installed
case $CASE in
us)
    served_at $first
    swan them --redirect --ike site --gateway $other >>$OUT/redirect.out 2>&1 || fail "swanctl --redirect"
    served_at $other
    expect_both '.us | length == 1'
    installed
    ;;
*)
    served_at $other
    [ "$CASE" = auth ] || {
        ctl us redirect site $first >>$OUT/redirect.out 2>&1 || fail "redirect"
        served_at $first
        expect us 'length == 1'
        installed
    }
    ;;
esac
ping_both
