"""Whatever comes to the poller, and whatever fails: each message once, in order, none lost."""

import contextlib
import itertools
import json
from collections.abc import Callable
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from support.builders import BOT, CHAT, Gateway
from support.fake_clock import FakeClock
from support.quick_folder import quick_folder
from support.trap import Trap, fail, nothing
from telegrammer.errors import BrokenResponse, RateLimited, TelegrammerError, TimedOut
from telegrammer.heartbeat import Heartbeat
from telegrammer.model import MalformedUpdate, Update
from telegrammer.store.components import Components
from telegrammer.store.connection import Database
from telegrammer.store.inbox import Inbox
from telegrammer.telegram.parsing import parse_updates
from telegrammer_poller.loop import Poller, Rules
from telegrammer_sandbox.updates import UpdateQueue

MAX_JOBS: Final = 6
FIRST: Final = 1_000_000_000
WEEK: Final = 7 * 86400

Fault = TelegrammerError | None


class Telegram:
    """A bot's updates, and exchanges that fail before or after Telegram has acted."""

    def __init__(self, clock: FakeClock) -> None:
        self.queue = UpdateQueue(FIRST)
        self.confirmed: set[int] = set()
        self.fault: Fault = None
        self.is_late = False
        self._clock = clock

    def get_me(self) -> int:
        return BOT

    def get_webhook_url(self) -> str:
        return ""

    def drop_connection(self) -> None: ...

    def get_updates(
        self, offset: int | None, limit: int, timeout: int
    ) -> list[Update | MalformedUpdate]:
        self._clock.pass_time(1)
        if self.fault is not None and not self.is_late:
            raise self.fault
        taken = self.queue.take(offset or 0, limit, self._clock.now())
        self.confirmed.update(taken.confirmed)
        if self.fault is not None:
            raise self.fault
        return parse_updates("[" + ",".join(update.body.decode() for update in taken.updates) + "]")


class WhateverComes(RuleBasedStateMachine):
    """What was said is the model: each message is known by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.held = contextlib.ExitStack()
        self.path = self.held.enter_context(quick_folder()) / "t.db"
        self.gateway = Gateway(self.path)
        self.held.callback(self.gateway.close)
        self.database = self.held.enter_context(Database(self.path))
        self.trap = Trap(self.database)
        self.clock = FakeClock()
        self.telegram = Telegram(self.clock)
        self.start()
        owner, _ = self.gateway.key()
        self.subscriptions = [self.gateway.subscribe(owner, f"http://{n}/") for n in range(2)]
        self.numbers = itertools.count()
        self.weeks = itertools.count(1)
        self.wanted: dict[int, int] = {}  # update to number, of all that must be delivered
        self.malformed: set[int] = set()
        self.skipped: set[int] = set()
        self.delivered: list[tuple[int, int]] = []  # subscription and number

    def start(self) -> None:
        self.poller = Poller(
            self.telegram,
            Inbox(self.database),
            Heartbeat(Components(self.gateway.database), "poller", self.clock),
            Rules(poll_timeout=30, max_jobs=MAX_JOBS),
            database=self.path,
            clock=self.clock,
            spread=lambda: 0.0,
        )
        assert self.poller.turn() == 0  # it is bound

    # What the world does.

    KINDS = st.sampled_from(("wanted", "wanted", "wanted", "malformed", "of another chat"))
    SAID = st.lists(KINDS, max_size=5)

    def say(self, kinds: list[str]) -> None:
        for kind in kinds:
            update_id, number = self.telegram.queue.tail, next(self.numbers)
            chat = CHAT if kind == "wanted" else CHAT - 1
            message = {"message_id": number, "date": 1, "chat": {"id": chat, "type": "group"}}
            if kind == "wanted":
                self.wanted[update_id] = number
            if kind == "malformed":
                del message["date"]
                self.malformed.add(update_id)
            body = json.dumps({"update_id": update_id, "message": message})
            self.telegram.queue.add_raw(body.encode())

    def say_nothing_for_a_week(self, n: int) -> None:
        """Telegram forgets what waits, and goes on at other ids, lower or higher."""
        stored = self.stored()
        self.wanted = {key: number for key, number in self.wanted.items() if number in stored}
        self.clock.pass_time(WEEK)
        steps = next(self.weeks) * (1 if n == 3 else -1)
        self.telegram.queue.restart(FIRST + steps * 10_000_000)

    def deliver(self, n: int) -> None:
        oldest = list(self.jobs().items())[: n + 1]
        self.delivered += [job for _, job in oldest]
        with self.gateway.queue.turn() as turn:
            for job_id, _ in oldest:
                turn.delivered(job_id)

    def skip(self, _n: int) -> None:
        """As an operator does, who reads in the status which update holds the poller up."""
        update_id = Components(self.gateway.database).all()["poller"].update_id
        if update_id is not None:
            assert self.gateway.inbox.request_skip(update_id, int(self.clock.now()))
            self.skipped.add(update_id)

    def kill(self, _n: int) -> None:
        self.start()

    OTHERS = st.sampled_from((deliver, deliver, say_nothing_for_a_week, skip, kill))

    @rule(act=OTHERS, n=st.integers(0, 3))
    def others(self, act: Callable[["WhateverComes", int], None], n: int) -> None:
        act(self, n)

    # What the poller does.

    FAULTS = st.sampled_from(
        (None, None, TimedOut("timeout"), BrokenResponse("too_large"), RateLimited("", 3))
    )

    @rule(said=SAID, fault=FAULTS, is_late=st.booleans())
    def turn(self, said: list[str], fault: Fault = None, is_late: bool = False) -> None:
        """Late: Telegram has acted, and its answer is lost."""
        self.say(said)
        self.telegram.fault, self.telegram.is_late = fault, is_late
        delay = self.poller.turn()
        assert delay is not None
        self.clock.pass_time(delay)
        stored = self.stored()
        assert len(self.jobs()) <= MAX_JOBS
        for update_id in self.telegram.confirmed:
            assert update_id not in self.wanted or self.wanted[update_id] in stored, "lost"
        assert self.telegram.confirmed & self.malformed <= self.skipped, "passed over"

    STATEMENTS = st.sampled_from(("COMMIT", "INSERT", "UPDATE", "DELETE", ""))

    @rule(said=SAID, kind=STATEMENTS, place=st.integers(1, 4), is_late=st.booleans())
    def turn_without_storage(self, said: list[str], kind: str, place: int, is_late: bool) -> None:
        """Late: the statement was carried out, even a COMMIT, and says that it was not."""
        self.trap.before, self.trap.after = (nothing, fail) if is_late else (fail, nothing)
        self.trap.kind, self.trap.statements = kind, place
        self.turn(said)
        self.trap.statements = 0

    # What is to be seen.

    def jobs(self) -> dict[int, tuple[int, int]]:
        """Return the subscription and the number of each job, in order."""
        with self.gateway.database.read() as tx:
            rows = tx.execute("SELECT id, subscription_id, payload FROM deliveries ORDER BY id")
            return {row[0]: (row[1], json.loads(row[2])["message_id"]) for row in rows}

    def stored(self) -> set[int]:
        return {number for _, number in (*self.jobs().values(), *self.delivered)}

    def teardown(self) -> None:
        """Once the storms are over all is delivered that Telegram has not forgotten."""
        with self.held:
            for _ in range(500):
                self.deliver(MAX_JOBS)
                self.skip(0)
                self.turn([])
                if not self.telegram.queue and not self.jobs():
                    break
            for subscription in self.subscriptions:
                got = [number for whose, number in self.delivered if whose == subscription]
                assert got == sorted(self.wanted.values())


WhateverComes.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestWhateverComes = WhateverComes.TestCase
