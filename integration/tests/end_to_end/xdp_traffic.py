#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Traffic for the tests of the XDP filter.

xdp_traffic.py flood IFACE FILE      sends frames as they are; FILE has lines "COUNT HEX"
xdp_traffic.py send ADDRESS PORT N   sends N datagrams with a number each from an ordinary socket
xdp_traffic.py receive PORT          counts such datagrams until it reads a line

Senders send again what the interface had no room for, so that what they print is what was sent.
"""

import errno
import socket
import sys
import threading
import time


def sent(send):
    while True:
        try:
            return send()
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            time.sleep(0.0001)


def flood(interface, path):
    with open(path) as file:
        frames = [(int(count), bytes.fromhex(frame)) for count, frame in map(str.split, file)]
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.bind((interface, 0))
    total = 0
    left = [[count, frame] for count, frame in frames]
    # In turn, so that every kind of frame comes at all times.
    while left:
        for entry in left:
            sent(lambda: out.send(entry[1]))
            entry[0] -= 1
            total += 1
        left = [entry for entry in left if entry[0] > 0]
    print(total)


def send(address, port, number):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # Without it the kernel does not report that there was no room.
    out.setsockopt(socket.IPPROTO_IP, 11, 1)
    out.connect((address, int(port)))
    for sequence in range(int(number)):
        sent(lambda: out.send(sequence.to_bytes(8, "big") + bytes(10)))
        if sequence % 50 == 0:
            time.sleep(0.001)
    print(int(number))


def receive(port):
    inbound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # SO_RCVBUFFORCE: more than the limit of the system.
    inbound.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
    inbound.bind(("0.0.0.0", int(port)))
    inbound.settimeout(0.05)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    print("ready", flush=True)
    seen, received = set(), 0
    while True:
        over = ended.is_set()
        try:
            datagram = inbound.recv(2048)
        except TimeoutError:
            if over:
                break
            continue
        received += 1
        seen.add(datagram[:8])
    print(received, len(seen))


{"flood": flood, "send": send, "receive": receive}[sys.argv[1]](*sys.argv[2:])
