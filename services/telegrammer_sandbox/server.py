"""Sockets: requests in, answers and faults out.

What the official server's HTTP reader cannot parse, and bodies over 1 MiB, get a bare
status line and a closed connection, as from that server.
"""

import http.client
import re
import socket
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from telegrammer.clock import Clock, SystemClock
from telegrammer.settings import is_loopback
from telegrammer_sandbox import bot_api, control, page
from telegrammer_sandbox.bot_api import Answer, Refusal
from telegrammer_sandbox.faults import Fault
from telegrammer_sandbox.ledger import Call
from telegrammer_sandbox.parameters import Unreadable, read
from telegrammer_sandbox.state import FIRST_UPDATE_ID, Bot, State

LARGEST_CALL: Final = 1024 * 1024
LARGEST_CONTROL: Final = 32 * 1024 * 1024
MOST_CONNECTIONS: Final = 512
LONGEST_HOLD: Final = 600.0

_IDLE: Final = 75.0
_JSON: Final = {"Content-Type": "application/json"}


class Server:
    """A running sandbox: ``with Server(Bot(...)) as server: ... server.url ...``.

    Raises ``OSError`` when the port cannot be bound, ``ValueError`` for a host that is
    not this machine itself. Closing ends every connection and joins every thread.
    """

    def __init__(
        self,
        bot: Bot,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        first_update_id: int = FIRST_UPDATE_ID,
    ) -> None:
        if not is_loopback(host):
            raise ValueError(f"{host} is not a loopback address")
        self.state = State(bot, clock or SystemClock(), first_update_id)
        self._http = _HttpServer((host, port), self.state)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        name = host.decode() if isinstance(host, bytes | bytearray) else host
        return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"

    def close(self) -> None:
        with self.state.changed:
            self.state.close()
        self._http.shutdown()
        self._thread.join()
        self._http.cut_connections()
        self._http.server_close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], state: State) -> None:
        self.state = state
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look up the host's name, which can take seconds.
        socketserver.TCPServer.server_bind(self)

    def verify_request(self, request: object, client_address: object) -> bool:
        with self._lock:
            return len(self._connections) < MOST_CONNECTIONS

    def process_request(self, request: object, client_address: object) -> None:
        with self._lock:
            self._connections.add(cast("socket.socket", request))
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def shutdown_request(self, request: object) -> None:
        with self._lock:
            self._connections.discard(cast("socket.socket", request))
        super().shutdown_request(request)  # type: ignore[arg-type]

    def cut_connections(self) -> None:
        """Wake every thread that reads from or writes to a client."""
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # the client was faster

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing about a client that went away; anything else is a defect of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _IDLE

    @property
    def _state(self) -> State:
        return cast("_HttpServer", self.server).state

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def do_DELETE(self) -> None:
        self._respond()

    def log_message(self, format: str, *args: object) -> None:
        """Write no log: the path of a call holds the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self.close_connection = True
        self._send(Answer(code, b""), {})

    def _respond(self) -> None:
        path, _, query = self.path.partition("?")
        body = self._read_body(LARGEST_CONTROL if path.startswith("/sandbox/") else LARGEST_CALL)
        if body is None:
            return
        if not self._is_from_here() or (path != "/" and self._is_linked()):
            self.send_error(403)
        elif path.startswith("/bot"):
            self._call(path.removeprefix("/bot"), query, body)
        elif path.startswith("/sandbox/"):
            status, answer = control.operate(self._state, self.command, path, query, body)
            self._send(Answer(status, answer), {**_JSON, **page.HEADERS})
        elif path == "/" and self.command == "GET":
            self._send(Answer(200, page.HTML), {**page.HTML_HEADERS, **page.HEADERS})
        else:
            self._send(Refusal(404, "Not Found").answer(), _JSON)

    def _read_body(self, limit: int) -> bytes | None:
        """Return the body, or None after a refusal or when the client went away."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers:
            self.send_error(501)
        elif not re.fullmatch("[0-9]{1,18}", length, re.ASCII):
            self.send_error(400)
        elif int(length) > limit:
            self.send_error(413)
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            self.close_connection = True
        return None

    def _is_from_here(self) -> bool:
        """Tell whether no foreign page sent the request, nor one under a foreign name."""
        host = self.headers.get("Host", "")
        try:
            name = urlsplit("//" + host).hostname or ""
        except ValueError:
            return False
        return is_loopback(name) and self.headers.get("Origin") in (None, f"http://{host}")

    def _is_linked(self) -> bool:
        """Tell whether a foreign page's link or image asks, which has no Origin."""
        return self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")

    def _call(self, path: str, query: str, body: bytes) -> None:
        token, _, method = path.partition("/")
        try:
            parameters = read(query, self.headers.get("Content-Type", ""), body)
        except Unreadable:
            self.send_error(400)
            return
        state = self._state
        with state.changed:
            call = state.ledger.begin(method, parameters, state.clock.now())
            state.changed.notify_all()
            try:
                bot_api.check_token(state, unquote(token))
                fault = state.faults.take(method)
                answer = None
            except Refusal as refusal:
                fault, answer = None, refusal.answer()
        if answer is None:
            answer = self._answer(call, fault)
        self._deliver(call, answer, fault)

    def _answer(self, call: Call, fault: Fault | None) -> Answer:
        if fault is None or fault.runs:
            answer = bot_api.carry_out(self._state, call)
        if fault is not None and fault.literal:
            return Answer(fault.status or 200, fault.literal_body(), fault.headers)
        return answer

    def _deliver(self, call: Call, answer: Answer, fault: Fault | None) -> None:
        """Send the answer, as well as the fault lets it, and note how that went."""
        whole = False
        call.status = answer.status
        try:
            whole = (
                self._deliver_faulty(call, answer, fault) if fault else self._send(answer, _JSON)
            )
        finally:
            state = self._state
            with state.changed:
                call.state = "answered" if whole else "broken"
                call.ended_at = state.clock.now()
                state.changed.notify_all()

    def _deliver_faulty(self, call: Call, answer: Answer, fault: Fault) -> bool:
        self._linger(call, fault)
        headers = {**_JSON, **fault.headers}
        head = self._head(answer, headers)
        # Set after the head was made: a fault does not announce that it will close.
        if fault.ends_connection or headers.get("Connection") == "close":
            self.close_connection = True
        if fault.close:
            return False
        body = answer.body if fault.cut is None else answer.body[: fault.cut]
        if fault.drip:
            self._write(head)
            for at in range(len(body)):
                self._write(body[at : at + 1])
                self._pause(fault.drip)
        else:
            self._write(head + body)
        return len(body) == len(answer.body)

    def _linger(self, call: Call, fault: Fault) -> None:
        state = self._state
        if fault.hold:
            with state.changed:
                seen = state.epoch, state.releases
                call.state = "held"
                state.changed.notify_all()
                state.wait(lambda: (state.epoch, state.releases) != seen, LONGEST_HOLD)
                call.state = "running"
        self._pause(fault.delay)

    def _pause(self, seconds: float) -> None:
        state = self._state
        with state.changed:
            state.wait(lambda: False, seconds)

    def _send(self, answer: Answer, headers: dict[str, str]) -> bool:
        self._write(self._head(answer, headers) + answer.body)
        return True

    def _head(self, answer: Answer, headers: dict[str, str]) -> bytes:
        shown = {
            "Content-Length": str(len(answer.body)),
            "Connection": "close" if self.close_connection else "keep-alive",
            **headers,
            **answer.headers,
        }
        reason = http.client.responses.get(answer.status, "Unknown")
        lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{n}: {v}" for n, v in shown.items())]
        return "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1")

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
