"""So many slow peers as a process of their own, which shares no time with the honest caller.

``slow_peers.py PORT NUMBER DRIP`` reads from standard input what each sends at
first, and a line's end; then it drips DRIP, says "ready" once all are connected, and makes
each anew that was cut, until its input ends.
"""

import contextlib
import os
import select
import socket
import sys
import time

_PACE = 0.25  # seconds between two drops


def main() -> None:
    port, number, drip = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
    head = bytes.fromhex(os.read(0, 65536).decode())
    peers: set[socket.socket] = set()
    is_ready = False
    while not select.select([0], [], [], _PACE)[0]:
        while len(peers) < number:
            peers.add(_connected(port, head))
        if not is_ready:
            os.write(1, b"ready\n")
            is_ready = True
        cut = {peer for peer in peers if not _drip(peer, drip)}
        peers -= cut
        for peer in cut:
            peer.close()
    for peer in peers:
        peer.close()


def _connected(port: int, head: bytes) -> socket.socket:
    while True:
        with contextlib.suppress(OSError):
            peer = socket.create_connection(("127.0.0.1", port), timeout=5)
            peer.sendall(head)
            peer.setblocking(False)
            return peer
        time.sleep(_PACE)


def _drip(peer: socket.socket, drip: bytes) -> bool:
    """Send a little more; tell whether the other side still has the connection."""
    try:
        peer.send(drip)
        return peer.recv(65536) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


if __name__ == "__main__":
    main()
