"""A Bot API for measurements: an update goes out when it is told to, with its time."""

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.ours import BOT_ID, payload

_LONGEST_POLL = 60.0


class BotApi(ThreadingHTTPServer):
    """Answers getMe at once, and a getUpdates when ``send`` is called."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.texts: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.sent_at: list[int] = []
        self.polls = 0
        self._next_id = 1

    @classmethod
    @contextlib.contextmanager
    def start(cls) -> Iterator["BotApi"]:
        with cls() as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield server
            finally:
                server.texts.put(b"")  # ends a poll that is held
                server.shutdown()
                thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def send(self, chat_id: int) -> None:
        """Let the poll that is held, or the next one, return a message of that chat."""
        message = json.loads(payload(chat_id, self._next_id))
        update = {"update_id": self._next_id, "message": message}
        self._next_id += 1
        self.texts.put(json.dumps({"ok": True, "result": [update]}).encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: BotApi

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path.endswith("/getUpdates"):
            self.server.polls += 1
            self._answer(self._updates(float(given.get("timeout", 0))))
        else:
            me = {"id": BOT_ID, "is_bot": True, "first_name": "Bench", "username": "bench_bot"}
            self._answer(json.dumps({"ok": True, "result": me}).encode())

    def _updates(self, timeout: float) -> bytes:
        with contextlib.suppress(queue.Empty):
            return self.server.texts.get(timeout=min(timeout, _LONGEST_POLL))
        return b'{"ok":true,"result":[]}'

    def _answer(self, body: bytes) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        if b'"update_id"' in body:
            self.server.sent_at.append(time.monotonic_ns())
        with contextlib.suppress(OSError):
            self.wfile.write(f"{head}{len(body)}\r\n\r\n".encode() + body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
