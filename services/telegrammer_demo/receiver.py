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
        return str(json.loads(self.body).get("text", "(no text)"))

    @property
    def writer(self) -> str:
        return str(json.loads(self.body).get("from", {}).get("first_name", "somebody"))


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
