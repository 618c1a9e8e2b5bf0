"""What the door sends, what it gives back, and what it never does."""

import contextlib
import gzip
import itertools
import socket
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import urllib3

from support.doors import GENEROUS, fails, post
from support.peers import Connection, Peer, answering, response
from support.running_api import free_port
from telegrammer.errors import BrokenResponse, Unreachable
from telegrammer.http import Door, Limits

# What is sent, and what comes back


def test_a_request_goes_out_as_given_and_the_response_comes_back_whole(door: Door) -> None:
    """Method, target, host and body are the caller's; nothing is added but who we are."""
    seen: list[bytes] = []

    def serve(connection: Connection) -> None:
        seen.append(connection.read_request())
        connection.send(response(b"teapot", "X-Kind: Tea", status="418 I'm a teapot"))

    with Peer(serve) as peer:
        answer = door.exchange(
            "POST", peer.url("/a%2Fb?c=d"), GENEROUS, b'{"a":1}', {"Content-Type": "text/x"}
        )

    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /a%2Fb?c=d HTTP/1.1"
    assert sorted(lines[1:]) == [
        "Accept-Encoding: identity",
        "Content-Length: 7",
        "Content-Type: text/x",
        f"Host: 127.0.0.1:{peer.port}",
        "User-Agent: Telegrammer/1.0.0",
    ]
    assert body == b'{"a":1}'
    assert (answer.status, answer.body) == (418, b"teapot")
    assert answer.headers.get("x-KIND") == "Tea"


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_a_compressed_body_is_unpacked_though_not_asked_for(
    door: Door, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    with Peer(answering(response(pack(b"x" * 5000), f"Content-Encoding: {encoding}"))) as peer:
        assert post(door, peer.url()) == b"x" * 5000


def test_a_chunked_body_is_put_together(door: Door) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with Peer(answering(head + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")) as peer:
        assert [post(door, peer.url()), post(door, peer.url())] == [b"abcde", b"abcde"]
        assert peer.accepted == 1


@pytest.mark.parametrize("together", [True, False], ids=["in one piece", "apart"])
@pytest.mark.parametrize("interim", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
def test_an_interim_answer_is_no_answer(door: Door, interim: bytes, together: bool) -> None:
    """Taken for one, each later answer would go to the request after its own."""
    before = b"HTTP/1.1 %s\r\nLink: </x>\r\n\r\n" % interim
    may_end = threading.Event()

    def serve(connection: Connection) -> None:
        for number in itertools.count():
            if not connection.read_request():
                return
            answer = response(b"%d" % number)
            connection.send(before + before + answer if together else before)
            if not together:
                may_end.wait(0.05)  # nothing sets it: the client has read the first by then
                connection.send(before + answer)

    with Peer(serve) as peer:
        assert [post(door, peer.url()) for _ in range(3)] == [b"0", b"1", b"2"]
        assert peer.accepted == 1


def test_an_answer_that_changes_the_protocol_ends_the_exchange(door: Door) -> None:
    with (
        Peer(answering(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")) as peer,
        fails(BrokenResponse, "bad_response"),
    ):
        post(door, peer.url())


def test_a_response_says_nothing_of_its_content_when_shown(door: Door) -> None:
    with Peer(answering(response(b"payload", "X-Secret: hidden"))) as peer:
        shown = repr(door.exchange("GET", peer.url(), GENEROUS))
    assert shown == "Response(status=200)"


# What is not done


def test_the_environment_is_not_trusted(
    door: Door, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Proxy variables and .netrc change nothing."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password something\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    seen: list[bytes] = []

    def serve(connection: Connection) -> None:
        seen.append(connection.read_request())
        connection.send(response(b"direct"))

    with Peer(serve) as peer:
        assert post(door, peer.url()) == b"direct"

    assert b"authorization" not in seen[0].lower()


def test_cookies_are_not_kept(door: Door) -> None:
    seen: list[bytes] = []

    def serve(connection: Connection) -> None:
        while request := connection.read_request():
            seen.append(request)
            connection.send(response(b"", "Set-Cookie: a=b; Path=/"))

    with Peer(serve) as peer:
        post(door, peer.url())
        post(door, peer.url())

    assert len(seen) == 2
    assert b"cookie" not in seen[1].lower()


def test_redirects_are_not_followed(door: Door) -> None:
    with Peer(answering(response(b"moved", "Location: /there", status="307 Go"))) as peer:
        answer = door.exchange("POST", peer.url(), GENEROUS, b"{}")
        assert (answer.status, answer.body, peer.accepted) == (307, b"moved", 1)


def test_a_failed_request_is_not_repeated(door: Door) -> None:
    """A POST that may have arrived is not ours to send again."""
    seen: list[bytes] = []

    def serve(connection: Connection) -> None:
        seen.append(connection.read_request())
        connection.send(response(b"first"))
        seen.append(connection.read_request())

    with Peer(serve) as peer:
        post(door, peer.url())
        with fails(Unreachable, "connection_closed"):
            post(door, peer.url())
    assert len(seen) == 2


# The kept connection


class SettableClock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.mark.parametrize(("idle", "connections"), [(9.0, 1), (10.5, 2)])
def test_a_connection_is_kept_for_ten_seconds(idle: float, connections: int) -> None:
    clock = SettableClock()
    with (
        Peer(answering(response(b"ok"))) as peer,
        contextlib.closing(Door(clock=clock)) as door,
    ):
        post(door, peer.url())
        clock.ahead += idle
        post(door, peer.url())
        assert peer.accepted == connections


def test_drop_closes_the_connection(door: Door) -> None:
    with Peer(answering(response(b"ok"))) as peer:
        for _ in range(2):
            post(door, peer.url())
            door.drop()
        assert peer.accepted == 2


@pytest.mark.parametrize(
    "answer",
    [
        response(b"ok", "Connection: close"),
        response(b"ok").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["close", "HTTP/1.0"],
)
def test_a_connection_that_the_server_gives_up_is_not_used_again(door: Door, answer: bytes) -> None:
    """Even when the server then forgets to close it."""
    with Peer(answering(answer)) as peer:
        assert [post(door, peer.url()) for _ in range(3)] == [b"ok"] * 3
        assert peer.accepted == 3


def test_bytes_without_a_request_are_not_taken_for_an_answer(door: Door) -> None:
    strange = response(b"ok") + response(b"strange")
    with Peer(answering(strange)) as peer:
        assert [post(door, peer.url()) for _ in range(3)] == [b"ok"] * 3


def test_an_unforeseen_error_leaves_no_half_read_connection(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> bytes:
        raise RuntimeError("unforeseen")

    with Peer(answering(response(b"1"), response(b"2"), response(b"3"))) as peer:
        post(door, peer.url())
        with monkeypatch.context() as patch:
            patch.setattr(urllib3.HTTPResponse, "read", read)
            with pytest.raises(RuntimeError):
                post(door, peer.url())

        assert post(door, peer.url()) == b"1"
        assert peer.accepted == 2


def test_a_connection_that_the_server_closed_is_replaced(door: Door) -> None:
    gone = threading.Event()

    def serve(connection: Connection) -> None:
        connection.read_request()
        connection.send(response(b"ok"))
        connection.socket.shutdown(socket.SHUT_RDWR)
        gone.set()

    with Peer(serve) as peer:
        for _ in range(3):
            assert post(door, peer.url()) == b"ok"
            assert gone.wait(5)
            gone.clear()
        assert peer.accepted == 3


def test_a_connection_is_not_used_again_after_an_error(door: Door) -> None:
    """The rest of a given-up response is not the answer to the next request."""
    big = response(b"y" * 50_000)
    with Peer(answering(big, response(b"ok"))) as peer:
        with pytest.raises(BrokenResponse):
            post(door, peer.url(), Limits(connect=5, total=5, size=10))
        assert post(door, peer.url())[:1] == b"y"
        assert peer.accepted == 2


def test_another_server_gets_a_connection_of_its_own(door: Door) -> None:
    with Peer(answering(response(b"one"))) as one, Peer(answering(response(b"two"))) as two:
        assert [post(door, peer.url()) for peer in (one, two, one)] == [b"one", b"two", b"one"]
