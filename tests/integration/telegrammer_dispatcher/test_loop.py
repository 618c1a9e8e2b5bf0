"""The dispatcher's turns, with the clock and the receivers in the test's hands."""

import errno
import select
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.builders import BOT, NOW, Gateway, message
from support.fake_clock import FakeClock
from support.fake_sender import FakeSender
from support.log_lines import logged
from telegrammer import notification
from telegrammer.callbacks.outcome import Answer
from telegrammer.errors import StorageUnavailable
from telegrammer.heartbeat import Heartbeat
from telegrammer.model import State
from telegrammer.notification import Watch
from telegrammer.process import Stop
from telegrammer.store.components import Components
from telegrammer.store.connection import Database
from telegrammer.store.queue import PURGE_CHUNK, Counts, Look, Queue, Queued, Turn
from telegrammer_dispatcher.delivery import Budget, Flight
from telegrammer_dispatcher.loop import STOP_BUDGET, Dispatcher, Rules
from telegrammer_dispatcher.round import Round


class Bench:
    def __init__(self, path: Path, watch: Watch, slots: int = 4) -> None:
        self.gateway = Gateway(path)
        self.clock = FakeClock(NOW)
        self.sender = FakeSender(slots)
        self.database = Database(path)
        self.heartbeat = Heartbeat(Components(self.database), "dispatcher", self.clock)
        self.watch = watch
        self.dispatcher = self.new_dispatcher()

    def new_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.database,
            self.sender,
            self.watch,
            self.heartbeat,
            Rules(Budget(attempts=3, lifetime=86400), dead_retention=7 * 86400),
            self.clock,
            lambda: 0.0,
        )

    def start_again(self) -> None:
        """Let another dispatcher take over, which begins and ends without a delivery."""
        self.dispatcher = self.new_dispatcher()
        with Stop() as stop:
            stop.set()
            self.dispatcher.run(stop)
        self.dispatcher = self.new_dispatcher()

    def subscribe(self, count: int = 1) -> list[int]:
        owner, _ = self.gateway.key()
        return [self.gateway.subscribe(owner, f"http://{n}/cb?x") for n in range(count)]

    def turn(self, seconds: float = 1.0) -> list[int]:
        """Let time pass and a turn be taken; return the updates in flight."""
        self.clock.pass_time(seconds)
        self.dispatcher.turn(0)
        return sorted(flight.job.update_id for flight, _ in self.sender.flying)

    def answer(self, update_id: int, status: int, retry_after: str | None = None) -> None:
        self.sender.answer(update_id, Answer(status, retry_after=retry_after))

    def states(self) -> list[tuple[int, str, int]]:
        return [(row[1], row[3], row[4]) for row in self.gateway.jobs()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "t.db"
    with closing(Watch(path)) as watch:
        bench = Bench(path, watch)
        yield bench
        bench.database.close()
        bench.gateway.close()


def descriptor_of(watch: Watch) -> int:
    descriptor = watch.fileno()
    assert descriptor is not None
    return descriptor


def test_one_subscription_has_one_job_in_flight_and_is_served_in_order(bench: Bench) -> None:
    (subscription,) = bench.subscribe()
    bench.gateway.ingest(message(1, payload='{"é":1}'), message(2), message(3))

    assert bench.turn() == [1]
    assert bench.turn() == [1]
    ((flight, post),) = bench.sender.flying
    assert (post.origin, post.target, post.body) == ("http://0", "/cb?x", '{"é":1}'.encode())
    assert post.delivery_id == flight.delivery_id == f"{BOT}-{subscription}-1"

    bench.answer(1, 200)
    assert bench.turn() == [2]
    bench.answer(2, 200)
    assert bench.turn() == [3]


def test_a_claim_is_committed_before_its_post(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))

    bench.turn()

    assert bench.states() == [(1, "IN_FLIGHT", 1)]


def test_subscriptions_are_served_side_by_side_up_to_the_workers(bench: Bench) -> None:
    bench.subscribe(6)
    bench.gateway.ingest(message(1))

    assert bench.turn() == [1, 1, 1, 1]
    assert [state for _, state, _ in bench.states()].count("IN_FLIGHT") == 4


def test_none_starves_although_the_lanes_are_made_anew_again_and_again(bench: Bench) -> None:
    lanes = bench.subscribe(8)
    bench.gateway.ingest(*(message(i) for i in range(1, 9)))
    served: Counter[int] = Counter()
    for _ in range(8):
        bench.clock.jump(10)
        bench.turn()
        served.update(flight.job.subscription_id for flight, _ in bench.sender.flying)
        bench.sender.answer_all(Answer(200))

    assert served == dict.fromkeys(lanes, 4)


def test_a_retry_holds_back_its_own_subscription_alone(bench: Bench) -> None:
    owner, _ = bench.gateway.key()
    bench.gateway.subscribe(owner, "http://slow/", chat=1)
    bench.gateway.subscribe(owner, "http://fast/", chat=2)
    bench.gateway.ingest(*(message(i, chat=chat) for i, chat in [(1, 1), (2, 1), (3, 2), (4, 2)]))
    assert bench.turn() == [1, 3]

    bench.answer(1, 503)
    bench.answer(3, 200)

    assert bench.turn(0) == [4]
    assert bench.turn(1.0) == [1, 4]
    assert bench.states() == [(1, "IN_FLIGHT", 2), (2, "PENDING", 0), (4, "IN_FLIGHT", 1)]


def test_a_refusal_makes_a_dead_letter_and_the_next_goes_on(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1), message(2))
    bench.turn()

    bench.answer(1, 404)

    assert bench.turn() == [2]
    assert bench.gateway.queue.dead_jobs()[0].reason == "http_404"


def test_the_attempts_of_a_delivery_are_bounded(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    for _ in range(3):
        assert bench.turn(400) == [1]
        bench.answer(1, 500)
        assert bench.turn(0) == []

    assert bench.turn(400) == []
    assert bench.states() == [(1, "DEAD", 3)]


def test_a_revived_dead_letter_is_found_without_a_notification(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.answer(1, 404)
    assert bench.turn() == []

    assert bench.gateway.queue.revive(1, NOW)

    assert bench.turn() == [1]


def test_a_touch_of_the_notification_file_is_heard_before_the_next_look(bench: Bench) -> None:
    bench.subscribe()
    bench.turn()
    bench.gateway.ingest(message(1))
    assert bench.turn(0.1) == []

    bench.sender.readable = {descriptor_of(bench.watch)}

    assert bench.turn(0) == [1]


def test_a_notification_file_that_could_not_be_made_is_made_at_a_beat(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was full has room again; until then nothing could wake the dispatcher."""
    file = notification.path_of(bench.database.path)
    bench.turn()
    with monkeypatch.context() as patched:
        patched.setattr(notification, "_create", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        file.unlink()
        bench.watch.drain()
        bench.watch.drain()
    bench.turn(1)
    assert not file.exists()

    bench.turn(4)
    notification.touch(bench.database.path)

    assert select.select([descriptor_of(bench.watch)], [], [], 0)[0]


def test_the_queue_is_read_only_when_others_have_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle dispatcher looks every second, and a look is one number."""
    read = Mock(side_effect=bench.gateway.queue.look)
    bench.turn()
    bench.gateway.ingest(message(1))
    bench.turn()
    monkeypatch.setattr(Queue, "look", read)

    bench.turn()
    bench.turn()
    assert read.call_count == 0

    bench.gateway.ingest(message(2))
    bench.turn()
    assert read.call_count == 1


def test_what_comes_while_the_queue_is_read_is_found_at_the_next_look(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.subscribe()
    whole = Look.live

    def meanwhile(look: Look) -> Iterator[Queued]:
        yield from whole(look)
        bench.gateway.ingest(message(1))

    with monkeypatch.context() as patched:
        patched.setattr(Look, "live", meanwhile)
        assert bench.turn() == []

    assert bench.turn() == [1]


def test_a_queue_that_takes_long_to_read_is_read_less_often(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the time goes into it at most, however often others write."""
    bench.subscribe()
    whole = Look.live

    def slowly(look: Look) -> Iterator[Queued]:
        bench.clock.pass_time(2)
        yield from whole(look)

    monkeypatch.setattr(Look, "live", slowly)
    assert bench.turn() == []
    bench.gateway.ingest(message(1))

    assert bench.turn(17) == []
    assert bench.turn(1) == [1]


def test_a_subscription_deleted_in_flight_is_forgotten_without_an_error(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1), message(2))
    bench.turn()
    bench.gateway.keys.delete("app")

    bench.answer(1, 500)

    assert bench.turn() == []
    assert bench.turn(60) == []
    assert bench.states() == []


def test_what_is_gone_is_forgotten_although_its_lane_waits(bench: Bench) -> None:
    """A receiver may ask to wait for a day; by then a million deleted jobs could be kept."""
    bench.subscribe()
    bench.gateway.ingest(message(1), message(2))
    bench.turn()
    bench.answer(1, 503, retry_after="36000")
    bench.turn()
    bench.gateway.keys.delete("app")
    assert bench.dispatcher._lanes.next_due() is not None

    bench.turn(61)

    assert bench.dispatcher._lanes.next_due() is None


def test_a_clock_set_back_does_not_stop_deliveries(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.answer(1, 500)
    bench.turn(0)
    bench.gateway.ingest(message(2), now=int(bench.clock.now()))

    bench.clock.jump(-86400)

    assert bench.turn(0.1) == []
    assert bench.turn(2) == [1]
    bench.answer(1, 200)
    assert bench.turn(0.1) == [2]


@pytest.mark.parametrize("ahead", [90, 43200], ids=["by 90 s", "by half a day"])
def test_a_clock_set_back_while_no_dispatcher_runs_does_not_hold_back_retries(
    bench: Bench, ahead: int
) -> None:
    """As a machine starts whose clock was wrong until it asked the network."""
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.clock.jump(ahead)
    bench.start_again()
    bench.turn()
    bench.answer(1, 500)
    bench.turn()

    bench.clock.jump(-ahead)
    bench.start_again()

    assert bench.turn(5) == [1]


def test_a_start_on_a_clock_that_was_not_set_back_keeps_a_retry_after(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.answer(1, 503, retry_after="3600")
    bench.turn()

    bench.start_again()

    assert bench.turn(3590) == []
    assert bench.turn(20) == [1]


def test_a_clock_set_back_by_a_part_of_a_second_makes_no_retry_early(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.answer(1, 503, retry_after="60")
    bench.turn(0)

    bench.clock.jump(-30.5)

    assert bench.turn(59.7) == []
    assert bench.turn(1.5) == [1]


def test_a_clock_set_forward_makes_retries_due(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.answer(1, 503, retry_after="3600")
    assert bench.turn(5) == []

    bench.clock.jump(3600)

    assert bench.turn(0.1) == [1]


@pytest.mark.parametrize(
    ("seconds", "told"), [(-1.9, []), (-2, ["-2.0"]), (1.9, []), (2, ["2.0"]), (3600, ["3600.0"])]
)
def test_a_jump_of_the_clock_is_told_once(
    bench: Bench, capsys: pytest.CaptureFixture[str], seconds: float, told: list[str]
) -> None:
    bench.turn()
    bench.clock.jump(seconds)
    bench.turn()
    bench.turn()

    assert [line["seconds"] for line in logged(capsys) if line["event"] == "clock_jumped"] == told


def test_a_clock_that_is_slewed_never_jumps(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(10):
        bench.clock.jump(-0.5)
        bench.turn()

    assert not [line for line in logged(capsys) if line["event"] == "clock_jumped"]


@pytest.mark.parametrize("in_flight", [True, False], ids=["in flight", "waiting"])
def test_a_clock_set_forward_uses_up_no_lifetime(bench: Bench, in_flight: bool) -> None:
    """Then the time has not passed: what has failed once is tried again as before."""
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    if in_flight:
        bench.clock.jump(2 * 86400)
    bench.answer(1, 500)
    bench.turn(0.1)
    if not in_flight:
        bench.clock.jump(2 * 86400)

    assert bench.turn(2) == [1]
    bench.answer(1, 500)
    bench.turn(0.1)
    assert bench.states() == [(1, "PENDING", 2)]

    bench.turn(86400)
    assert bench.states() == [(1, "DEAD", 2)]


def test_a_clock_set_forward_and_back_gives_no_more_than_a_lifetime_anew(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.clock.jump(30 * 86400)
    bench.answer(1, 500)
    bench.turn(0)
    bench.clock.jump(-30 * 86400)

    assert bench.turn(5) == [1]
    bench.answer(1, 503, retry_after="86400")
    bench.turn(0.1)
    assert bench.states() == [(1, "DEAD", 2)]


def test_a_clock_set_forward_purges_nothing(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.answer(1, 404)
    bench.turn(0)

    bench.clock.jump(30 * 86400)
    bench.turn(61)
    assert bench.states() == [(1, "DEAD", 1)]

    bench.turn(7 * 86400)
    assert bench.states() == []


def test_what_was_decided_counts_only_once_it_is_written(bench: Bench) -> None:
    """While nobody can write, nothing is claimed, nothing is lost, nothing is sent twice."""
    bench.subscribe(1)
    bench.gateway.ingest(message(1), message(2))
    bench.turn()
    with bench.database.read() as tx:
        tx.execute("PRAGMA busy_timeout = 0")
    bench.answer(1, 200)
    with bench.gateway.database.write():
        assert bench.turn() == []
        assert bench.turn(0.5) == []
        assert bench.turn() == []
    assert bench.states() == [(1, "IN_FLIGHT", 1), (2, "PENDING", 0)]

    assert bench.turn() == [2]
    assert bench.states() == [(2, "IN_FLIGHT", 1)]


@pytest.mark.parametrize(
    ("part", "method"),
    [(Turn, "delivered"), (Turn, "retry"), (Turn, "claim"), (Round, "claim")],
    ids=["at an outcome", "at a retry", "at a claim", "at the end"],
)
def test_a_transaction_that_fails_half_way_leaves_every_job_where_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, part: type, method: str
) -> None:
    """Lane by lane: delivered with more to come, delivered as the last, retried, refused, new.

    Although the queue is so long that it is not read again so soon for less.
    """
    read = Look.live

    def read_slowly(look: Look) -> Iterator[Queued]:
        bench.clock.pass_time(1)
        yield from read(look)

    monkeypatch.setattr(Look, "live", read_slowly)
    owner, _ = bench.gateway.key()
    chats = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 1, 7: 3, 8: 4}
    for chat in range(1, 6):
        bench.gateway.subscribe(owner, f"http://{chat}/", chat=chat)
    bench.gateway.ingest(*(message(update, chat=chat) for update, chat in chats.items()))
    assert bench.turn() == [1, 2, 3, 4]
    for update, status in ((1, 200), (2, 200), (3, 503), (4, 404)):
        bench.answer(update, status)
    whole = getattr(part, method)

    def fail(*values: object) -> None:
        whole(*values)
        raise StorageUnavailable("disk_full")

    with monkeypatch.context() as patched:
        patched.setattr(part, method, fail)
        assert bench.turn() == []
        assert bench.turn() == []
    assert [state for _, state, _ in bench.states()] == ["IN_FLIGHT"] * 4 + ["PENDING"] * 4

    assert bench.turn() == [5, 6, 8]
    for update in (5, 6, 8):
        bench.answer(update, 200)
    assert bench.turn() == [3]
    bench.answer(3, 200)
    assert bench.turn() == [7]
    assert bench.states() == [(4, "DEAD", 1), (7, "IN_FLIGHT", 1)]


def test_a_reading_of_the_queue_that_breaks_off_is_begun_anew(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job is forgotten, whatever it had brought before."""
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    bench.gateway.ingest(message(2), message(3))
    whole = Look.new

    def break_off(look: Look, after: int) -> Iterator[Queued]:
        yield next(whole(look, after))
        raise StorageUnavailable("io_error")

    with monkeypatch.context() as patched:
        patched.setattr(Look, "new", break_off)
        assert bench.turn() == [1]
    for update_id in (1, 2, 3):
        bench.answer(update_id, 200)
        bench.turn(2)

    assert bench.states() == []


def test_a_turn_waits_for_a_lock_once_whatever_is_due_in_it(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each wait may take the busy timeout, and a stop is only heard between two turns."""
    bench.turn(0)
    bench.subscribe(1)
    bench.gateway.ingest(message(1))
    with bench.database.read() as tx:
        tx.execute("PRAGMA busy_timeout = 0")
    with bench.gateway.database.write():
        bench.turn(60)

    assert [line["event"] for line in logged(capsys)] == ["storage_unavailable"]


def test_dead_letters_are_purged_at_the_start_and_every_minute(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1), message(2))
    with bench.gateway.queue.turn() as turn:
        turn.dead(1, NOW - 8 * 86400, "http_404")
        turn.dead(2, NOW - 7 * 86400 + 30, "http_404")

    bench.turn()
    assert bench.states() == [(2, "DEAD", 0)]
    bench.turn(61)
    assert bench.states() == []
    told = [(line["level"], line["event"], line["dead_jobs"]) for line in logged(capsys)]
    assert told == [("warning", "purged", "1")] * 2


def test_a_purge_of_many_is_made_in_parts_and_told_once(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """Callbacks run meanwhile: the time that a turn takes counts as theirs."""
    many = PURGE_CHUNK + 1
    bench.subscribe()
    bench.gateway.ingest(*(message(n) for n in range(1, many + 1)))
    with bench.gateway.queue.turn() as turn:
        for job_id in range(1, many + 1):
            turn.dead(job_id, NOW - 8 * 86400, "http_404")

    bench.turn(0)
    assert len(bench.states()) == 1
    bench.turn(0)
    assert bench.states() == []
    told = [line["dead_jobs"] for line in logged(capsys) if line["event"] == "purged"]
    assert told == [str(many)]


def test_a_row_that_holds_no_url_of_ours_is_no_crash(bench: Bench) -> None:
    bench.subscribe()
    with bench.gateway.database.write() as tx:
        tx.execute("UPDATE subscriptions SET callback_url = 'gopher://x'")
    bench.gateway.ingest(message(1))

    assert bench.turn() == []
    bench.turn(0)

    assert bench.gateway.jobs()[0][3:] == ("PENDING", 1, "bad_url")


def test_a_stop_lets_running_callbacks_end_and_writes_their_outcome(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1), message(2))
    bench.turn()
    longest = bench.clock.monotonic() + 45  # seconds; no callback may take more

    class Ends(FakeSender):
        def wait(self, seconds: float) -> tuple[list[tuple[Flight, Answer]], set[int]]:
            if self.flying and bench.clock.monotonic() >= longest:
                self.answer(1, Answer(200))
            bench.clock.pass_time(1)
            return super().wait(seconds)

    bench.sender.__class__ = Ends
    with Stop() as stop:
        stop.set()
        bench.dispatcher.run(stop)

    assert bench.states() == [(2, "PENDING", 0)]


def test_a_stop_does_not_wait_long_for_a_lock(bench: Bench) -> None:
    """50 s are promised, and the last turn may begin when nearly all of them are over."""
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()

    with Stop() as stop, ExitStack() as lock:

        class Late(FakeSender):
            def wait(self, seconds: float) -> tuple[list[tuple[Flight, Answer]], set[int]]:
                lock.enter_context(bench.gateway.database.write())
                self.answer(1, Answer(200))
                bench.clock.pass_time(STOP_BUDGET)
                return super().wait(seconds)

        bench.sender.__class__ = Late
        stop.set()
        began = time.monotonic()
        bench.dispatcher.run(stop)
        took = time.monotonic() - began

    assert took < 4


def test_the_time_to_stop_counts_from_the_turn_in_which_the_stop_came(bench: Bench) -> None:
    """A lock may hold up that turn for a while, and a supervisor counts from its signal."""
    bench.subscribe()
    bench.gateway.ingest(message(1))
    bench.turn()
    asked_at = bench.clock.monotonic()

    with Stop() as stop:

        class HeldUp(FakeSender):
            def wait(self, seconds: float) -> tuple[list[tuple[Flight, Answer]], set[int]]:
                bench.clock.pass_time(1 if stop.is_set() else 10)
                stop.set()
                return super().wait(seconds)

        bench.sender.__class__ = HeldUp
        bench.dispatcher.run(stop)

    assert bench.clock.monotonic() == asked_at + STOP_BUDGET


def test_what_is_out_of_budget_is_buried_and_the_next_goes_on(bench: Bench) -> None:
    """As a crash between the last attempt and its outcome leaves it."""
    bench.subscribe()
    bench.gateway.ingest(message(1), message(2))
    with bench.gateway.database.write() as tx:
        tx.execute("UPDATE deliveries SET attempt_count = 3 WHERE id = 1")

    assert bench.turn() == [2]
    assert bench.states() == [(1, "DEAD", 3), (2, "IN_FLIGHT", 1)]


def test_it_says_that_it_runs_and_beats_every_five_seconds(bench: Bench) -> None:
    bench.turn(0)
    bench.turn(5)

    row = Components(bench.gateway.database).all()["dispatcher"]
    assert (row.state, row.heartbeat) == (State.RUNNING, NOW + 5)


def test_what_a_dispatcher_before_had_in_flight_is_put_back(bench: Bench) -> None:
    bench.subscribe()
    bench.gateway.ingest(message(1))
    with bench.gateway.queue.turn() as turn:
        turn.claim(1)
    with Stop() as stop:
        stop.set()
        bench.dispatcher.run(stop)

    assert bench.gateway.queue.counts() == Counts(1, 0, 0)
