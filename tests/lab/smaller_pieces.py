#!/usr/bin/env python3
"""Did the initiator of a capture send one request in smaller pieces than before, and then the larger first piece again?
usage: smaller_pieces.py PCAP ID

Status 0 if so. Smaller pieces: a first fragment (RFC 7383), or a message without fragments, that is shorter than an
earlier one of the same request, and in at least as many fragments. An initiator that does not send the larger first
piece again has not done its part: strongSwan would take it for a retransmission. The capture is tcpdump's, of an
Ethernet device.
"""

import struct
import sys

# The payload of a fragment (RFC 7383 §2.5), and flags of the IKE header (RFC 7296 §3.1).
ENCRYPTED_FRAGMENT = 53
INITIATOR, RESPONSE = 0x08, 0x20


def packets(data):
    """The packets of a capture, as far as it goes."""
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}.get(data[:4])
    if order is None or struct.unpack(order + "I", data[20:24])[0] != 1:
        sys.exit("smaller_pieces.py: not a capture of an Ethernet device")
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack(order + "I", data[at + 8 : at + 12])[0]
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


def ike(packet):
    """The IKE message in an Ethernet frame with IPv4 and UDP, from its header on, or None."""
    if packet[12:14] != b"\x08\x00" or len(packet) < 34 or packet[23] != 17:
        return None
    # Not the first piece of a datagram that IP has fragmented.
    if struct.unpack(">H", packet[20:22])[0] & 0x1FFF:
        return None
    udp = packet[14 + 4 * (packet[14] & 15) :]
    port = struct.unpack(">H", udp[2:4])[0] if len(udp) >= 8 else 0
    if port == 4500 and udp[8:12] == bytes(4):
        return udp[12:]
    return udp[8:] if port == 500 else None


def pieces(data, message_id):
    """For each time that the request was sent: the SPI, the octets of its first piece, and how many pieces it had."""
    for packet in packets(data):
        message = ike(packet)
        if message is None or len(message) < 36 or message[19] & (INITIATOR | RESPONSE) != INITIATOR:
            continue
        identity, length = struct.unpack(">II", message[20:28])
        number, total = struct.unpack(">HH", message[32:36]) if message[16] == ENCRYPTED_FRAGMENT else (1, 1)
        if identity == message_id and number == 1:
            yield message[:8], length, total


def main():
    path, message_id = sys.argv[1], int(sys.argv[2])
    first, smaller = {}, set()
    with open(path, "rb") as file:
        for spi, length, total in pieces(file.read(), message_id):
            before = first.setdefault(spi, (length, total))
            if length < before[0] and total >= before[1]:
                smaller.add(spi)
            elif (length, total) == before and spi in smaller:
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
