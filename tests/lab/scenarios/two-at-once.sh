# Two connections and, on one of them, two children, all brought up at the
# same moment by the side named.
# CASES: us them
# PLANE: userspace kernel
net_direct
site
child site net2 "$LEFT_NET2" "$RIGHT_NET2"
connection site2 net3 "$LEFT_NET3" "$RIGHT_NET3"
conf us connections.site2.local.id us2.example.org
conf us connections.site2.remote.id them2.example.org
conf them connections.site2.local.id them2.example.org
conf them connections.site2.remote.id us2.example.org
conf both secrets.ike-site2.id "us2.example.org, them2.example.org"
conf both secrets.ike-site2.secret "another secret"
start
for name in net net2 net3; do up "$CASE" $name & done
expect_both 'map(length == 2 and all(.state == "ESTABLISHED")
    and ([.[] | select(.name == "site")."child-sas"[].name] | sort == ["net", "net2"])
    and ([.[] | select(.name == "site2")."child-sas"[].name] == ["net3"])) | all'
agree
ping_both
ping_both $LEFT_IN2 $RIGHT_IN2
ping_both $LEFT_IN3 $RIGHT_IN3
rekey us child net2
rekey them ike site2
down them child net
expect_both 'map([.[]."child-sas"[].name] | sort == ["net2", "net3"]) | all'
ping_both $LEFT_IN2 $RIGHT_IN2
ping_both $LEFT_IN3 $RIGHT_IN3
down us ike site
expect_both 'map(map(.name) == ["site2"]) | all'
ping_both $LEFT_IN3 $RIGHT_IN3
