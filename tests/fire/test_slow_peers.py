"""Peers that take their time, 8, 64 and 500 of them, and an honest caller beside them.

The bounds for the honest caller, of a hundred requests the slowest (p99):

* ``QUICK`` while 8 or 64 peers are silent, let a head drip, or a body that nobody asked
  for, since they have no key: they hold no thread. ``FLOOD`` beside 500, which are all cut
  at once and all come again at once, every second.
* ``ONE_TIMEOUT`` while eight peers that have a key let a body drip: they hold all the
  threads for as long as a request may take to arrive.
* More of those fill the queue too. A caller is refused at once, with 503 ``OVERLOADED``,
  or waits his turn: ``BACKLOG``.

There is no answer long enough to hold anything by not being read: the kernel takes all of
the longest, 200 KB of subscriptions.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from fire.effort import IS_LONG, TIMES
from support.raw_http import RawClient, request
from support.running_api import RunningApi

REQUEST_TIMEOUT = 1.0  # as the fixture sets it
QUICK = 0.5
FLOOD = 1.0
"""500 new connections at once, every second, in Python's development mode."""
ONE_TIMEOUT = REQUEST_TIMEOUT + 2 * QUICK
BACKLOG = REQUEST_TIMEOUT * 9 + 2 * QUICK
"""72 slow requests over 8 threads."""

SECONDS = 1.5 * TIMES


@dataclass(frozen=True)
class Attack:
    """What a slow peer sends at first and then, every quarter of a second."""

    name: str
    first: Callable[[RunningApi], bytes]
    drip: str

    def __str__(self) -> str:
        return self.name


SIZE: Final = ("Content-Length: 60000",)
SILENT = Attack("silent", lambda _: b"", "")
HEAD = Attack("a head", lambda _: b"POST /send HTTP/1.1\r\nHost: a\r\nX-Slow: ", "x")
BODY = Attack("a body without a key", lambda _: request("/send", "POST", *SIZE), "x")
BODY_WITH_KEY = Attack(
    "a body with a key", lambda api: request("/send", "POST", *SIZE, *api.headers()), "x"
)


@contextlib.contextmanager
def under(api: RunningApi, attack: Attack, number: int) -> Iterator[None]:
    script = str(Path(__file__).with_name("slow_peers.py"))
    command = [sys.executable, script, str(api.address[1]), str(number)]
    with subprocess.Popen(
        [*command, attack.drip], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as slow:
        assert slow.stdin is not None
        assert slow.stdout is not None
        slow.stdin.write(attack.first(api).hex().encode() or b" ")
        slow.stdin.flush()
        assert slow.stdout.readline() == b"ready\n"
        yield
        slow.stdin.close()
        assert slow.wait(10) == 0


def honest_calls(api: RunningApi, seconds: float) -> tuple[list[float], set[int]]:
    """Call for so long, at least once. Return how long each took, and the statuses that came."""
    took: list[float] = []
    statuses: set[int] = set()
    end = time.monotonic() + seconds
    while not took or time.monotonic() < end:
        began = time.monotonic()
        with RawClient(api.address, patience=BACKLOG + 5) as client:
            client.send(request("/subscriptions", "GET", *api.headers(), "Connection: close"))
            statuses.add(client.read_response().status)
        took.append(time.monotonic() - began)
        time.sleep(0.01)  # so that the calls meet more than one beat of the attack
    return sorted(took), statuses


def p99(sorted_times: list[float]) -> float:
    found = sorted_times[int(len(sorted_times) * 0.99)]
    median = sorted_times[len(sorted_times) // 2]
    sys.stdout.write(f" p50 {median * 1000:.1f} ms, p99 {found * 1000:.1f} ms ")  # pytest -s
    return found


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", [8, 64, 500])
@pytest.mark.parametrize("attack", [SILENT, HEAD, BODY], ids=str)
def test_peers_without_a_thread_do_not_slow_the_honest_caller(
    api: RunningApi, attack: Attack, number: int
) -> None:
    with under(api, attack, number):
        took, statuses = honest_calls(api, SECONDS)

    assert statuses == {200}
    assert p99(took) < (QUICK if number < 500 else FLOOD)


@pytest.mark.usefixtures("nothing_left")
def test_eight_peers_that_have_a_key_cost_the_ninth_a_request_time_at_most(
    api: RunningApi,
) -> None:
    with under(api, BODY_WITH_KEY, 8):
        took, statuses = honest_calls(api, 2 * SECONDS)

    assert statuses == {200}
    assert p99(took) < ONE_TIMEOUT


@pytest.mark.skipif(not IS_LONG, reason="takes as long as the backlog: make fire")
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("number", [64, 500])
def test_more_peers_that_have_a_key_can_fill_the_queue_and_no_more(
    api: RunningApi, number: int
) -> None:
    with under(api, BODY_WITH_KEY, number):
        took, statuses = honest_calls(api, SECONDS)

    assert statuses <= {200, 503}
    assert p99(took) < BACKLOG
    assert honest_calls(api, 0)[1] == {200}
