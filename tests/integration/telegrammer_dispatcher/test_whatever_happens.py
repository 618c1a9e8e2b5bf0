"""Whatever happens around the dispatcher, and in whatever order: what a delivery can rely on."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from support.builders import Gateway, message
from support.fake_clock import FakeClock
from support.fake_sender import FakeSender
from support.quick_folder import quick_folder
from support.trap import Trap, fail, nothing
from telegrammer.callbacks.outcome import Answer
from telegrammer.errors import StorageUnavailable
from telegrammer.heartbeat import Heartbeat
from telegrammer.model import Message, Update
from telegrammer.notification import Watch
from telegrammer.process import Stop
from telegrammer.store.components import Components
from telegrammer.store.connection import Database
from telegrammer_dispatcher.delivery import Budget, Flight
from telegrammer_dispatcher.loop import LOOK, STORAGE_DELAY, Dispatcher, Rules

CHATS: Final = (-1, -2)
SLOTS: Final = 2
BUDGET: Final = Budget(attempts=3, lifetime=3600)
ANSWERS: Final = (
    *(Answer(status) for status in (200, 404, 500)),
    Answer(429, retry_after="900"),
)

Row = tuple[int, ...]


class NotNotified(Watch):
    """As where the system has no watch left: the kernel takes its time to close each of them."""

    def __init__(self) -> None:
        self._inotify = None


class WhateverHappens(RuleBasedStateMachine):
    """The database, seen by another connection, is the model."""

    def __init__(self) -> None:
        super().__init__()
        self.held = contextlib.ExitStack()
        path = self.held.enter_context(quick_folder()) / "t.db"
        self.gateway = Gateway(path)
        self.held.callback(self.gateway.close)
        self.database = self.held.enter_context(Database(path))
        for database in (self.gateway.database, self.database):
            database.wait_for_locks(0)
        self.trap = Trap(self.database)
        self.watch = NotNotified()
        self.clock = FakeClock()
        self.sender = FakeSender(SLOTS)
        self.start()
        self.names = map(str, itertools.count())
        self.update_ids = itertools.count(1)
        self.waiting: set[int] = set()  # jobs that nobody deleted and nobody accepted
        self.attempts: Counter[int] = Counter()
        self.accepted: set[int] = set()
        self.unseen: set[int] = set()  # revived since the dispatcher last looked
        for name in ("a", "b"):
            owner, _ = self.gateway.key(name)
            for chat in CHATS:
                self.gateway.subscribe(owner, "http://a/", chat)

    def start(self) -> None:
        self.resume_at = self.clock.monotonic()
        self.dispatcher = Dispatcher(
            self.database,
            self.sender,
            self.watch,
            Heartbeat(Components(self.database), "dispatcher", self.clock),
            Rules(BUDGET, dead_retention=10**9),
            self.clock,
            lambda: 0.0,
        )

    def rows(self, sql: str) -> list[Row]:
        with self.gateway.database.read() as tx:
            return tx.execute(sql).fetchall()

    def ids(self, where: str = "TRUE") -> set[int]:
        return {row[0] for row in self.rows(f"SELECT id FROM deliveries WHERE {where}")}

    # What others do; ``n`` chooses.

    def ingest(self, n: int) -> None:
        chats = CHATS[n % 2 :]
        updates = (message(next(self.update_ids), chat) for chat in chats)
        self.gateway.ingest(*updates, now=int(self.clock.now()))

    def become_a_supergroup(self, n: int) -> None:
        moved = Message(CHATS[n % 2], "{}", migrated_to=CHATS[(n + 1) % 2])
        self.gateway.ingest(Update(next(self.update_ids), moved))

    def subscribe(self, n: int) -> None:
        owner, _ = self.gateway.key(next(self.names))
        self.gateway.subscribe(owner, "http://a/", CHATS[n % 2])

    def unsubscribe(self, n: int) -> None:
        found = self.rows("SELECT owner_id, id FROM subscriptions")
        for owner, subscription in found[n : n + 1]:
            self.gateway.subscriptions.delete(owner, subscription)

    def delete_key(self, n: int) -> None:
        for key in self.gateway.keys.all()[n : n + 1]:
            self.gateway.keys.delete(key.name)

    def revive(self, n: int) -> None:
        for dead in self.gateway.queue.dead_jobs()[n : n + 1]:
            self.gateway.queue.revive(dead.id, int(self.clock.now()))
            self.unseen.add(dead.id)
            self.attempts[dead.id] = 0

    def delete_dead(self, n: int) -> None:
        for dead in self.gateway.queue.dead_jobs()[n : n + 1]:
            self.gateway.queue.delete_dead(dead.id)

    OTHERS = (
        *(ingest, ingest, ingest, become_a_supergroup, subscribe, unsubscribe, delete_key),
        *(revive, revive, revive, delete_dead),
    )

    @rule(act=st.sampled_from(OTHERS), n=st.integers(0, 3))
    def others(self, act: Callable[["WhateverHappens", int], None], n: int) -> None:
        before = self.ids()
        with contextlib.suppress(StorageUnavailable):  # while the dispatcher writes
            act(self, n)
        after = self.ids()
        self.waiting = (self.waiting - (before - after)) | (after - before)

    # What the world does.

    @rule(seconds=st.sampled_from((-4000, -1, 1, 4000)))
    def set_clock(self, seconds: int) -> None:
        self.clock.jump(seconds)

    @rule()
    def kill(self) -> None:
        self.sender.flying.clear()
        self.sender.answers.clear()
        self.waiting -= self.accepted - self.ids()
        self.accepted.clear()
        self.start()
        with Stop() as stop:
            stop.set()
            self.dispatcher.run(stop)
        self.start()

    # What the dispatcher does.

    TIMES = st.sampled_from((0, 0, 1, 1, 5, 60, 1000))
    COMES = st.lists(st.sampled_from(ANSWERS), max_size=SLOTS)
    KINDS = st.sampled_from(("COMMIT", "BEGIN", "SELECT", "UPDATE", "DELETE", ""))
    PLACES = st.integers(1, 4)

    @rule(seconds=TIMES, answers=COMES)
    def turn(self, seconds: int, answers: list[Answer]) -> None:
        is_clear = self.take_turn(seconds, answers)
        if is_clear and seconds >= LOOK and self.sender.free:
            assert not self.idle_heads()

    @rule(seconds=TIMES, answers=COMES, kind=KINDS, place=PLACES, is_late=st.booleans())
    def turn_without_storage(
        self, seconds: int, answers: list[Answer], kind: str, place: int, is_late: bool
    ) -> None:
        """Late: the statement was carried out, even a COMMIT, and says that it was not."""
        self.trap.before, self.trap.after = (nothing, fail) if is_late else (fail, nothing)
        self.take_turn(seconds, answers, kind, place)
        self.resume_at = self.clock.monotonic() + STORAGE_DELAY

    @rule(
        seconds=TIMES,
        answers=COMES,
        kind=KINDS,
        place=PLACES,
        act=st.sampled_from(OTHERS),
        n=st.integers(0, 3),
    )
    def turn_with_others(
        self,
        seconds: int,
        answers: list[Answer],
        kind: str,
        place: int,
        act: Callable[["WhateverHappens", int], None],
        n: int,
    ) -> None:
        self.trap.before, self.trap.after = (lambda: self.others(act, n)), nothing
        self.take_turn(seconds, answers, kind, place)

    def take_turn(
        self, seconds: int, answers: list[Answer], kind: str = "", place: int = 0
    ) -> bool:
        """Check what is true of every turn; tell whether it could do all that it wanted."""
        for answer in answers[: len(self.sender.flying)]:
            flight, _ = self.sender.flying.pop(0)
            self.sender.answers.append((flight, answer))
            if answer.status == 200:
                self.accepted.add(flight.job.id)
        if seconds >= LOOK:
            self.unseen.clear()
        flying = list(self.sender.flying)
        self.clock.pass_time(seconds)
        self.trap.kind, self.trap.statements = kind, place
        self.dispatcher.turn(0)
        self.trap.statements = 0
        assert self.waiting - self.ids() <= self.accepted, "lost"
        self.waiting &= self.ids()
        subscriptions = [flight.job.subscription_id for flight, _ in self.sender.flying]
        assert len(subscriptions) == len(set(subscriptions)), "two at once"
        for flight, post in self.sender.flying:
            if (flight, post) not in flying:
                self.check_start(flight)
        return self.clock.monotonic() >= self.resume_at

    def check_start(self, flight: Flight) -> None:
        job, subscription = flight.job.id, flight.job.subscription_id
        claimed = self.rows(
            "SELECT attempt_count FROM deliveries JOIN subscriptions s ON s.id = subscription_id"
            f" WHERE deliveries.id = {job} AND state = 'IN_FLIGHT'"
        )
        assert claimed == [(flight.attempt,)]
        assert flight.attempt == 1 or flight.job.next_attempt_at <= self.clock.now(), "early"
        assert job not in self.accepted, "sent again"
        self.attempts[job] += 1
        assert self.attempts[job] <= BUDGET.attempts, "too often"
        elders = self.ids(f"state <> 'DEAD' AND subscription_id = {subscription} AND id < {job}")
        assert elders <= self.unseen, "out of order"

    def idle_heads(self) -> list[Row]:
        """Return the oldest jobs that are due, of subscriptions with none in flight."""
        busy = {flight.job.subscription_id for flight, _ in self.sender.flying}
        heads = self.rows(
            "SELECT min(id), subscription_id, attempt_count, next_attempt_at FROM deliveries"
            " WHERE state <> 'DEAD' GROUP BY subscription_id"
        )
        now = self.clock.now()
        return [row for row in heads if row[1] not in busy and (row[2] == 0 or row[3] <= now)]

    def teardown(self) -> None:
        """Once the storms are over every job is delivered, and the dispatcher rests."""
        with self.held:
            for _ in range(100):
                self.turn(60, [Answer(200)] * SLOTS)
                if not (self.sender.flying or self.ids("state <> 'DEAD'")):
                    break
            assert not self.ids("state <> 'DEAD'")
            self.turn(1, [])
            assert self.dispatcher._timeout() > 0


WhateverHappens.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestWhateverHappens = WhateverHappens.TestCase
