"""Floods a gateway with strangers, and brings tunnels up meanwhile. Called by strangers.sh.

A stranger agrees on keys and sends 62,000 octets of an IKE_AUTH request that never ends. There are 250 of them in 14
seconds, times what is asked for, from 460 IPv4 addresses or from 1,000 IPv6 prefixes of 64 bits.
"""

import argparse
import hashlib
import hmac
import multiprocessing
import os
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

# SA, KE, Nonce, Notify, Encrypted Fragment; IKE_SA_INIT, IKE_AUTH; COOKIE, IKEV2_FRAGMENTATION_SUPPORTED.
SA, KE, NONCE, NOTIFY, SKF = 33, 34, 40, 41, 53
# Identification of the initiator, Authentication, traffic selectors of both, Encrypted and Authenticated.
IDI, AUTH_PAYLOAD, TSI, TSR, SK = 35, 39, 44, 45, 46
INIT, AUTH, INFORMATIONAL = 34, 35, 37
COOKIE, FRAGMENTATION = 16390, 16430
PORT = 4600


def prf_plus(key, seed, length):
    out, last, count = b"", b"", 1
    while len(out) < length:
        last = hmac.digest(key, last + seed + bytes([count]), "sha256")
        out, count = out + last, count + 1
    return out[:length]


def payloads(items):
    out = b""
    for at, (_, body) in enumerate(items):
        following = items[at + 1][0] if at + 1 < len(items) else 0
        out += struct.pack(">BBH", following, 0, len(body) + 4) + body
    return out


def transform(last, kind, number, key_length=None):
    attribute = struct.pack(">HH", 0x800E, key_length) if key_length else b""
    return struct.pack(">BBHBBH", 0 if last else 3, 0, 8 + len(attribute), kind, 0, number) + attribute


# AES-256-GCM with 16 octets of ICV, HMAC-SHA-256, X25519.
PROPOSAL = transform(False, 1, 20, 256) + transform(False, 2, 5) + transform(True, 4, 31)
PROPOSAL = struct.pack(">BBHBBBB", 0, 0, 8 + len(PROPOSAL), 1, 1, 0, 3) + PROPOSAL


# AES-256-GCM with 16 octets of ICV, without ESN.
ESP_PROPOSAL = transform(False, 1, 20, 256) + transform(True, 5, 0)
ESP_PROPOSAL = struct.pack(">BBHBBBB", 0, 0, 12 + len(ESP_PROPOSAL), 1, 3, 4, 2) + bytes([0xC1, 0, 0, 1]) + ESP_PROPOSAL


def selector(first, last):
    ends = socket.inet_aton(first) + socket.inet_aton(last)
    return struct.pack(">BxxxBBHHH", 1, 7, 0, 16, 0, 65535) + ends


class Stranger:
    """One IKE SA of a peer that leaves messages unfinished."""

    def __init__(self, family, source, target):
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.settimeout(1)
        self.socket.bind((source, 0))
        self.socket.connect((target, PORT))
        self.spi, self.nonce, self.key = os.urandom(8), os.urandom(32), X25519PrivateKey.generate()
        self.octets = 0

    def send(self, datagram):
        self.octets += len(datagram)
        self.socket.send(b"\0\0\0\0" + datagram)

    def exchange(self, cookie):
        public = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        items = [(NOTIFY, struct.pack(">BBH", 0, 0, COOKIE) + cookie)] if cookie else []
        items += [(SA, PROPOSAL), (KE, struct.pack(">HH", 31, 0) + public), (NONCE, self.nonce)]
        items += [(NOTIFY, struct.pack(">BBH", 0, 0, FRAGMENTATION))]
        body = payloads(items)
        self.first = self.spi + bytes(8) + struct.pack(">BBBBII", items[0][0], 0x20, INIT, 8, 0, 28 + len(body)) + body
        self.send(self.first)
        answer = self.socket.recv(65535)[4:]
        kind, rest, found = answer[16], answer[28:], {}
        while kind and len(rest) >= 4:
            following, _, length = struct.unpack(">BBH", rest[:4])
            if kind == NOTIFY and rest[6:8] == struct.pack(">H", COOKIE):
                found["cookie"] = rest[8:length]
            found.setdefault(kind, rest[4:length])
            kind, rest = following, rest[length:]
        return answer[8:16], found

    def begin(self):
        """Agrees on keys; false if it is not answered."""
        cookie = None
        for _ in range(2):
            try:
                spi, found = self.exchange(cookie)
            except OSError:
                return False
            if KE in found:
                shared = self.key.exchange(X25519PublicKey.from_public_bytes(found[KE][4:]))
                nonces = self.nonce + found[NONCE]
                seed = hmac.digest(nonces, shared, "sha256")
                keys = prf_plus(seed, nonces + self.spi + spi, 136)
                self.signed, self.sk_pi = self.first + found[NONCE], keys[104:136]
                self.peer, self.cipher, self.salt = spi, AESGCM(keys[32:64]), keys[64:68]
                return True
            cookie = found.get("cookie")
        return False

    def seal(self, payload, exchange, message_id, inner, number, total=0):
        """A message, or a fragment of one."""
        head = struct.pack(">HH", number, total) if total else b""
        iv, length = struct.pack(">Q", message_id << 32 | number), 28 + 4 + len(head) + 8 + len(inner) + 17
        kind = inner_kind(payload, number)
        header = self.spi + self.peer + struct.pack(">BBBBII", payload, 0x20, exchange, 8, message_id, length)
        header += struct.pack(">BBH", kind, 0, length - 28) + head
        self.send(header + iv + self.cipher.encrypt(self.salt + iv, inner + bytes(1), header))

    def fragments(self, exchange=AUTH, message_id=1):
        for number in range(2, 7):
            self.seal(SKF, exchange, message_id, bytes(12400), number, 9)

    def authenticate(self, name, secret, net):
        """Completes IKE_AUTH with a preshared key; false if it is not answered."""
        identity = struct.pack(">Bxxx", 2) + name
        signed = self.signed + hmac.digest(self.sk_pi, identity, "sha256")
        proof = hmac.digest(hmac.digest(secret, b"Key Pad for IKEv2", "sha256"), signed, "sha256")
        items = [(IDI, identity), (AUTH_PAYLOAD, struct.pack(">Bxxx", 2) + proof), (SA, ESP_PROPOSAL)]
        items += [(TSI, selector(f"{net}.0", f"{net}.255")), (TSR, selector("10.1.0.0", "10.1.255.255"))]
        self.seal(SK, AUTH, 1, payloads(items), 1)
        try:
            # A refusal has a notification alone.
            return len(self.socket.recv(65535)) > 150
        except OSError:
            return False


def inner_kind(payload, number):
    """What the first payload inside is: IDi, except in later fragments."""
    return IDI if payload == SK or number == 1 else 0


def crowd(count, seconds, sums):
    """An authenticated peer with `count` IKE SAs, each of which leaves a request unfinished, again and again."""
    peers = []
    for n in range(count):
        peer = Stranger(socket.AF_INET, f"10.96.{n}.2", "10.99.0.1")
        if peer.begin() and peer.authenticate(b"many.example.org", b"a secret of the lab", f"10.2.{n}"):
            peers.append(peer)
    sums[0], sums[1] = count, len(peers)
    begun = time.monotonic()
    while time.monotonic() - begun < seconds:
        for peer in peers:
            peer.fragments(INFORMATIONAL, 2)
            time.sleep(0.05)
        sums[2] = sum(peer.octets for peer in peers)


def flood(family, rate, seconds, first, step, sums):
    """Strangers number `first`, `first + step` and so on."""
    begun, number = time.monotonic(), 0
    target = "10.99.0.1" if family == socket.AF_INET else "fd99::1"
    while (now := time.monotonic() - begun) < seconds:
        if number >= now * rate:
            time.sleep(0.002)
            continue
        n, number = first + number * step, number + 1
        if family == socket.AF_INET:
            n %= 460
            source = f"10.97.{n % 230}.1" if n % 2 else f"10.96.0.{n % 230 + 1}"
        else:
            n %= 1000
            source = f"2001:db8:eeee:{n:x}::9" if n % 2 else f"2001:db8:{n:x}::9"
        stranger = Stranger(family, source, target)
        try:
            if stranger.begin():
                stranger.fragments()
                sums[1] += 1
        except OSError:
            pass
        with sums.get_lock():
            sums[0] += 1
            sums[2] += stranger.octets
        stranger.socket.close()


class Daemons:
    def __init__(self, options):
        self.options = options

    def call(self, role, *words):
        command = [self.options.daemon, "--control", f"{self.options.work}/{role}.socket", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def up(self, name):
        """Brings a tunnel up and down again; how long it took, or None."""
        role = "gw" if name.startswith("out") else "client"
        begun = time.monotonic()
        done = self.call(role, "up", "--timeout", "20", name)
        took = time.monotonic() - begun
        self.call(role, "down", name)
        if done.returncode:
            print(f"{name}: {done.stderr.strip()[:200]}", flush=True)
        return took if done.returncode == 0 else None

    def meters(self):
        with urllib.request.urlopen("http://127.0.0.1:9500/metrics", timeout=10) as answer:
            text = answer.read().decode()
        sum_of = lambda name: sum(float(value) for value in re.findall(rf"^{name}\S* (\S+)$", text, re.M))
        with open(f"/proc/{self.options.pid}/status", encoding="ascii") as status:
            rss = int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))
        return sum_of("ike_half_open"), sum_of("ike_reassembly_bytes"), rss


def p95(times):
    return sorted(times)[len(times) * 95 // 100]


def main():
    parser = argparse.ArgumentParser()
    for name, kind in [("daemon", str), ("work", str), ("family", str), ("seconds", float), ("times", float), ("count", int), ("pid", int)]:
        parser.add_argument(f"--{name}", type=kind, required=True)
    options = parser.parse_args()
    daemons, kinds = Daemons(options), ["cert", "eap", "mlkem", "outcert", "outmlkem"]
    # The first of each kind finds nothing in any cache.
    for kind in kinds:
        daemons.up(kind)
    before = {kind: [daemons.up(kind) for _ in range(max(5, options.count // 2))] for kind in kinds}
    quiet = daemons.meters()
    what, strangers = f"IPv{options.family}", options.family != "peer"
    sums = multiprocessing.Array("d", 3)
    if strangers:
        family = socket.AF_INET if options.family == "4" else socket.AF_INET6
        rate, workers = options.times * 250 / 14, 2
        arguments = (family, rate / workers, options.seconds)
        floods = [multiprocessing.Process(target=flood, args=(*arguments, n, workers, sums)) for n in range(workers)]
    else:
        what = "one peer"
        floods = [multiprocessing.Process(target=crowd, args=(70, options.seconds, sums))]
    begun = time.monotonic()
    for one in floods:
        one.start()
    time.sleep(min(10, options.seconds / 4))
    after, most = {kind: [] for kind in kinds}, [0, 0, 0]
    pause = (options.seconds * 0.9 - 10) / max(1, options.count * len(kinds))
    for _ in range(options.count):
        for kind in kinds:
            since = time.monotonic()
            after[kind].append(daemons.up(kind))
            most = [max(pair) for pair in zip(most, daemons.meters())]
            time.sleep(max(0, pause - (time.monotonic() - since)))
    flooded = any(one.is_alive() for one in floods)
    for one in floods:
        one.join()
    took = time.monotonic() - begun
    sent, made, octets = sums
    print(f"{what}: {sent:.0f} {'strangers' if strangers else 'IKE SAs'}, {made:.0f} {'half-open' if strangers else 'up'}, {octets / 1e6:.0f} MB in {took:.0f} s ({sent / took:.0f}/s)")
    print(f"{what}: {most[0]:.0f} half-open and {most[1]:.0f} octets held at the most; RSS {quiet[2]} -> {most[2]} kB")
    good = (most[0] > 0 if strangers else made == sent) and most[1] > 0
    for kind in kinds:
        up = [time for time in after[kind] if time is not None]
        quiet_up = [time for time in before[kind] if time is not None]
        if not up or not quiet_up:
            print(f"{what} {kind}: none")
            good = False
            continue
        bound = 2 * p95(quiet_up) + 0.05
        fair = len(up) * 100 >= 95 * len(after[kind]) and p95(up) <= bound
        good = good and fair
        print(f"{what} {kind}: {len(up)} of {len(after[kind])} up, p95 {p95(up) * 1000:.0f} ms, unloaded {p95(quiet_up) * 1000:.0f} ms: {'ok' if fair else 'BAD'}")
    if not flooded:
        print("the flood ended before the handshakes did")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
