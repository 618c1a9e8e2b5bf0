"""Hazards that change what there is: chats, keys, update ids."""

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Final

from fire.diary import Excuse
from fire.hazards import BadReceivers, Hazard
from fire.receivers import TO_REFUSE
from fire.stack import TICK
from fire.telegram_faults import poll_fault
from fire.world import KEYS, World

_HEARING: Final = 5.0  # seconds in which the poller must have heard of all, or nothing happens
_NEAR: Final = 10_000  # update ids: more than there are messages in a campaign
_REFUSING: Final = 10.0  # seconds in which something must have been refused
_ADOPTING: Final = 10.0  # seconds that a poller may take from its start to the new ids


class GroupMoves(Hazard):
    """A group with live jobs becomes a supergroup; one of its programs knew the new id before."""

    resources = ("chats",)
    seconds = (1.5, 4.0)

    def start(self, world: World) -> None:
        world.coming = world.next_group()
        if world.coming is None:
            world.diary.count("groups that had all moved")

    def heal(self, world: World) -> None:
        if world.coming is not None:
            group, supergroup = world.coming
            world.coming = None
            with world.talking:
                world.say_much("before", group)
                world.move(group, supergroup)
                world.say_much("after", supergroup)


class SubscriptionsDeleted(Hazard):
    """Programs delete many subscriptions that have live jobs."""

    resources = ("programs",)
    seconds = (0.3, 1.0)

    def start(self, world: World) -> None:
        world.say_much("before", *world.chats)
        world.is_leaving_time = True

    def heal(self, world: World) -> None:
        world.is_leaving_time = False


class KeyDeleted(Hazard):
    """An operator deletes a key with live jobs, and makes another of the same name."""

    resources = ("operator",)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.detail = self._name = rng.choice(KEYS)

    def start(self, world: World) -> None:
        world.say_much("before", *world.chats)
        world.delete_key(self._name)

    def heal(self, world: World) -> None:
        world.replace_key(self._name)


class DeadLettersRevived(BadReceivers):
    """Receivers refuse what comes; an operator has it tried again while newer ones run."""

    resources = ("operator", *BadReceivers.resources)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, TO_REFUSE)
        self._most = rng.randint(2, 6)

    def start(self, world: World) -> None:
        super().start(world)
        world.say_much("refused", *world.chats)

    def heal(self, world: World) -> None:
        _until(world.has_dead_letters, _REFUSING)
        super().heal(world)
        world.say_much("after", *world.chats)
        world.revive_dead_letters(self._most)


class QuietWeek(Hazard):
    """Nobody writes for a week, and Telegram goes on at a random update id.

    The poller is killed, or not, when it has been given the first of the new ids and
    cannot write, or when it has just written it.
    """

    resources = ("process", "getUpdates", "clock")

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        lower, higher = (2_000_001, 99_000_000), (101_000_000, 1_000_000_000)
        self._first = rng.randrange(*rng.choice((lower, lower, lower, higher)))
        self._killed = rng.choice(("", "before", "after"))
        self._is_stopped = False
        self._has_passed = False
        kill = f", killed {self._killed}" if self._killed else ""
        self.detail = f"from {self._first}{kill}"

    def start(self, world: World) -> None:
        with world.talking:
            self._has_passed = self._pass(world)
            if not self._has_passed:
                world.diary.count("quiet weeks that could not be")

    def _pass(self, world: World) -> bool:
        """Let a week pass with the poller stopped, if it has heard all and can be told so."""
        if not _until(lambda: not world.telegram.waiting(), _HEARING):
            return False
        with world.stack.services["poller"].lock:
            world.stack.stop("poller")
            self._is_stopped = True
            if not world.let_a_week_pass():
                return False
            world.restart_ids(self._first)
            return True

    def heal(self, world: World) -> None:
        if not self._is_stopped:
            return
        if self._killed == "before" and self._has_passed:
            self._kill_before_it_is_written(world)
        elif self._killed == "after" and self._has_passed:
            self._kill_after_it_is_written(world)
        world.stack.again("poller")

    def _kill_before_it_is_written(self, world: World) -> None:
        """Let the poller get the ids while another holds the write lock."""
        held = poll_fault("held")
        world.telegram.set_fault(held)
        world.stack.again("poller")
        if _until(lambda: world.telegram.is_given(self._first, "held"), _ADOPTING):
            with _write_lock(world):
                world.telegram.release()
                _until(lambda: world.telegram.is_given(self._first, "answered"), _ADOPTING)
                world.stack.kill("poller")
        else:
            world.telegram.remove_fault(held)
            world.stack.kill("poller")

    def _kill_after_it_is_written(self, world: World) -> None:
        world.stack.again("poller")
        new = range(self._first + 1, self._first + _NEAR)
        _until(lambda: world.cursor() in new, _ADOPTING, pause=0.002)
        world.stack.kill("poller")


def _until(holds: Callable[[], bool], seconds: float, pause: float = TICK) -> bool:
    """Wait until it holds; False when it does not within so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


@contextlib.contextmanager
def _write_lock(world: World) -> Iterator[None]:
    """Hold the database's write lock, if it can be had."""
    connection = sqlite3.connect(world.database, timeout=4, isolation_level=None)
    with world.diary.excused(Excuse.STORAGE), contextlib.closing(connection):
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
        yield
