"""The application without its front: Falcon's own test client, a real database."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import falcon.testing

from support.builders import NOW
from support.fake_clock import FakeClock
from telegrammer.store.connection import Database
from telegrammer.store.keys import Keys
from telegrammer_api.app import App
from telegrammer_api.front import AUTHORIZATIONS, REQUEST_ID
from telegrammer_api.pool import Pool

MAX_JOBS = 100


@dataclass
class FakeTelegram:
    """Notes what is sent, and answers as a test says."""

    answer: bytes | Exception = b'{"ok":true,"result":{"message_id":42}}'
    sent: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, chat_id: int, text: str) -> bytes:
        self.sent.append((chat_id, text))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Api:
    """The application and what stands around it."""

    path: Path
    pool: Pool[Database]
    app: App
    key: str
    telegram: FakeTelegram
    clock: FakeClock

    def call(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        authorization: str | None = "",
        headers: dict[str, str] | None = None,
        environ: Mapping[str, object] | None = None,
    ) -> falcon.testing.Result:
        """Make a request, with the key unless said otherwise.

        ``body`` is bytes, or becomes JSON; ``environ`` has the last word. This is the
        environ as the front makes it; Falcon's own client cannot send every method.
        """
        if authorization == "":
            authorization = f"Bearer {self.key}"
        sent = {"Content-Type": "application/json", **(headers or {})}
        if authorization is not None:
            sent["Authorization"] = authorization
        path, _, query = target.partition("?")
        made = falcon.testing.create_environ(
            path, query, headers=sent, body=_raw(body), method="POST"
        )
        made |= {
            "REQUEST_METHOD": method,
            "RAW_URI": target,
            AUTHORIZATIONS: 0 if authorization is None else 1,
            REQUEST_ID: "abc",
            **(environ or {}),
        }
        started = falcon.testing.StartResponseMock()
        answer = list(self.app(made, started))
        return falcon.testing.Result(answer, started.status or "", started.headers or [])

    def add_key(self, name: str) -> str:
        with self.pool.borrow() as database:
            key = Keys(database).add(name, NOW)
        assert key is not None
        return key


def _raw(body: object) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def error_of(result: falcon.testing.Result) -> dict[str, str]:
    """Return the error's members, having checked the shape that every error has."""
    body = json.loads(result.content)
    assert result.headers["content-type"] == "application/json"
    assert result.headers["cache-control"] == "no-store"
    assert body.keys() == {"ok", "error"}
    assert body["ok"] is False
    error: dict[str, str] = body["error"]
    assert error.keys() <= {"code", "message", "field", "migrate_to_chat_id"}
    return error
