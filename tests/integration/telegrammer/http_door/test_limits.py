"""Time, cut and size hold whatever a server does."""

import gzip
import threading

import pytest

from support.doors import (
    STALLING,
    SlowNames,
    dead_address,
    fails,
    never_reads,
    post,
    resolve_to,
    takes,
)
from support.peers import Connection, Peer, Serve, answering, response
from telegrammer.errors import BrokenResponse, Cut, HttpError, TimedOut, Unreachable
from telegrammer.http import Door, Limits

# The total time


@pytest.mark.parametrize("serve", STALLING, ids=lambda serve: serve.__name__)
def test_the_total_time_is_hard(door: Door, serve: Serve) -> None:
    """Whatever the server does, the exchange ends in time."""
    body = b"x" * 20_000_000 if serve is never_reads else b"{}"
    with Peer(serve) as peer, takes(0.4, 2), fails(TimedOut, "timeout"):
        post(door, peer.url(), Limits(connect=5, total=0.4, size=100_000), body)


@pytest.mark.parametrize(
    ("limits", "error", "reason"),
    [
        (Limits(connect=5, total=0.4, size=1000), TimedOut, "timeout"),
        (Limits(connect=0.4, total=5, size=1000), Unreachable, "tls_failed"),
    ],
)
@pytest.mark.parametrize("drip", [b"", b"\x16\x03\x03\x40\x00" + b"\x02" * 999])
def test_tls_without_an_answer_ends_in_time(
    door: Door, limits: Limits, error: type[HttpError], reason: str, drip: bytes
) -> None:
    def serve(connection: Connection) -> None:
        connection.drip(drip) if drip else connection.hold()

    with Peer(serve) as peer, takes(0.4, 2), fails(error, reason):
        post(door, peer.url(scheme="https"), limits)


def test_a_slow_name_ends_in_time_and_costs_one_thread(door: Door, slow_names: SlowNames) -> None:
    """The lookup cannot be stopped, so the next exchange waits for the same one."""
    for _ in range(3):
        with takes(0.2, 2), pytest.raises(TimedOut):
            post(door, "http://slow.test/", Limits(connect=5, total=0.2, size=1000))
    with takes(0.2, 2), fails(Unreachable, "dns_failed"):
        post(door, "http://slow.test/", Limits(connect=0.2, total=5, size=1000))

    assert slow_names.asked == 1


def test_what_a_slow_lookup_found_when_nobody_waited_is_not_used(
    door: Door, slow_names: SlowNames
) -> None:
    """It may be hours old by the next exchange."""
    with pytest.raises(TimedOut):
        post(door, "http://slow.test/", Limits(connect=5, total=0.2, size=1000))
    slow_names.let_go()
    with pytest.raises(Unreachable):
        post(door, "http://slow.test/", Limits(connect=5, total=5, size=1000))

    assert slow_names.asked == 2


@pytest.mark.parametrize(
    ("limits", "error", "reason"),
    [
        (Limits(connect=5, total=0.8, size=1000), TimedOut, "timeout"),
        (Limits(connect=0.8, total=5, size=1000), Unreachable, "connect_failed"),
    ],
)
def test_four_dead_addresses_take_the_time_to_connect_once(
    door: Door,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    error: type[HttpError],
    reason: str,
) -> None:
    with dead_address() as dead:
        resolve_to(monkeypatch, dead, dead, dead, dead)
        with takes(0.8, 2), fails(error, reason):
            post(door, "http://dead.test/", limits)


def test_a_dead_address_does_not_hide_a_live_one(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A black-holed IPv6 costs a quarter of a second, not the time to connect."""
    with dead_address() as dead, Peer(answering(response(b"alive"))) as peer:
        resolve_to(monkeypatch, dead, peer.port)
        with takes(0.2, 2):
            assert post(door, "http://half.test/") == b"alive"


# The cut


@pytest.mark.parametrize("serve", STALLING, ids=lambda serve: serve.__name__)
def test_a_cut_ends_a_running_exchange_at_once(door: Door, serve: Serve) -> None:
    body = b"x" * 20_000_000 if serve is never_reads else b"{}"
    with Peer(serve) as peer:
        check_cut(door, peer.url(), body)


def test_a_cut_ends_a_handshake_at_once(door: Door) -> None:
    with Peer(never_reads) as peer:
        check_cut(door, peer.url(scheme="https"))


def test_a_cut_ends_a_connection_attempt_at_once(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dead_address() as dead:
        resolve_to(monkeypatch, dead)
        check_cut(door, "http://dead.test/")


def test_a_cut_ends_a_lookup_at_once(door: Door, slow_names: SlowNames) -> None:
    check_cut(door, "http://slow.test/")
    assert slow_names.asked == 1


def check_cut(door: Door, url: str, body: bytes = b"{}") -> None:
    """Cut the exchange a moment after it began; later ones end at once too."""
    timer = threading.Timer(0.2, door.cut)
    timer.start()
    with takes(0.15, 2), fails(Cut, "cut"):
        post(door, url, body=body)
    timer.join()
    for _ in range(2):
        with takes(0, 1), fails(Cut, "cut"):
            post(door, url)


def test_a_cut_ends_later_exchanges_on_a_kept_connection_too(door: Door) -> None:
    with Peer(answering(response(b"ok"))) as peer:
        post(door, peer.url())
        door.cut()
        with pytest.raises(Cut):
            post(door, peer.url())


def test_a_cut_after_the_end_does_nothing() -> None:
    door = Door()
    door.close()
    door.cut()
    door.close()


# The size


def bomb(size: int) -> bytes:
    return response(gzip.compress(bytes(size)), "Content-Encoding: gzip")


def floods(head: bytes, data: bytes) -> Serve:
    def serve(connection: Connection) -> None:
        connection.read_request()
        connection.send(b"HTTP/1.1 200 OK\r\n" + head)
        while True:
            connection.send(data)

    return serve


@pytest.mark.parametrize(
    "serve",
    [
        pytest.param(answering(response(bytes(100_001))), id="one byte too many"),
        pytest.param(answering(bomb(50_000_000)), id="gzip bomb"),
        pytest.param(
            answering(bomb(50_000_000).replace(b"200 OK", b"302 Found\r\nLocation: /x")),
            id="redirect with a gzip bomb",
        ),
        pytest.param(floods(b"\r\n", bytes(9999)), id="endless"),
        pytest.param(
            floods(b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n"), id="endless chunks"
        ),
        pytest.param(
            floods(b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", bytes(9999)), id="negative chunk"
        ),
        pytest.param(
            floods(b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 999),
            id="endless trailers",
        ),
        pytest.param(
            floods(b"Content-Encoding: deflate\r\n\r\n", b"\0\0\0\xff\xff" * 999),
            id="blocks that unpack to nothing",
        ),
    ],
)
def test_a_body_beyond_the_limit_is_given_up(door: Door, serve: Serve) -> None:
    with Peer(serve) as peer, fails(BrokenResponse, "too_large"):
        post(door, peer.url())


def test_a_body_of_exactly_the_limit_is_taken(door: Door) -> None:
    with Peer(answering(response(bytes(100_000)))) as peer:
        assert len(post(door, peer.url())) == 100_000
