"""Fake apps of another user: telemetry sockets that listen, and answer as a test says.

usage: fake_apps.py ROOT UID silent NUMBER | ROOT UID live NAME | ROOT UID impostor NAME

silent listens on NUMBER sockets and never accepts, live answers every request with null, and impostor
does so in a directory that belongs to the user who starts it.
"""

import os
import resource
import signal
import socket
import sys

BANNER = b'{"version":"DPDK 22.11.11","pid":1,"max_output_len":16384}'


def bound(root, prefix, uid):
    directory = os.path.join(root, "dpdk", prefix)
    os.makedirs(directory, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(os.path.join(directory, "dpdk_telemetry.v2"))
    os.chown(directory, uid, uid)
    return listener


def answer(listener):
    while True:
        peer, _ = listener.accept()
        peer.send(BANNER)
        while request := peer.recv(2048):
            command = request.split(b",")[0].decode()
            peer.send(f'{{"{command}":null}}'.encode())


def main():
    root, uid, what, which = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    if what == "silent":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        listeners = [bound(root, f"fake{number:04}", uid) for number in range(int(which))]
    else:
        listeners = [bound(root, which, os.getuid() if what == "impostor" else uid)]
    # The kernel reports who has called listen().
    os.setgid(uid)
    os.setuid(uid)
    for listener in listeners:
        listener.listen(1)
    print("ready", flush=True)
    if what == "silent":
        signal.pause()
    answer(listeners[0])


main()
