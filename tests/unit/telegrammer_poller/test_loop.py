"""The poller's turns: what each answer of Telegram makes it do next."""

import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from support.builders import BOT, CHAT, Gateway, message
from support.fake_clock import FakeClock
from support.log_lines import log_put_back, logged
from telegrammer import logs
from telegrammer.errors import (
    BrokenResponse,
    Cut,
    PollingRefused,
    RateLimited,
    TelegrammerError,
    TimedOut,
    UpstreamFailed,
    WrongBot,
)
from telegrammer.heartbeat import Heartbeat
from telegrammer.model import MalformedUpdate, Message, State, Update
from telegrammer.process import Stop
from telegrammer.store.components import Component, Components
from telegrammer.store.connection import Database
from telegrammer_poller.loop import Poller, Rules

Answer = Sequence[Update | MalformedUpdate] | TelegrammerError


class FakeTelegram:
    """Gives the scripted answers in turn; keeps what it was asked."""

    def __init__(self, clock: FakeClock) -> None:
        self.bot_id = BOT
        self.answers: list[Answer] = []
        self.asked: list[tuple[int | None, int]] = []
        self.dropped = 0
        self.webhook: str | TelegrammerError = ""
        self.get_me_error: TelegrammerError | None = None
        self.poll_takes = 30.0
        self.when_done: Callable[[], object] = lambda: None
        self._clock = clock

    def get_me(self) -> int:
        if self.get_me_error is not None:
            raise self.get_me_error
        return self.bot_id

    def get_updates(
        self, offset: int | None, limit: int, timeout: int
    ) -> list[Update | MalformedUpdate]:
        assert timeout == 30
        self.asked.append((offset, limit))
        self._clock.pass_time(self.poll_takes)
        answer = self.answers.pop(0) if self.answers else []
        if not self.answers:
            self.when_done()
        if isinstance(answer, TelegrammerError):
            raise answer
        return list(answer)

    def get_webhook_url(self) -> str:
        if isinstance(self.webhook, TelegrammerError):
            raise self.webhook
        return self.webhook

    def drop_connection(self) -> None:
        self.dropped += 1


class Watched(Stop):
    """Notes for how long is waited, and lets that time pass at once."""

    def __init__(self, clock: FakeClock, then: Callable[[int], object]) -> None:
        super().__init__()
        self.waits: list[float | None] = []
        self._clock = clock
        self._then = then

    def wait(self, seconds: float | None) -> bool:
        self.waits.append(seconds)
        self._clock.pass_time(seconds or 0)
        self._then(len(self.waits))
        return super().wait(0)


class Bench:
    """A poller with everything around it."""

    def __init__(self, path: Path) -> None:
        self.gateway = Gateway(path)
        self.clock = FakeClock()
        self.telegram = FakeTelegram(self.clock)
        self.heartbeat = Heartbeat(Components(self.gateway.database), "poller", self.clock)
        self.path = path
        self.poller = self.new_poller()

    def new_poller(self, max_jobs: int = 1000) -> Poller:
        return Poller(
            self.telegram,
            self.gateway.inbox,
            self.heartbeat,
            Rules(poll_timeout=30, max_jobs=max_jobs),
            database=self.path,
            clock=self.clock,
            spread=lambda: 0.0,
        )

    def turns(self, *answers: Answer) -> list[float | None]:
        """Let the poller take a turn for each answer; return the delays."""
        self.telegram.answers += answers
        return [self.poller.turn() for _ in answers]

    def run(
        self, *answers: Answer, then: Callable[[int], object] = lambda _waits: None
    ) -> list[float | None]:
        """Let the poller run until it has got the answers; return for how long it waited.

        ``then`` is called after each wait, with their number.
        """
        self.telegram.answers += answers
        stop = Watched(self.clock, then)
        with stop:
            self.telegram.when_done = stop.set
            self.poller.run(stop)
        return stop.waits

    def row(self) -> Component:
        return Components(self.gateway.database).all()["poller"]

    def state(self) -> tuple[State, str | None, int]:
        row = self.row()
        return row.state, row.reason, row.consecutive_failures


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "t.db")
    yield bench
    bench.gateway.close()


@pytest.fixture
def bound(bench: Bench) -> Bench:
    assert bench.poller.turn() == 0
    return bench


def subscribe(bench: Bench) -> None:
    owner, _ = bench.gateway.key()
    bench.gateway.subscribe(owner, "http://a/")


def malformed(update_id: int | None, text: str = '{"x":1}') -> MalformedUpdate:
    return MalformedUpdate(update_id, "message.date is not an integer", text)


def test_it_runs_as_soon_as_the_bot_is_known(bound: Bench) -> None:
    """An idle bot's first long poll lasts half a minute: nobody waits for that."""
    assert bound.state() == (State.RUNNING, None, 0)


def test_the_first_poll_confirms_nothing_and_the_next_goes_on_behind_the_batch(
    bound: Bench,
) -> None:
    subscribe(bound)

    delays = bound.turns([message(7), message(8)], [])

    assert delays == [0, 0]
    assert bound.telegram.asked == [(None, 100), (9, 100)]
    assert [row[1] for row in bound.gateway.jobs()] == [7, 8]
    assert bound.state() == (State.RUNNING, None, 0)
    bound.heartbeat.beat()
    assert bound.row().last_success_at == int(bound.clock.now())


def test_a_batch_touches_the_notification_file_only_when_it_made_jobs(bound: Bench) -> None:
    notify = bound.path.with_name("t.db.notify")
    bound.turns([message(7)])
    assert not notify.exists()

    subscribe(bound)
    bound.turns([message(8)])

    assert notify.exists()


def test_debug_lines_name_the_chat_of_each_update(
    bound: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_put_back():
        logs.set_up("poller", "text", "debug", [])
        bound.turns([message(7, chat=-42), Update(8)])

    named = [line for line in logged(capsys) if line["event"] == "update"]
    assert [(line["update"], line["chat"]) for line in named] == [("7", "-42"), ("8", "-")]


def test_failures_back_off_to_a_minute_and_a_good_batch_ends_that(bound: Bench) -> None:
    delays = bound.turns(*[TimedOut("timeout")] * 8)

    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    assert bound.state() == (State.BACKING_OFF, "timeout", 8)
    assert bound.telegram.dropped == 8

    assert bound.turns([message(1)], TimedOut("timeout")) == [0, 1]


def test_a_retry_after_is_never_less_than_the_backoff(bound: Bench) -> None:
    delays = bound.turns(*[RateLimited("", 1)] * 6)

    assert delays == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize(
    ("error", "delay", "reason"),
    [
        (UpstreamFailed(502), 1, "http_502"),
        (UpstreamFailed(400), 1, "http_400"),
        (RateLimited("", 30), 30, "rate_limited"),
        (RateLimited("", 10072), 10072, "rate_limited"),
        (RateLimited("", None), 1, "rate_limited"),
    ],
)
def test_every_failure_has_a_delay_and_a_reason(
    bound: Bench, error: TelegrammerError, delay: float, reason: str
) -> None:
    assert bound.turns(error) == [delay]
    assert bound.state() == (State.BACKING_OFF, reason, 1)


@pytest.mark.parametrize(
    ("code", "webhook", "reason"),
    [
        (401, "", "token_refused"),
        (404, "", "token_refused"),
        (409, "", "other_poller"),
        (409, "https://elsewhere/", "webhook_set"),
        (409, TimedOut("timeout"), "other_poller"),
        (409, UpstreamFailed(502), "other_poller"),
    ],
)
def test_a_refusal_stops_polling_and_says_which(
    bound: Bench, code: int, webhook: str | TelegrammerError, reason: str
) -> None:
    bound.telegram.webhook = webhook

    assert bound.turns(PollingRefused(code)) == [None]
    assert bound.state()[:2] == (State.STOPPED, reason)
    assert bound.telegram.dropped == 1


@pytest.mark.parametrize("code", [401, 404, 409])
def test_after_a_refusal_nothing_is_asked_until_the_stop(bound: Bench, code: int) -> None:
    """Two pollers of one bot would else take turns at being refused."""
    assert bound.run(PollingRefused(code)) == [None]


def test_where_nobody_says_whether_a_webhook_stands_the_refusals_own_words_count(
    bound: Bench,
) -> None:
    bound.telegram.webhook = TimedOut("timeout")
    words = "Conflict: can't use getUpdates method while webhook is active"

    assert bound.turns(PollingRefused(409, words)) == [None]
    assert bound.state()[:2] == (State.STOPPED, "webhook_set")


def test_the_poller_is_starting_until_get_me_has_succeeded(bench: Bench) -> None:
    bench.telegram.get_me_error = TimedOut("timeout")

    assert [bench.poller.turn(), bench.poller.turn()] == [1, 2]
    assert bench.state() == (State.STARTING, "timeout", 2)
    assert bench.telegram.asked == []

    bench.telegram.get_me_error = None
    assert bench.poller.turn() == 0
    assert bench.turns([]) == [0]
    assert bench.state() == (State.RUNNING, None, 0)


def test_failures_before_the_bot_was_known_do_not_count_with_those_after(bench: Bench) -> None:
    bench.telegram.get_me_error = TimedOut("timeout")
    for _ in range(3):
        bench.poller.turn()
    bench.telegram.get_me_error = None
    bench.poller.turn()

    assert bench.turns(TimedOut("timeout")) == [1]
    assert bench.state() == (State.BACKING_OFF, "timeout", 1)


def test_another_bots_database_is_refused_before_anything_is_read(bench: Bench) -> None:
    bench.telegram.bot_id = 42

    with pytest.raises(WrongBot):
        bench.poller.turn()

    assert bench.telegram.asked == []


def test_a_refused_token_at_the_start_stops_too(bench: Bench) -> None:
    bench.telegram.get_me_error = PollingRefused(401)

    assert bench.poller.turn() is None
    assert bench.state()[:2] == (State.STOPPED, "token_refused")


def test_a_cut_exchange_is_no_failure(bound: Bench) -> None:
    assert bound.turns(Cut("cut")) == [0]
    assert bound.row().consecutive_failures == 0


def test_a_malformed_update_fails_its_batch_and_fewer_are_asked_for(bound: Bench) -> None:
    batch: Answer = [message(1), malformed(2), message(3)]

    bound.turns(batch, [message(1)], [malformed(2), message(3)])

    assert [limit for _, limit in bound.telegram.asked] == [100, 1, 2]
    assert bound.gateway.inbox.cursor() == 2
    assert bound.state() == (State.BACKING_OFF, "malformed_update", 1)
    assert bound.row().update_id == 2


def test_the_number_asked_for_goes_down_to_one_and_up_to_a_hundred(bound: Bench) -> None:
    refused: list[Answer] = [
        [malformed(2), *map(message, range(3, 2 + n))] for n in (100, 50, 25, 12, 6, 3, 1)
    ]
    bound.turns(*refused, *[[malformed(2)]] * 2, *[[message(n)] for n in range(8)])

    limits = [limit for _, limit in bound.telegram.asked]
    assert limits == [100, 50, 25, 12, 6, 3, 1, 1, 1, 1, 2, 4, 8, 16, 32, 64, 100]


@pytest.mark.parametrize("error", [BrokenResponse("too_large"), UpstreamFailed(200)])
def test_fewer_are_asked_for_where_one_update_may_spoil_an_answer(
    bound: Bench, error: TelegrammerError
) -> None:
    """It is too large, or cannot be read: those in front of the bad one would never come."""
    bound.turns(error, error, [message(1)], [])

    assert [limit for _, limit in bound.telegram.asked] == [100, 50, 25, 50]


def test_an_answer_that_cannot_be_used_is_not_called_by_its_good_status(bound: Bench) -> None:
    bound.turns(UpstreamFailed(200))

    assert bound.state() == (State.BACKING_OFF, "bad_answer", 1)


def test_a_skip_passes_over_exactly_that_update_and_keeps_its_bytes(bound: Bench) -> None:
    subscribe(bound)
    bound.gateway.inbox.request_skip(2, 0)
    bound.gateway.inbox.request_skip(3, 0)
    text = '{"update_id":2, "message":{"é":"\\ud800"}}'

    assert bound.turns([message(1), malformed(2, text), message(3)]) == [0]

    assert [row[1] for row in bound.gateway.jobs()] == [1, 3]
    kept = bound.path.with_name("t.db.skipped") / "2.json"
    assert kept.read_bytes() == text.encode()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert [path.name for path in kept.parent.iterdir()] == ["2.json"]
    assert bound.gateway.inbox.skips() == set()


def test_a_skip_is_leave_for_no_other_update(bound: Bench) -> None:
    bound.gateway.inbox.request_skip(2, 0)

    assert bound.turns([malformed(2), malformed(3)]) == [1]
    assert not (bound.path.with_name("t.db.skipped") / "3.json").exists()


def test_an_update_is_not_skipped_when_its_bytes_cannot_be_kept(bound: Bench) -> None:
    bound.gateway.inbox.request_skip(2, 0)
    bound.path.with_name("t.db.skipped").write_text("in the way")

    assert bound.turns([malformed(2)]) == [1]
    assert bound.gateway.inbox.cursor() == 0
    assert bound.state()[1] == "storage_cannot_keep_skipped_update"


def test_a_link_in_the_place_of_an_updates_bytes_is_not_followed(bound: Bench) -> None:
    bound.gateway.inbox.request_skip(2, 0)
    elsewhere = bound.path.with_name("elsewhere")
    link = bound.path.with_name("t.db.skipped") / "2.json"
    link.parent.mkdir()
    link.symlink_to(elsewhere)

    assert bound.turns([malformed(2)]) == [1]
    assert not elsewhere.exists()
    assert bound.state()[1] == "storage_cannot_keep_skipped_update"


def test_tries_to_keep_an_update_leave_nothing_else_behind(bound: Bench) -> None:
    bound.gateway.inbox.request_skip(2, 0)
    in_the_way = bound.path.with_name("t.db.skipped") / "2.json"
    in_the_way.mkdir(parents=True)

    bound.turns([malformed(2)], [malformed(2)])
    assert list(in_the_way.parent.iterdir()) == [in_the_way]


def test_an_update_without_an_id_cannot_be_skipped(bound: Bench) -> None:
    assert bound.turns([malformed(None)]) == [1]
    assert bound.state() == (State.BACKING_OFF, "malformed_update", 1)


def test_leave_to_skip_ends_the_wait_for_a_malformed_update(bound: Bench) -> None:
    def allow(waits: int) -> None:
        if waits == 3:
            bound.gateway.inbox.request_skip(2, 0)

    bound.turns(*[[malformed(2)]] * 4)

    assert bound.run([malformed(2)], [malformed(2)], then=allow) == [1, 1, 1]
    assert bound.gateway.inbox.cursor() == 3


def test_storage_that_fails_while_leave_to_skip_is_waited_for_is_looked_at_again(
    bound: Bench,
) -> None:
    away = bound.path.with_name("away.db")

    def move(waits: int) -> None:
        if waits == 1:
            bound.path.rename(away)
        else:
            away.rename(bound.path)
            bound.gateway.inbox.request_skip(2, 0)

    bound.turns(*[[malformed(2)]] * 4)

    assert bound.run([malformed(2)], [malformed(2)], then=move) == [1, 1]
    assert bound.gateway.inbox.cursor() == 3


def test_no_other_failure_is_waited_for_with_looks_for_leave_to_skip(bound: Bench) -> None:
    assert bound.run([malformed(2)], TimedOut("timeout"), []) == [1, 2]


def test_a_full_queue_is_no_failure_asks_for_fewer_and_looks_every_five_seconds(
    bench: Bench,
) -> None:
    subscribe(bench)
    bench.poller = bench.new_poller(max_jobs=2)
    bench.poller.turn()
    batch: Answer = [message(1), message(2), message(3)]

    assert bench.turns(batch) == [5]
    assert bench.state() == (State.CAPACITY, "queue_full", 0)
    assert bench.gateway.inbox.cursor() == 0

    assert bench.turns([message(1)], [message(2), message(3)]) == [0, 5]
    assert [limit for _, limit in bench.telegram.asked] == [100, 1, 2]
    assert bench.gateway.inbox.cursor() == 2
    assert bench.state() == (State.CAPACITY, "queue_full", 0)


def test_a_replay_backs_off_instead_of_asking_again_at_once(bound: Bench) -> None:
    assert bound.turns([message(100)], [message(5)], [message(5)]) == [0, 1, 2]
    assert bound.state() == (State.BACKING_OFF, "replayed_updates", 2)


def test_a_server_that_answers_empty_at_once_is_not_asked_in_a_tight_loop(bound: Bench) -> None:
    bound.telegram.poll_takes = 0.1

    assert bound.turns([], [message(1)]) == [pytest.approx(0.4), 0]


def test_storage_that_fails_moves_nothing_on(bound: Bench) -> None:
    subscribe(bound)
    with bound.gateway.database.read() as tx:
        tx.execute("PRAGMA busy_timeout = 0")
    with Database(bound.path) as other, other.write():
        assert bound.turns([message(1)]) == [1]

    assert bound.gateway.inbox.cursor() == 0
    assert bound.turns([message(1)]) == [0]
    assert [row[1] for row in bound.gateway.jobs()] == [1]


def test_a_new_sequence_of_ids_is_followed_with_a_warning(
    bound: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bound.turns([message(100)])
    bound.clock.pass_time(6 * 86400 + 1)

    assert bound.turns([message(5)]) == [0]

    assert bound.gateway.inbox.cursor() == 6
    told = [line["event"] for line in logged(capsys) if line["level"] == "warning"]
    assert told == ["new_update_ids"]


def test_a_move_to_a_supergroup_is_logged(bound: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    subscribe(bound)

    bound.turns([Update(7, Message(-1002, "{}", migrated_from=CHAT))])

    (line,) = [line for line in logged(capsys) if line["event"] == "subscriptions_moved"]
    assert (line["level"], line["count"], line["reason"]) == ("info", "1", "supergroup")
