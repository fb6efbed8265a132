"""Drives a daemon by strongSwan's own Python library: argv has the socket and the peer's port."""
import socket
import sys

import vici

path, port = sys.argv[1], sys.argv[2]
sock = socket.socket(socket.AF_UNIX)
sock.connect(path)
s = vici.Session(sock)
assert s.version()["daemon"] == b"ike-daemon"
s.load_shared({"id": "ike-1", "type": "IKE", "data": "a secret of tests",
               "owners": ["left.example.org", "right.example.org"]})
assert list(s.get_shared()["keys"]) == [b"ike-1"]
conn = {"site": {
    "local_addrs": ["127.0.0.1"], "remote_addrs": ["127.0.0.1"], "remote_port": port,
    "local": {"auth": "psk", "id": "left.example.org"},
    "remote": {"auth": "psk", "id": "right.example.org"},
    "children": {"net": {"local_ts": ["10.1.0.0/16"], "remote_ts": ["10.2.0.0/16"]}}}}
s.load_conn(conn)
assert s.get_conns()["conns"] == [b"site"]
assert [list(c) for c in s.list_conns()] == [["site"]]
try:
    s.load_conn({"bad": {"remote_prot": "1"}})
    raise SystemExit("a wrong option was taken")
except vici.exception.CommandException as why:
    assert "remote_prot" in str(why), why
log = list(s.initiate({"child": "net", "timeout": "20000"}))
assert any(b"established" in line["msg"] for line in log), log
sas = list(s.list_sas())
assert sas[0]["site"]["state"] == b"ESTABLISHED", sas
assert list(s.rekey({"ike": "site"}).items())
certs = list(s.list_certs({}))
assert certs == []
counters = s.get_counters({})["counters"]
assert int(counters[""]["ike-init-out-req"]) >= 1, counters
list(s.terminate({"ike": "site", "force": "yes"}))
assert list(s.list_sas()) == []
s.unload_conn({"name": "site"})
s.clear_creds()
print("python's vici: ok")
