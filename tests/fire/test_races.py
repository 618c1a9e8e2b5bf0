"""Threads that take turns a thousand times oftener than they would: the store, the worker."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from fire.effort import IS_LONG, TIMES
from fire.hurried import INTERVAL
from support.builders import LIMITS, NOW, Gateway, message
from support.fake_clock import FakeClock
from support.front import Front
from support.processes import REPOSITORY
from support.raw_http import request
from telegrammer.heartbeat import Heartbeat, beating, remove_row
from telegrammer.model import State
from telegrammer.process import Stop
from telegrammer.store.components import Components
from telegrammer.store.connection import Database
from telegrammer.store.keys import Keys
from telegrammer.store.queue import Counts, Queue
from telegrammer.store.subscriptions import Subscriptions
from telegrammer_api.pool import Pool

THREADS = 8
ROUNDS = 10 * TIMES
CHATS = 50

CONCURRENCY_TESTS = (
    "tests/integration/store",
    "tests/integration/telegrammer_dispatcher",
    "tests/integration/telegrammer_api/test_front_load.py",
    "tests/integration/telegrammer_api/test_front_requests.py",
    "tests/unit/telegrammer/test_heartbeat.py",
    "tests/unit/telegrammer/test_process.py",
)

pytestmark = pytest.mark.usefixtures("nothing_left", "hurry")


@pytest.fixture
def hurry() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(INTERVAL)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path / "gateway.db")
    yield gateway
    gateway.close()


def at_once(act: Callable[[int], object]) -> list[object]:
    """Let all threads act at the same moment; return what each returned."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> object:
        barrier.wait(10)
        return act(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_equal_registrations_at_once_are_one_subscription(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    pool = Pool(lambda: Database(gateway.path))

    def register(chat: int, _number: int) -> int | None:
        with pool.borrow() as database:
            return Subscriptions(database).register(owner, chat, "http://a/", LIMITS, NOW)

    for chat in range(1, CHATS + 1):
        assert len(set(at_once(partial(register, chat)))) == 1
    pool.close()

    assert len(gateway.subscriptions.of_owner(owner)) == CHATS


def test_ingestion_delivery_and_deletion_at_once_leave_the_books_right(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    path = gateway.path
    each = 20 * ROUNDS

    def ingest(number: int) -> None:
        with Database(path) as database:
            for update_id in range(1, each + 1):
                gateway.inbox.ingest([message(update_id)], 100_000, NOW)
            assert database.changed_by_others() >= 0

    def deliver(number: int) -> None:
        with Database(path) as database:
            queue = Queue(database)
            for _ in range(each):
                with queue.look() as look:
                    live = list(look.live())
                for queued in live:
                    with queue.turn() as turn:
                        if job := turn.job(queued.id):
                            turn.claim(job.id)
                            turn.delivered(job.id)

    def come_and_go(number: int) -> None:
        with Database(path) as database:
            subscriptions = Subscriptions(database)
            for _ in range(each):
                url = f"http://a/{number}"
                found = subscriptions.register(owner, -1001, url, LIMITS, NOW)
                assert found is not None
                subscriptions.delete(owner, found)

    gateway.subscribe(owner, "http://stays/")
    acts = [ingest, deliver, deliver, come_and_go, come_and_go, come_and_go]
    at_once(lambda number: acts[number](number) if number < len(acts) else None)
    deliver(0)

    with gateway.database.read() as tx:
        assert tx.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (size,) = tx.execute("SELECT jobs FROM queue_size").fetchone()
        (count,) = tx.execute("SELECT count(*) FROM deliveries").fetchone()
    assert (size, count) == (0, 0)
    assert gateway.inbox.cursor() == each + 1
    assert gateway.queue.counts() == Counts(0, 0, 0)


def test_a_pool_lends_each_connection_to_one_thread_and_keeps_no_more_than_were_needed(
    gateway: Gateway,
) -> None:
    pool = Pool(lambda: Database(gateway.path))
    lent: set[int] = set()
    lock = threading.Lock()

    def borrow(number: int) -> None:
        for _ in range(20 * ROUNDS):
            with pool.borrow() as database:
                with lock:
                    assert id(database) not in lent
                    lent.add(id(database))
                Keys(database).owner("no such key")
                with lock:
                    lent.remove(id(database))

    files = psutil.Process().num_fds()
    at_once(borrow)

    assert psutil.Process().num_fds() <= files + 3 * THREADS
    pool.close()


def test_reports_beats_and_removal_of_a_heartbeat_at_once_end_without_a_row(
    gateway: Gateway,
) -> None:
    for _ in range(ROUNDS):
        heartbeat = Heartbeat(Components(gateway.database), "poller", FakeClock())
        with beating(heartbeat):
            at_once(lambda number: heartbeat.report(State.BACKING_OFF, "x", number))  # noqa: B023
        remove_row(Components(gateway.database), "poller")
        with gateway.database.read() as tx:
            assert tx.execute("SELECT count(*) FROM components").fetchone() == (0,)


def test_a_stop_is_heard_by_every_wait() -> None:
    for _ in range(ROUNDS):
        with Stop() as stop:
            setter = threading.Timer(0.001, stop.set)
            setter.start()
            assert at_once(lambda _: stop.wait(10)) == [True] * THREADS
            setter.join()


def test_the_front_answers_all_of_a_crowd_and_keeps_nothing() -> None:
    with Front(workers=1, threads=4, queue=64, request_timeout=5.0) as front:
        front.ready()
        (worker,) = front.workers()

        def call(number: int) -> list[int]:
            statuses = []
            with front.client() as client:
                for _ in range(10 * ROUNDS):
                    statuses.append(client.exchange(request("/")).status)
            return statuses

        at_once(call)
        files, threads = worker.num_fds(), worker.num_threads()
        assert at_once(call) == [[200] * 10 * ROUNDS] * THREADS
        assert worker.num_fds() <= files + THREADS
        assert worker.num_threads() <= threads


@pytest.mark.skipif(not IS_LONG, reason="the other tests ten times over: make fire")
@pytest.mark.parametrize("tests", CONCURRENCY_TESTS)
def test_the_tests_of_concurrency_hold_in_a_hurry(tests: str) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "pytest", "-q"]
    for _ in range(10):
        done = subprocess.run(
            [*command, "-p", "fire.hurried", tests],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": "shared:services:tests"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:]
