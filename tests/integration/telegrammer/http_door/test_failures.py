"""Every failure has a name, and shows nothing else."""

import gzip
import logging
import socket

import pytest

from support.doors import drips_body, fails, post, shown, silent
from support.peers import Connection, Peer, answering, response
from support.running_api import free_port
from telegrammer.errors import BrokenResponse, HttpError, Unreachable
from telegrammer.http import Door, Limits

TOKEN = "123456789:AAF-secret_token_of_a_bot_0123456789"
PATH = f"/bot{TOKEN}/getUpdates"

TWICE = gzip.compress(gzip.compress(b"{}"))

# What breaks


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (b"", Unreachable, "connection_closed"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
            BrokenResponse,
            "connection_closed",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX", BrokenResponse, "connection_closed"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
            BrokenResponse,
            "connection_closed",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
            BrokenResponse,
            "connection_closed",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nabc",
            BrokenResponse,
            "bad_response",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", BrokenResponse, "bad_response"),
        (b"HTTP/1.1 abc OK\r\n\r\n", BrokenResponse, "bad_response"),
        (b"HTTP/2.0 200 OK\r\n\r\n", BrokenResponse, "bad_response"),
        (b"HTTP/1.1 200 " + b"x" * 70_000, BrokenResponse, "bad_response"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 101 + b"\r\n", BrokenResponse, "bad_response"),
        (response(b"plain", "Content-Encoding: gzip"), BrokenResponse, "bad_response"),
        (response(TWICE, "Content-Encoding: gzip, gzip"), BrokenResponse, "bad_response"),
        (response(TWICE, *["Content-Encoding: gzip"] * 2), BrokenResponse, "bad_response"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab",
            BrokenResponse,
            "bad_response",
        ),
    ],
)
def test_a_broken_response_is_named(
    door: Door, answer: bytes, error: type[HttpError], reason: str
) -> None:
    def serve(connection: Connection) -> None:
        connection.read_request()
        connection.send(answer)

    with Peer(serve) as peer, fails(error, reason):
        post(door, peer.url())


def test_a_reset_is_a_closed_connection(door: Door) -> None:
    def serve(connection: Connection) -> None:
        connection.read(1)
        linger = b"\1\0\0\0\0\0\0\0"
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    with Peer(serve) as peer, fails(Unreachable, "connection_closed"):
        post(door, peer.url())


def test_a_refused_connection_is_named(door: Door) -> None:
    with fails(Unreachable, "connect_failed"):
        post(door, f"http://127.0.0.1:{free_port()}/")


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")]
)
def test_an_unknown_name_is_named(
    door: Door, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with fails(Unreachable, "dns_failed"):
        post(door, "http://unknown.test/")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hidden@127.0.0.1/",
        "http://hidden@127.0.0.1/",
        "ftp://127.0.0.1/hidden",
        "hidden",
        "http:///hidden",
        "http://127.0.0.1:0/hidden",
        "http://127.0.0.1/hidden space",
        "http://127.0.0.1/hidden\r\nX: y",
        "http://bücher.test/hidden",
    ],
)
def test_a_url_that_is_not_plain_is_refused_and_not_shown(door: Door, url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        post(door, url)
    assert "hidden" not in shown(caught.value)


# The token


def test_no_error_and_no_log_shows_the_url(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """A Bot API URL holds the token."""
    caplog.set_level(logging.DEBUG)
    serves = [
        silent,
        drips_body,
        lambda connection: None,
        answering(response(b"x" * 11)),
        answering(b"nonsense\r\n\r\n"),
        answering(response(b"plain", "Content-Encoding: gzip")),
    ]
    errors = []
    for serve in serves:
        with Peer(serve) as peer:
            errors.append(failure(door, peer.url(PATH)))
    for host in (f"http://127.0.0.1:{free_port()}", f"https://127.0.0.1:{free_port()}"):
        errors.append(failure(door, host + PATH))
    errors.append(failure(door, f"http://{'x' * 70}.test{PATH}"))

    for each in errors:
        assert (each.__cause__, each.__context__) == (None, None)
    assert TOKEN not in "".join(map(shown, errors)) + caplog.text


def failure(door: Door, url: str) -> HttpError:
    with pytest.raises(HttpError) as caught:
        post(door, url, Limits(connect=0.3, total=0.3, size=10))
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [
        response(b"x", "Location: http://[", status="302 Found"),
        b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
def test_no_log_shows_the_url_of_a_strange_response(
    door: Door, caplog: pytest.LogCaptureFixture, answer: bytes
) -> None:
    """urllib3 warns of such responses with their URL."""
    caplog.set_level(logging.DEBUG)

    def serve(connection: Connection) -> None:
        connection.read_request()
        connection.send(answer)

    with Peer(serve) as peer:
        post(door, peer.url(PATH))
    assert TOKEN not in caplog.text
