"""Whatever a receiver answers: a known outcome within the total time, in bounded memory."""

import random
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fire.bytes_of import JUNK, mutated
from fire.effort import TIMES, tries
from support.receiver import Receiver, Reply
from telegrammer.callbacks.outcome import Answer, least_delay, verdict
from telegrammer.callbacks.sender import Post, Sender

TIMEOUT = 1.0
MEMORY = 8 * 1024 * 1024  # bytes by which this process may grow

RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 429 No\r\nRetry-After: Fri, 31 Dec 1999 23:59:59 GMT\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: /\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/2 200\r\n\r\n",
)


class Bench:
    """A sender with one slot, and a receiver that answers these bytes and hangs up."""

    def __init__(self, receiver: Receiver, sender: Sender[int]) -> None:
        self._receiver = receiver
        self._sender = sender

    def post(self, response: bytes) -> tuple[Answer, float]:
        def send(connection: socket.socket, _closing: threading.Event) -> None:
            connection.sendall(response)

        self._receiver.received.clear()
        self._receiver.answer = lambda _: Reply(raw=send)
        began = time.monotonic()
        self._sender.start(0, Post(self._receiver.url, "/", b"{}", "1-2-3"))
        while True:
            ended, _ = self._sender.wait(0.5)
            if ended:
                return ended[0][1], time.monotonic() - began
            assert time.monotonic() - began < TIMEOUT + 3, "it hangs"


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Receiver() as receiver, Sender[int](1, TIMEOUT, TIMEOUT) as sender:
        yield Bench(receiver, sender)


@tries(400)
@given(response=mutated(RESPONSES) | st.binary(max_size=80))
def test_any_response_has_an_outcome_in_time(bench: Bench, response: bytes) -> None:
    answer, took = bench.post(response)

    assert took < TIMEOUT + 1
    assert answer.reason.replace("_", "").isalnum()
    verdict(answer)
    assert least_delay(answer.retry_after, 1_790_000_000.0) >= 0


@tries(400)
@given(value=st.text(max_size=40) | mutated(RESPONSES).map(lambda data: data.decode("latin-1")))
def test_any_retry_after_is_seconds_or_nothing(value: str) -> None:
    assert 0 <= least_delay(value, 1_790_000_000.0) <= 10**12


def test_many_responses_leave_nothing_behind(bench: Bench) -> None:
    rng = random.Random(1)
    process = psutil.Process()

    def post(number: int) -> None:
        for _ in range(number):
            response = rng.choice(RESPONSES)
            bench.post(response[: rng.randrange(len(response) + 1)] + rng.choice(JUNK))

    post(300)
    memory, files = process.memory_info().rss, process.num_fds()
    post(300 * TIMES)

    assert process.memory_info().rss - memory < MEMORY
    assert process.num_fds() <= files + 2
