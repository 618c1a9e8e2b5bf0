"""A process's own row in ``components``."""

import contextlib
import dataclasses
import os
import sqlite3
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from support.builders import NOW
from support.fake_clock import FakeClock
from support.log_lines import logged
from telegrammer import heartbeat as module
from telegrammer.errors import StorageUnavailable
from telegrammer.heartbeat import Heartbeat, beating, remove_row
from telegrammer.model import State
from telegrammer.store.components import Component, Components
from telegrammer.store.connection import Database
from telegrammer.store.layout import create_tables


class Memory:
    """A ``Database`` without a file, that can be made to fail."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        create_tables(self.connection)
        self.fails = False
        self.writes = threading.Semaphore(0)

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        if self.fails:
            raise StorageUnavailable("locked")
        yield self.connection
        self.writes.release()

    read = write


@pytest.fixture
def memory() -> Iterator[Memory]:
    found = Memory()
    yield found
    found.connection.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def heartbeat(memory: Memory, clock: FakeClock) -> Heartbeat:
    return Heartbeat(rows(memory), "poller", clock)


def rows(memory: Memory) -> Components:
    return Components(cast(Database, memory))


def row(memory: Memory) -> Component | None:
    return rows(memory).all().get("poller")


def test_a_process_says_that_it_starts(memory: Memory, heartbeat: Heartbeat) -> None:
    now = 1_790_000_000

    assert row(memory) == Component("poller", os.getpid(), State.STARTING, None, now, now)


def test_a_change_is_written_at_once_with_its_time(
    memory: Memory, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    clock.pass_time(7)
    heartbeat.report(State.BACKING_OFF, "timeout", failures=2, update_id=9)

    written = row(memory)
    assert written is not None
    assert (written.state, written.reason) == (State.BACKING_OFF, "timeout")
    assert (written.consecutive_failures, written.update_id) == (2, 9)
    assert written.since == written.heartbeat == 1_790_000_007


def test_since_stays_while_the_state_stays(
    memory: Memory, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    heartbeat.report(State.BACKING_OFF, "timeout", failures=1)
    clock.pass_time(7)
    heartbeat.report(State.BACKING_OFF, "http_502", failures=2)

    written = row(memory)
    assert written is not None
    assert (written.since, written.heartbeat) == (1_790_000_000, 1_790_000_007)


def test_the_same_report_again_writes_nothing(memory: Memory, heartbeat: Heartbeat) -> None:
    heartbeat.report(State.RUNNING)
    before = memory.connection.total_changes
    heartbeat.report(State.RUNNING)

    assert memory.connection.total_changes == before


def test_a_success_goes_out_with_the_next_beat(
    memory: Memory, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    clock.pass_time(3)
    heartbeat.succeeded()
    clock.pass_time(2)
    heartbeat.beat()

    written = row(memory)
    assert written is not None
    assert (written.last_success_at, written.heartbeat) == (1_790_000_003, 1_790_000_005)


def test_a_row_that_cannot_be_written_is_told_once_and_written_later(
    memory: Memory, heartbeat: Heartbeat, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.fails = True
    heartbeat.beat()
    heartbeat.report(State.RUNNING)
    told = [line["event"] for line in logged(capsys)]
    memory.fails = False
    heartbeat.beat()

    assert told == ["heartbeat_failed"]
    written = row(memory)
    assert written is not None
    assert written.state is State.RUNNING


def test_the_row_goes_when_the_process_ends_unless_another_has_taken_over(
    memory: Memory, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    rows(memory).write(Component("poller", 1, State.RUNNING, None, NOW, NOW))
    remove_row(rows(memory), "poller")
    assert row(memory) is not None

    heartbeat.beat()
    remove_row(rows(memory), "poller")
    assert row(memory) is None


def test_processes_that_share_a_row_write_it_alike(memory: Memory, clock: FakeClock) -> None:
    """One that begins later says neither that it starts nor since when it runs by itself."""
    shared = Component("poller", 1, State.RUNNING, None, NOW, NOW)
    first = Heartbeat(rows(memory), "poller", clock, shared)
    clock.pass_time(100)
    Heartbeat(rows(memory), "poller", clock, shared)
    written = row(memory)
    clock.pass_time(1)
    first.beat()

    assert written == dataclasses.replace(shared, heartbeat=NOW + 100)
    assert row(memory) == dataclasses.replace(shared, heartbeat=NOW + 101)


def test_a_fault_of_ours_is_told_and_does_not_end_the_beats(
    memory: Memory, heartbeat: Heartbeat, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.connection.execute("ALTER TABLE components RENAME TO elsewhere")
    heartbeat.beat_whatever_happens()

    assert [(line["level"], line["event"]) for line in logged(capsys)] == [
        ("error", "heartbeat_failed")
    ]


def test_it_beats_until_the_block_ends_and_leaves_no_thread(
    memory: Memory, heartbeat: Heartbeat, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PERIOD", 0.01)
    assert memory.writes.acquire(timeout=0)  # the first row

    with beating(heartbeat):
        for _ in range(3):
            assert memory.writes.acquire(timeout=10)

    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]
