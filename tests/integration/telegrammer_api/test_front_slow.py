"""The front and slow peers: each is cut in time, and none stops the ninth caller."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from support.front import Front, until
from support.raw_http import RawClient, request

TIMEOUT = 1.0
LATE = TIMEOUT + 1.5  # a busy machine's due
# Bytes, more than fit into the buffers of a connection: with our small one, with any.
UNREAD = 6_000_000
READ_LATE = 16_000_000


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    """The product's own shape: eight requests at once, in two workers."""
    with Front(workers=2, threads=4, queue=64, request_timeout=TIMEOUT) as running:
        yield running.ready(workers=2)


@contextlib.contextmanager
def dripping(client: RawClient, data: bytes) -> Iterator[None]:
    """Send a byte every twentieth of a second until the front has had enough."""
    sender = threading.Thread(target=client.drip, args=(data, 0.05))
    sender.start()
    yield
    with contextlib.suppress(OSError):
        client.sock.shutdown(2)
    sender.join()


# -- when each is cut -------------------------------------------------------------------


def test_a_silent_connection_is_closed_without_a_word(front: Front) -> None:
    with front.client() as client:
        assert client.is_closed()

        assert TIMEOUT * 0.9 < client.age < LATE


def test_a_head_that_stops_is_answered_408(front: Front) -> None:
    with front.client() as client:
        client.send(b"G")
        response = client.read_response()

        assert (response.status, response.code) == (408, "REQUEST_TIMEOUT")
        assert client.is_closed()
        assert TIMEOUT * 0.9 < client.age < LATE


def test_a_head_that_drips_is_answered_408_at_the_total_time(front: Front) -> None:
    with front.client() as client, dripping(client, request("/" + "a" * 1000)):
        assert client.read_response().code == "REQUEST_TIMEOUT"

        assert TIMEOUT * 0.9 < client.age < LATE


@pytest.mark.parametrize("framing", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_drips_is_answered_408_at_the_total_time(front: Front, framing: str) -> None:
    with front.client() as client:
        client.send(request("/body", "POST", framing))
        with dripping(client, b"1\r\nx\r\n" * 200):
            response = client.read_response()

            assert (response.status, response.code) == (408, "REQUEST_TIMEOUT")
            assert TIMEOUT * 0.9 < client.age < LATE


def test_a_response_that_is_not_read_is_cut_at_the_total_time(front: Front) -> None:
    before = front.log.count("event=response_cut")
    with front.client(receive_buffer=4096) as client:
        client.send(request(f"/big/{UNREAD}"))

        assert front.logged("event=response_cut", before + 1)
        assert TIMEOUT * 0.9 < client.age < LATE
        assert len(client.read_to_end()) < UNREAD


def test_a_response_that_is_read_late_but_in_time_is_complete(front: Front) -> None:
    with front.client() as client:
        client.send(request(f"/big/{READ_LATE}"))
        assert until(lambda: client.age > TIMEOUT * 0.3)

        assert len(client.read_response().body) == READ_LATE
        assert client.exchange(request("/")).status == 200


def test_an_idle_connection_is_kept_for_its_time_and_closed_then() -> None:
    with Front(request_timeout=0.5, idle_timeout=1.5) as front, front.client() as client:
        client.exchange(request("/"))
        assert until(lambda: client.age > 1.0)
        client.exchange(request("/"))

        assert client.is_closed()
        assert 2.4 < client.age < 4.0


def test_the_time_of_a_later_head_counts_from_its_first_byte(front: Front) -> None:
    with front.client() as client:
        client.exchange(request("/"))
        assert until(lambda: client.age > TIMEOUT * 1.2)
        client.send(b"GET / HT")
        again = client.age
        assert client.read_response().code == "REQUEST_TIMEOUT"

        assert TIMEOUT * 0.9 < client.age - again < LATE


# -- eight of them, and the ninth ------------------------------------------------------------


def silent(client: RawClient) -> None:
    """Connect, and no more."""


def one_byte(client: RawClient) -> None:
    client.send(b"G")


def half_a_head(client: RawClient) -> None:
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n")


def unwanted_body(client: RawClient) -> None:
    client.send(request("/refuse/401", "POST", "Content-Length: 100") + b"begin")


def unread_response(client: RawClient) -> None:
    client.send(request(f"/big/{UNREAD}"))


def closing_side_kept_open(client: RawClient) -> None:
    client.send(request("/", "GET", "Connection: close"))


def wanted_body(client: RawClient) -> None:
    client.send(request("/body", "POST", "Content-Length: 100") + b"begin")


@pytest.mark.parametrize("with_body", [True, False])
def test_an_empty_line_after_a_body_is_no_late_head(with_body: bool) -> None:
    """Some clients send one (RFC 9112, 2.2): the connection stays idle, and of use."""
    with Front(request_timeout=0.2, idle_timeout=1.0) as front, front.ready().client() as client:
        body = request("/body", "POST", body=b"x")
        for _ in range(2):
            client.send(body + b"\r\n" if with_body else body)
            assert client.read_response().body == b"x"
            if not with_body:
                client.send(b"\r\n")

        assert client.is_closed()
        assert client.age > 0.9
        assert "status=408" not in front.log


def unsent_chunks(client: RawClient) -> None:
    client.send(request("/body", "POST", "Transfer-Encoding: chunked") + b"5\r\nbe")


@contextlib.contextmanager
def eight(front: Front, attack: Callable[[RawClient], None]) -> Iterator[list[RawClient]]:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(front.client(receive_buffer=4096)) for _ in range(8)]
        for client in clients:
            attack(client)
        yield clients


@pytest.mark.parametrize(
    "attack",
    [silent, one_byte, half_a_head, unwanted_body, unread_response, closing_side_kept_open],
)
def test_eight_slow_peers_do_not_delay_the_ninth_caller(
    front: Front, attack: Callable[[RawClient], None]
) -> None:
    with eight(front, attack):
        for _ in range(5):
            with front.client() as ninth:
                assert ninth.exchange(request("/")).status == 200
                assert ninth.age < TIMEOUT * 0.6


@pytest.mark.parametrize("attack", [wanted_body, unsent_chunks])
def test_eight_slow_bodies_delay_the_ninth_caller_for_the_request_timeout_at_most(
    front: Front, attack: Callable[[RawClient], None]
) -> None:
    with eight(front, attack) as attackers, front.client() as ninth:
        assert ninth.exchange(request("/")).status == 200
        assert ninth.age < LATE
        assert {attacker.read_response().code for attacker in attackers} == {"REQUEST_TIMEOUT"}


def test_slow_peers_that_come_back_at_once_do_not_delay_the_ninth_caller(front: Front) -> None:
    over = threading.Event()

    def attack() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), front.client() as client:
                client.send(b"G")
                client.read_to_end()

    attackers = [threading.Thread(target=attack) for _ in range(16)]
    for attacker in attackers:
        attacker.start()
    try:
        for _ in range(20):
            with front.client() as honest:
                assert honest.exchange(request("/")).status == 200
                assert honest.age < TIMEOUT * 0.6
    finally:
        over.set()
        for attacker in attackers:
            attacker.join()
