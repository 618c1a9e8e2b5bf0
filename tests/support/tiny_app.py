"""A small WSGI application that does what the front's tests ask of it.

It stands where the product's application stands: the paths are the behaviours.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from wsgiref.types import StartResponse, WSGIEnvironment

from telegrammer.errors import Failure
from telegrammer_api import front


@contextlib.contextmanager
def opened() -> Iterator[front.Application]:
    """Yield the application; tell on standard error when it is opened and closed."""
    log("opened")
    yield application
    log("closed")


@contextlib.contextmanager
def without_pidfd() -> Iterator[front.Application]:
    """Forbid the worker what an old container's system call filter forbids."""

    def refuse(_pid: int) -> int:
        raise PermissionError

    os.pidfd_open = refuse  # type: ignore[assignment]
    with opened() as found:
        yield found


@contextlib.contextmanager
def slow() -> Iterator[front.Application]:
    """Take half a second to open."""
    time.sleep(0.5)
    with opened() as found:
        yield found


@contextlib.contextmanager
def broken() -> Iterator[front.Application]:
    """Fail as an application that cannot be loaded does."""
    raise RuntimeError("this application cannot be loaded")
    yield application  # type: ignore[unreachable]


@contextlib.contextmanager
def refused() -> Iterator[front.Application]:
    """Fail as our own checks do: with a reason that an operator can act on."""
    raise Failure("the folder is read-only")
    yield application  # type: ignore[unreachable]


@contextlib.contextmanager
def exits() -> Iterator[front.Application]:
    """End the process instead of yielding an application."""
    raise SystemExit(5)
    yield application  # type: ignore[unreachable]


def log(text: str) -> None:
    os.write(2, f"tiny_app {text} pid={os.getpid()}\n".encode())


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Do what the path's first segment says, with its second as the argument."""
    name, _, argument = environ["PATH_INFO"].removeprefix("/").partition("/")
    environ[front.ROUTE] = f"/{name}"
    environ[front.KEY_ID] = 7
    match name:
        case "bad-header":
            start_response("200 OK", [("X-Bad", "a\nb")])
            return [b""]
        case "no-content":
            start_response("204 No Content", [])
            return []
        case "refuse":
            status, body = int(argument), b'{"ok":false}'
        case _:
            status, body = 200, _body(name, argument, environ)
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response(f"{status} Whatever", headers)
    return [body]


def _body(name: str, argument: str, environ: WSGIEnvironment) -> bytes:
    match name:
        case "sleep":
            time.sleep(float(argument))
        case "held":
            _wait_for_lock(f"/{argument}")
        case "body":
            return _whole_body(environ)
        case "forgiving":
            return _forgiven(environ)
        case "part":
            return bytes(environ["wsgi.input"].read(1))
        case "big":
            return b"x" * int(argument)
        case "fail":
            raise ValueError("the application failed")
        case "exit":
            raise SystemExit(7)
    return json.dumps(_seen(environ)).encode()


def _wait_for_lock(path: str) -> None:
    """Wait until the test lets go of the file, or has ended."""
    log("held")
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def _whole_body(environ: WSGIEnvironment) -> bytes:
    body = b""
    while piece := environ["wsgi.input"].read(16384):
        body += piece
    return body


def _forgiven(environ: WSGIEnvironment) -> bytes:
    """Read on after the body failed, as no application should."""
    try:
        return _whole_body(environ)
    except front.BodyError:
        return b"forgiven" + _whole_body(environ)


def _seen(environ: WSGIEnvironment) -> dict[str, object]:
    texts = {k: v for k, v in environ.items() if isinstance(v, str | int | bool)}
    return {**texts, "pid": os.getpid()}
