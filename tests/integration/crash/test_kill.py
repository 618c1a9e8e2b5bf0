"""kill -9 at a known point, and then the books are compared.

Each test brings a real process to a boundary and holds it there: the sandbox holds an
answer, the receiver holds a reply, or a connection of the test's own holds the write
lock. Then it kills the process, starts another and compares what Telegram handed out,
what the receiver got and what the database says.
"""

import contextlib
import platform
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import Process, Processes
from support.receiver import Received, Receiver, Reply, silent
from support.sandbox import Sandbox
from telegrammer.store.connection import Database
from telegrammer.store.keys import Keys
from telegrammer.store.layout import open_database
from telegrammer.store.queue import Counts, Queue
from telegrammer.store.subscriptions import Limits, Subscriptions

CHAT = 1001

# The numbers of the system calls on the machines that these tests run on.
CLOCK_NANOSLEEP, NANOSLEEP = {"x86_64": ("230", "35"), "aarch64": ("115", "101")}[
    platform.machine()
]


class World:
    """A database, a Telegram, a receiver subscribed to one chat, and the processes."""

    def __init__(
        self, path: Path, processes: Processes, sandbox: Sandbox, receiver: Receiver
    ) -> None:
        self.path = path
        self.sandbox = sandbox
        self.receiver = receiver
        self.database = open_database(path)
        self.queue = Queue(self.database)
        self._processes = processes
        key = Keys(self.database).add("app", 1)
        assert key is not None
        owner = Keys(self.database).owner(key)
        assert owner is not None
        Subscriptions(self.database).register(owner, CHAT, receiver.url + "/", Limits(9, 9), 1)

    def poller(self) -> Process:
        env = {
            "TELEGRAMMER_BOT_TOKEN": self.sandbox.token,
            "TELEGRAMMER_BOT_API_URL": self.sandbox.url,
        }
        process = self._processes.spawn("telegrammer_poller", "--db", self.path, env=env)
        process.wait_event("bound")
        return process

    def dispatcher(self) -> Process:
        process = self._processes.spawn("telegrammer_dispatcher", "--db", self.path)
        process.wait_event("started")
        return process

    @contextlib.contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold the database's write lock: nobody else can commit."""
        with Database(self.path) as own, own.write():
            yield

    def cursor(self) -> int:
        with self.database.read() as tx:
            (cursor,) = tx.execute("SELECT next_offset FROM poll_state").fetchone()
        return int(cursor)

    def attempts(self) -> list[tuple[str, int]]:
        with self.database.read() as tx:
            return tx.execute("SELECT state, attempt_count FROM deliveries").fetchall()


@pytest.fixture
def world(tmp_path: Path, processes: Processes, sandbox: Sandbox) -> Iterator[World]:
    with Receiver() as receiver:
        world = World(tmp_path / "gateway.db", processes, sandbox, receiver)
        yield world
        world.database.close()


def until(holds: Callable[[], bool], what: str, timeout: float = 10) -> None:
    """Wait for a state that nothing signals."""
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def is_waiting_for_lock(process: Process) -> bool:
    """Tell whether the main thread sleeps in SQLite's busy handler: nothing else of ours does."""
    call = Path(f"/proc/{process.pid}/syscall").read_text("ascii").split()[0]
    return call in (CLOCK_NANOSLEEP, NANOSLEEP)


def texts(received: list[Received]) -> list[str]:
    return [request.body.decode().split('"text":"')[1].split('"')[0] for request in received]


def test_a_poller_killed_before_its_answer_came_loses_nothing(world: World) -> None:
    world.sandbox.say(CHAT, "one")
    world.sandbox.fault("getUpdates", hold=True)
    poller = world.poller()
    world.sandbox.wait_held("getUpdates")

    poller.kill()

    assert world.sandbox.confirmed() == []
    assert world.queue.counts().pending == 0
    world.sandbox.release()
    world.poller()
    world.dispatcher()
    assert texts(world.receiver.wait(1)) == ["one"]


def test_a_poller_killed_before_its_commit_has_confirmed_nothing(world: World) -> None:
    poller = world.poller()
    with world.write_lock():
        world.sandbox.say(CHAT, "one")
        world.sandbox.wait_calls("getUpdates", 1, state="answered")
        poller.kill()

    assert world.sandbox.confirmed() == []
    assert (world.cursor(), world.queue.counts().pending) == (0, 0)
    world.poller()
    world.sandbox.wait_confirmed(1)
    world.dispatcher()
    assert texts(world.receiver.wait(1)) == ["one"]


def test_a_poller_killed_after_its_commit_does_not_ingest_twice(world: World) -> None:
    poller = world.poller()
    world.sandbox.wait_calls("getUpdates", 1)
    world.sandbox.fault_sample("getUpdates", "e38_502_json.json", times=None)
    world.sandbox.say(CHAT, "one")
    poller.wait_event("ingested")
    poller.wait_event("poll_failed")

    poller.kill()

    assert world.sandbox.confirmed() == []
    assert world.queue.counts().pending == 1
    world.sandbox.clear_faults()
    again = world.poller()
    world.sandbox.wait_confirmed(1)
    world.sandbox.say(CHAT, "two")
    again.wait_event("ingested")
    world.dispatcher().wait_event("delivered", n=2)
    assert texts(world.receiver.received) == ["one", "two"]
    assert world.queue.counts() == Counts(0, 0, 0)


def test_a_dispatcher_killed_before_its_claim_has_attempted_nothing(world: World) -> None:
    world.poller()
    dispatcher = world.dispatcher()
    world.sandbox.say(CHAT, "one")
    world.receiver.wait(1)
    until(lambda: world.queue.counts() == Counts(0, 0, 0), "the first is not settled")
    dispatcher.send(signal.SIGSTOP)
    world.sandbox.say(CHAT, "two")
    until(lambda: world.queue.counts().pending == 1, "not ingested")
    with world.write_lock():
        dispatcher.send(signal.SIGCONT)
        until(lambda: is_waiting_for_lock(dispatcher), "the dispatcher does not claim")
        dispatcher.kill()

    assert world.attempts() == [("PENDING", 0)]
    world.dispatcher()
    assert texts(world.receiver.wait(2)) == ["one", "two"]


def test_a_dispatcher_killed_in_flight_delivers_again_under_the_same_id(world: World) -> None:
    reached = threading.Event()

    def hang(connection: socket.socket, closing: threading.Event) -> None:
        reached.set()
        silent(connection, closing)

    world.receiver.answer = lambda _: Reply(raw=hang)
    world.poller()
    dispatcher = world.dispatcher()
    world.sandbox.say(CHAT, "one")
    assert reached.wait(10)

    dispatcher.kill()

    assert world.attempts() == [("IN_FLIGHT", 1)]
    world.receiver.answer = lambda _: Reply()
    again = world.dispatcher()
    assert again.wait_event("recovered")["jobs"] == "1"
    again.wait_event("delivered", attempt=2)
    first, second = world.receiver.received
    assert first.delivery_id == second.delivery_id
    assert first.body == second.body
    assert world.queue.counts() == Counts(0, 0, 0)


def test_a_dispatcher_killed_before_the_outcome_is_written_delivers_again(world: World) -> None:
    """The receiver has answered 200; only the database does not know yet."""
    lock = contextlib.ExitStack()

    def take_lock(_request: Received) -> Reply:
        lock.enter_context(world.write_lock())
        return Reply()

    world.receiver.answer = take_lock
    world.poller()
    dispatcher = world.dispatcher()
    world.sandbox.say(CHAT, "one")
    world.sandbox.say(CHAT, "two")
    world.receiver.wait(1)

    with lock:
        until(lambda: is_waiting_for_lock(dispatcher), "the dispatcher does not settle")
        dispatcher.kill()

    world.receiver.answer = lambda _: Reply()
    again = world.dispatcher()
    again.wait_event("delivered", n=2)
    received = world.receiver.received
    assert texts(received) == ["one", "one", "two"]
    assert received[0].delivery_id == received[1].delivery_id != received[2].delivery_id
    assert world.queue.counts() == Counts(0, 0, 0)


def test_a_job_out_of_attempts_is_not_attempted_again_after_a_crash(world: World) -> None:
    gateway_attempts = 8
    world.poller()
    world.sandbox.say(CHAT, "one")
    until(lambda: world.queue.counts().pending == 1, "not ingested")
    with world.database.write() as tx:
        tx.execute(
            "UPDATE deliveries SET state = 'IN_FLIGHT', attempt_count = ?", (gateway_attempts,)
        )

    dispatcher = world.dispatcher()

    dispatcher.wait_event("dead", reason="attempts_exhausted")
    assert world.receiver.received == []
    assert world.attempts() == [("DEAD", gateway_attempts)]
