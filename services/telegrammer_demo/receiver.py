"""The local program that messages are delivered to."""

import contextlib
import http.server
import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Arrival:
    """One callback as it arrived."""

    delivery_id: str
    body: bytes

    @property
    def text(self) -> str:
        return _shown(self._part("text") or "(no text)")

    @property
    def writer(self) -> str:
        writer = self._part("from")
        name = writer.get("first_name") if isinstance(writer, dict) else None
        return _shown(name or "somebody")

    def _part(self, name: str) -> object:
        """Return a member of the message; None of anything else: anybody here can write to us."""
        try:
            message: object = json.loads(self.body)
        except ValueError:
            return None
        return message.get(name) if isinstance(message, dict) else None


def _shown(value: object) -> str:
    """Return a text without what a terminal would take for a command."""
    return "".join(c if c.isprintable() else " " for c in str(value))


class Receiver:
    """Answers every callback with 200; ``arrivals`` has them in order."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/inbox"
        self.arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()


@contextlib.contextmanager
def listening() -> Iterator[Receiver]:
    """Yield a receiver on a free port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    receiver = Receiver(server.server_port)

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            delivery_id = self.headers["X-Telegrammer-Delivery-Id"]
            receiver.arrivals.put(Arrival(delivery_id, body))

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the story tells what arrived."""

    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever, args=(0.1,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
