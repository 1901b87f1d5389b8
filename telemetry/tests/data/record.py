#!/usr/bin/env python3
"""Records telemetry replies of a running DPDK app, one JSON line per message.

usage: record.py SOCKET COMMAND... > FILE

The first line is the banner, with a null request. Replies are kept as strings, byte for byte, so
that a test sees what a client sees. Commands are the caller's choice: DPDK before 26.07 has handlers
that crash on unknown ids, so ask only for ids that the list commands returned.
"""

import json
import socket
import sys

REPLY_BYTES = 1 << 20


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as app:
        app.settimeout(2)
        app.connect(sys.argv[1])
        record(None, app.recv(REPLY_BYTES))
        for command in sys.argv[2:]:
            app.send(command.encode())
            record(command, app.recv(REPLY_BYTES))


def record(request, reply):
    print(json.dumps({"request": request, "reply": reply.decode("latin-1")}))


if __name__ == "__main__":
    main()
