"""The front and many peers: what is refused, who waits, what stays bounded."""

from __future__ import annotations

import contextlib
import select
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.front import Front, Hold, until
from support.raw_http import RawClient, Response, request


@contextlib.contextmanager
def connected(front: Front, count: int) -> Iterator[list[RawClient]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(front.client(patience=30)) for _ in range(count)]


def answers(clients: list[RawClient], count: int | None = None) -> list[tuple[Response, float]]:
    """Read a response from each, or from the ``count`` that get theirs first.

    The seconds are those until its first byte came. Who was answered is taken from the list.
    """
    began = time.monotonic()
    poll = select.poll()
    waiting = {client.sock.fileno(): client for client in clients}
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    found: list[tuple[Response, float]] = []
    left = len(clients) - (len(clients) if count is None else count)
    while len(waiting) > left:
        ready = poll.poll(30_000)
        assert ready, f"{len(waiting) - left} got no answer"
        for descriptor, _ in ready:
            poll.unregister(descriptor)
            elapsed = time.monotonic() - began
            found.append((waiting.pop(descriptor).read_response(), elapsed))
    clients[:] = waiting.values()
    return found


def test_of_200_requests_72_are_answered_and_the_others_refused_at_once(tmp_path: Path) -> None:
    """Eight run, 64 wait, and nobody waits to be told that there is no place.

    No request ends before the others are refused. Of the seconds the best of three rounds
    count: the machine may have other work.
    """
    took: list[float] = []
    with Front(workers=2, threads=4, queue=64, request_timeout=5.0) as front:
        front.ready(2)
        while not took or (min(took) >= 0.9 and len(took) < 3):
            with connected(front, 200) as clients, Hold(tmp_path) as hold:
                for client in clients:
                    client.send(request(hold.target))
                refused = answers(clients, 128)
                begun = 72 * len(took) + 8
                assert front.logged("tiny_app held", begun)
                assert front.log.count("tiny_app held") == begun
                hold.release()
                answered = answers(clients)
            took.append(max(seconds for _, seconds in refused))

            assert Counter(response.status for response, _ in answered) == {200: 72}
            assert {response.code for response, _ in refused} == {"OVERLOADED"}
            assert {response.headers["retry-after"] for response, _ in refused} == {"1"}
            assert {response.headers["connection"] for response, _ in refused} == {"close"}
    assert min(took) < 0.9


def test_eight_requests_run_at_once_whichever_worker_wakes_first() -> None:
    with Front(workers=2, threads=4, queue=64) as front:
        front.ready(2)
        for _ in range(2):
            with connected(front, 8) as clients:
                for client in clients:
                    client.send(request("/sleep/0.8"))
                found = answers(clients)

            assert {response.status for response, _ in found} == {200}
            assert max(seconds for _, seconds in found) < 1.5


def test_a_request_that_waited_too_long_for_a_thread_is_refused() -> None:
    with Front(threads=1, queue=4, queue_wait=0.3) as front, connected(front.ready(), 3) as clients:
        for client in clients:
            client.send(request("/sleep/1"))
        found = answers(clients)

        assert Counter(response.status for response, _ in found) == {200: 1, 503: 2}
        assert all(0.2 < seconds < 0.9 for response, seconds in found if response.status == 503)
        with front.client() as client:  # the places that were given up are free again
            assert client.exchange(request("/")).status == 200


def test_who_is_refused_can_read_it_although_the_body_is_still_on_its_way() -> None:
    with Front(threads=1, queue=1) as front, connected(front.ready(), 2) as clients:
        for client in clients:  # known to the worker: it hears of their next before the third
            assert client.exchange(request("/")).status == 200
        for client in clients:
            client.send(request("/sleep/1"))
        with front.client() as third:
            third.send(request("/body", "POST", body=b"x" * 4_000_000))

            assert third.read_response().code == "OVERLOADED"
        answers(clients)


def test_idle_connections_are_no_load() -> None:
    with Front(threads=1, queue=1) as front, connected(front.ready(), 50) as clients:
        for _ in range(2):
            for client in clients:
                assert client.exchange(request("/")).status == 200


def test_a_flood_of_connections_costs_its_own_oldest_and_no_honest_caller() -> None:
    with Front(descriptors=128, request_timeout=20.0) as front, front.ready().client() as kept:
        assert kept.exchange(request("/")).status == 200
        with front.client() as running, connected(front, 40) as flood:
            running.send(request("/sleep/1"))
            for _ in range(3):
                flood += [front.client() for _ in range(40)]
                with front.client() as honest:
                    assert honest.exchange(request("/")).status == 200
            (worker,) = front.workers()
            assert worker.num_fds() <= 80  # what the application may need stays free
            assert flood[0].is_closed()
            assert running.read_response().status == 200
            assert kept.exchange(request("/")).status == 200
            for client in flood:
                client.close()
        assert "level=error" not in front.log


def test_a_served_worker_holds_no_descriptor_and_no_thread_more_than_before() -> None:
    with Front(threads=2, queue=20) as front:
        (worker,) = front.ready().workers()
        with front.client() as client:
            client.exchange(request("/"))
        before = worker.num_fds()
        for target in ("/", "/refuse/401", "/sleep/0.1", "/fail"):
            with connected(front, 20) as clients:
                for client in clients:
                    client.send(request(target, "POST", "Content-Length: 5"))
                answers(clients)

        assert until(lambda: worker.num_fds() <= before)
        assert worker.num_threads() <= 3
