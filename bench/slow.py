"""``python -m bench.slow PORT AMOUNT``: clients that never finish their request.

Each sends a byte of a head every second. One that is cut off comes again.
"""

import contextlib
import socket
import sys
import time
from typing import Final

HEAD: Final = b"POST /send HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " + b"x" * 4000
BYTE_PERIOD: Final = 1.0  # seconds


class Client:
    """One connection after another, a byte at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sent = 0
        self._socket = socket.create_connection(("127.0.0.1", port), 5)

    def step(self) -> None:
        """Send the next byte, on a new connection if the last one was cut."""
        try:
            self._socket.send(HEAD[self._sent : self._sent + 1])
            self._sent += 1
        except OSError:
            self._socket.close()
            self._sent = 0
            with contextlib.suppress(OSError):
                self._socket = socket.create_connection(("127.0.0.1", self._port), 5)


def main(port: int, amount: int) -> None:
    """Keep ``amount`` clients at it until the process is ended."""
    clients = [Client(port) for _ in range(amount)]
    print("connected", flush=True)
    while True:
        for client in clients:
            client.step()
            time.sleep(BYTE_PERIOD / amount)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
