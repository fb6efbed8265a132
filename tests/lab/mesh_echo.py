"""Pings of one host of `mesh.sh`: echoes what comes, and sends to each peer named on its input until that ends."""

import selectors
import socket
import sys
import time

own, port = sys.argv[1], 7777
EVERY, PATIENCE = 0.2, 3.0
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((own, port))
selector = selectors.DefaultSelector()
selector.register(udp, selectors.EVENT_READ)
selector.register(sys.stdin, selectors.EVENT_READ)
sent, answered = {}, {}
last = end = None
while end is None or time.time() < end:
    for key, _ in selector.select(0.02):
        if key.fileobj is sys.stdin:
            line = sys.stdin.readline()
            if line:
                sent[line.strip()], answered[line.strip()] = 0, set()
            else:
                selector.unregister(sys.stdin)
                end = time.time() + PATIENCE
        else:
            octets, peer = udp.recvfrom(2048)
            if octets[:1] == b"?":
                udp.sendto(b"!" + octets[1:], peer)
            else:
                answered[peer[0]].add(octets)
    now = time.time()
    if end is None and (last is None or now - last >= EVERY):
        last = now
        for peer in sent:
            udp.sendto(b"?%d" % sent[peer], (peer, port))
            sent[peer] += 1
for peer in sent:
    print(peer, sent[peer], len(answered[peer]), flush=True)
