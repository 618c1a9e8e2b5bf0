"""The API as it really runs: its own processes, its front, a database, a stand-in Telegram."""

import json
import socket
from dataclasses import dataclass, field

from support.builders import Gateway
from support.processes import Process
from support.raw_http import RawClient, Response, request
from support.sandbox import Sandbox
from support.secrets import Secrets


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class RunningApi:
    """A started `telegrammer-api`; ``key`` is a caller's, ``answers`` the bodies so far."""

    process: Process
    address: tuple[str, int]
    gateway: Gateway
    sandbox: Sandbox
    secrets: Secrets
    key: str = ""
    answers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.secrets.wrote("the API's answers", lambda: "\n".join(self.answers))

    def new_key(self, name: str) -> str:
        return self.secrets.key(self.gateway.key(name)[1])

    def client(self) -> RawClient:
        return RawClient(self.address)

    def headers(self, key: str | None = None) -> list[str]:
        """Return the header lines that a well-behaved caller sends with JSON."""
        return [f"Authorization: Bearer {key or self.key}", "Content-Type: application/json"]

    def call(
        self, method: str, target: str, body: object = None, *, key: str | None = None
    ) -> Response:
        """Make one request on a connection of its own, with a key; ``body`` becomes JSON."""
        raw = None if body is None else json.dumps(body).encode()
        return self.raw(request(target, method, *self.headers(key), body=raw))

    def raw(self, data: bytes) -> Response:
        """Send these bytes on a connection of their own; return the first response."""
        with self.client() as client:
            client.send(data)
            response = client.read_response(to_head=data.startswith(b"HEAD "))
        return self.checked(response)

    def checked(self, response: Response) -> Response:
        """Check what holds for every response, and return it."""
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-request-id"]
        if response.body and response.status >= 400 and b'"status"' not in response.body:
            error = response.json()["error"]
            assert response.headers["content-type"] == "application/json"
            assert response.json() == {"ok": False, "error": error}
            assert error.keys() <= {"code", "message", "field", "migrate_to_chat_id"}
            assert error["message"]
        self.answers.append(response.body.decode())
        return response


def outcome(response: Response) -> tuple[int, str]:
    """Return an error's status and code."""
    return response.status, response.code
