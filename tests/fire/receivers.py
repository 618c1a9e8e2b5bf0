"""Everything that a receiver can do to a callback, each by its name."""

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from support.receiver import Reply, drip, endless, silent

CALLBACK_TIMEOUT: Final = 2.0
"""The gateway's total time for a callback in the campaign, in seconds."""


class Verdict(Enum):
    """What the gateway must make of an answer, by its contract."""

    ACCEPTED = "accepted"
    RETRY = "retry"
    REFUSED = "refused"


@dataclass(frozen=True)
class Behaviour:
    """An answer and what it means."""

    name: str
    verdict: Verdict
    reply: Callable[[], Reply]


def _status(status: int, **headers: str) -> Callable[[], Reply]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: Reply(status, named, b"whatever")


def _bytes(data: bytes) -> Callable[[], Reply]:
    def send(connection: socket.socket, _closing: threading.Event) -> None:
        connection.sendall(data)

    return lambda: Reply(raw=send)


def _late(seconds: float) -> Callable[[], Reply]:
    def send(connection: socket.socket, closing: threading.Event) -> None:
        if not closing.wait(seconds):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    return lambda: Reply(raw=send)


def _reset(connection: socket.socket, _closing: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


_OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"

GOOD: Final = Behaviour("good", Verdict.ACCEPTED, Reply)
THOUGHTFUL: Final = Behaviour("thoughtful", Verdict.ACCEPTED, _late(0.15))
"""Whatever happens to the dispatcher, it is likely to happen during such a callback."""

ODD_BUT_GOOD: Final = (
    Behaviour("201", Verdict.ACCEPTED, _status(201)),
    Behaviour("204", Verdict.ACCEPTED, _bytes(b"HTTP/1.1 204 No Content\r\n\r\n")),
    Behaviour("no length", Verdict.ACCEPTED, _bytes(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")),
    Behaviour("slow", Verdict.ACCEPTED, _late(0.3)),
)

TO_RETRY: Final = (
    Behaviour("500", Verdict.RETRY, _status(500)),
    Behaviour("503 with a date", Verdict.RETRY, _status(503, Retry_After="Fri, 01 Jan 1999")),
    Behaviour("429", Verdict.RETRY, _status(429, Retry_After="1")),
    Behaviour("408", Verdict.RETRY, _status(408)),
    Behaviour("silent", Verdict.RETRY, lambda: Reply(raw=silent)),
    Behaviour("too late", Verdict.RETRY, _late(CALLBACK_TIMEOUT + 0.5)),
    Behaviour("closed", Verdict.RETRY, _bytes(b"")),
    Behaviour("reset", Verdict.RETRY, lambda: Reply(raw=_reset)),
    Behaviour("broken off", Verdict.RETRY, _bytes(_OK + b"12345")),
    Behaviour("not HTTP", Verdict.RETRY, _bytes(b"SSH-2.0-nobody\r\n")),
    Behaviour("dripping head", Verdict.RETRY, lambda: Reply(raw=drip(_OK * 99))),
    Behaviour("dripping body", Verdict.RETRY, lambda: Reply(raw=_after(_OK, drip(b"1" * 9, 1)))),
    Behaviour(
        "endless body", Verdict.RETRY, lambda: Reply(raw=endless(b"HTTP/1.1 200 OK\r\n\r\n"))
    ),
    Behaviour("endless head", Verdict.RETRY, lambda: Reply(raw=endless(b"HTTP/1.1 200 OK\r\nA: "))),
)

TO_REFUSE: Final = (
    Behaviour("404", Verdict.REFUSED, _status(404)),
    Behaviour("410", Verdict.REFUSED, _status(410)),
    Behaviour("302", Verdict.REFUSED, _status(302, Location="http://127.0.0.1:1/")),
    Behaviour("304", Verdict.REFUSED, _bytes(b"HTTP/1.1 304 Not Modified\r\n\r\n")),
)

ALL: Final = (*ODD_BUT_GOOD, *TO_RETRY, *TO_REFUSE)


def _after(
    head: bytes, rest: Callable[[socket.socket, threading.Event], None]
) -> Callable[[socket.socket, threading.Event], None]:
    def send(connection: socket.socket, closing: threading.Event) -> None:
        connection.sendall(head)
        rest(connection, closing)

    return send
