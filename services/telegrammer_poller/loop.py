"""One turn of the poller, and the loop that takes them.

A turn asks for one batch, ingests it and says how long to wait before the next. Only
a stop ends the loop: whatever fails, the next turn tries again, except for a refusal
that only an operator can lift.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, assert_never

from telegrammer import backoff, notification
from telegrammer.clock import Clock
from telegrammer.errors import (
    Cut,
    HttpError,
    PollingRefused,
    QueueFull,
    RateLimited,
    StorageUnavailable,
    TelegramError,
    TelegrammerError,
)
from telegrammer.heartbeat import Heartbeat
from telegrammer.logs import Log
from telegrammer.model import MalformedUpdate, State, Update
from telegrammer.process import Stop
from telegrammer.store.inbox import Inbox, Ingested
from telegrammer_poller import skipped

LARGEST_BATCH: Final = 100  # updates; getUpdates gives no more
CAPACITY_DELAY: Final = 5.0  # seconds between two looks whether the queue has room
# A Bot API server that does not hold an empty poll open must not be asked in a tight
# loop; seconds.
SHORTEST_EMPTY_POLL: Final = 0.5
SKIP_LOOK: Final = 1.0  # seconds between two looks whether a malformed update may be skipped

_REFUSALS: Final = {
    401: ("token_refused", "Telegram refuses the token: set the right one and restart the poller"),
    404: ("token_refused", "Telegram does not know the token: set the right one and restart"),
}
_WEBHOOK_ADVICE: Final = (
    "a webhook is set, so polling is refused: remove it with the Bot API method deleteWebhook,"
    " then restart the poller"
)
_CONFLICT_ADVICE: Final = (
    "another program polls this bot: stop it, or give this gateway a bot of its own, then restart"
    " the poller"
)


class UpdatesSource(Protocol):
    """The part of the Bot API that the poller needs."""

    def get_me(self) -> int: ...

    def get_updates(
        self, offset: int | None, limit: int, timeout: int
    ) -> list[Update | MalformedUpdate]: ...

    def get_webhook_url(self) -> str: ...

    def drop_connection(self) -> None: ...


class Malformed(TelegrammerError):  # noqa: N818
    """A batch holds an update that must not be passed over silently."""

    def __init__(self, update: MalformedUpdate) -> None:
        super().__init__(update.reason)
        self.update = update


@dataclass(frozen=True, slots=True)
class Rules:
    """``poll_timeout`` in whole seconds; ``max_jobs`` counts pending, active and dead jobs."""

    poll_timeout: int
    max_jobs: int


_Failure = TelegramError | HttpError | StorageUnavailable | Malformed | QueueFull


class Poller:
    """Takes updates from Telegram into the inbox."""

    def __init__(
        self,
        api: UpdatesSource,
        inbox: Inbox,
        heartbeat: Heartbeat,
        rules: Rules,
        *,
        database: Path,
        clock: Clock,
        spread: Callable[[], float],
    ) -> None:
        self._api = api
        self._inbox = inbox
        self._heartbeat = heartbeat
        self._rules = rules
        self._database = database
        self._clock = clock
        self._spread = spread
        self._log = Log("poller")
        self._is_bound = False
        self._batch_size = LARGEST_BATCH
        # Updates that the last batch had, or may have had where it could not be read.
        self._refusable = 2 * LARGEST_BATCH
        self._failures = 0
        self._blocked_by: int | None = None

    def run(self, stop: Stop) -> None:
        """Take turns until the stop. After a refusal stay up, unready, and wait for it."""
        while not stop.is_set():
            delay = self.turn()
            if delay is None:
                stop.wait(None)
            elif delay > 0:
                self._wait(stop, delay)

    def turn(self) -> float | None:
        """Do one exchange; return the seconds to wait before the next, None for ever."""
        self._blocked_by = None
        try:
            return self._poll() if self._is_bound else self._bind()
        except Cut:
            return 0.0
        except PollingRefused as error:
            self._refused(error)
            return None
        except (TelegramError, HttpError, StorageUnavailable, Malformed, QueueFull) as error:
            return self._delay_after(error)

    def _delay_after(self, error: _Failure) -> float:
        match error:
            case RateLimited():
                delay = self._failed("rate_limited", at_least=error.retry_after or 0)
            case TelegramError() if error.code < 300:
                # A 2xx that cannot be used: one update of the batch may be to blame.
                self._halve()
                delay = self._failed("bad_answer")
            case TelegramError():
                delay = self._failed(f"http_{error.code}")
            case HttpError():
                if error.reason == "too_large":
                    self._halve()
                delay = self._failed(error.reason)
            case StorageUnavailable():
                delay = self._failed(f"storage_{error.reason}")
            case Malformed():
                delay = self._malformed(error.update)
            case QueueFull():
                delay = self._full()
            case _:
                assert_never(error)
        return delay

    def _bind(self) -> float:
        bot_id = self._api.get_me()
        self._inbox.bind(bot_id)
        self._is_bound = True
        self._log.info("bound", bot_id=bot_id)
        self._failures = 0
        self._heartbeat.report(State.RUNNING)
        return 0.0

    def _poll(self) -> float:
        offset = self._inbox.cursor() or None
        began = self._clock.monotonic()
        self._refusable = self._batch_size
        received = self._api.get_updates(offset, self._batch_size, self._rules.poll_timeout)
        self._refusable = len(received)
        took = self._clock.monotonic() - began
        updates = self._checked(received)
        if updates:
            done = self._inbox.ingest(updates, self._rules.max_jobs, int(self._clock.now()))
            if done.updates == 0:
                return self._failed("replayed_updates")
            self._ingested(updates, done)
        self._succeeded()
        return 0.0 if updates else max(0.0, SHORTEST_EMPTY_POLL - took)

    def _checked(self, received: Sequence[Update | MalformedUpdate]) -> list[Update]:
        """Return the batch as it may be ingested; raise ``Malformed`` when it may not."""
        if all(isinstance(update, Update) for update in received):
            return [update for update in received if isinstance(update, Update)]
        allowed = self._inbox.skips()
        updates = []
        for update in received:
            if isinstance(update, MalformedUpdate):
                if update.update_id is None or update.update_id not in allowed:
                    raise Malformed(update)
                updates.append(self._skipped(update.update_id, update.text))
            else:
                updates.append(update)
        return updates

    def _skipped(self, update_id: int, text: str) -> Update:
        kept = skipped.keep(self._database, update_id, text)
        self._log.warning("update_skipped", update=update_id, kept=str(kept))
        return Update(update_id)

    def _ingested(self, updates: Sequence[Update], done: Ingested) -> None:
        if done.jobs:
            notification.touch(self._database)
        for update in updates:
            chat = update.message.chat_id if update.message else None
            self._log.debug("update", update=update.update_id, chat=chat)
        self._log.info("ingested", updates=done.updates, jobs=done.jobs)
        if done.adopted:
            self._log.warning("new_update_ids", advice="Telegram began a new sequence of ids")
        if done.moved:
            self._log.info("subscriptions_moved", count=done.moved, reason="supergroup")
        if done.already_queued:
            self._log.warning("already_queued", count=done.already_queued)

    def _succeeded(self) -> None:
        if self._failures:
            self._log.info("recovered", after_failures=self._failures)
        self._failures = 0
        self._batch_size = min(LARGEST_BATCH, self._batch_size * 2)
        self._heartbeat.succeeded()
        self._heartbeat.report(State.RUNNING)

    def _failed(
        self, reason: str, at_least: float = 0, update: MalformedUpdate | None = None
    ) -> float:
        self._failures += 1
        self._api.drop_connection()
        delay = max(at_least, backoff.poll_delay(self._failures, self._spread()))
        update_id = update.update_id if update else None
        # Until getMe has succeeded the poller is still starting, whatever goes wrong.
        state = State.BACKING_OFF if self._is_bound else State.STARTING
        self._heartbeat.report(state, reason, self._failures, update_id)
        self._log.warning(
            "poll_failed",
            reason=reason,
            failures=self._failures,
            retry_in=round(delay, 1),
            **({"update_id": update_id, "detail": update.reason} if update else {}),
        )
        return delay

    def _malformed(self, update: MalformedUpdate) -> float:
        self._halve()
        self._blocked_by = update.update_id
        return self._failed("malformed_update", update=update)

    def _full(self) -> float:
        self._halve()
        self._heartbeat.report(State.CAPACITY, "queue_full")
        self._log.warning(
            "queue_full",
            limit=self._rules.max_jobs,
            retry_in=CAPACITY_DELAY,
            advice="see `telegrammer list-failed-deliveries`, or raise TELEGRAMMER_MAX_JOBS",
        )
        return CAPACITY_DELAY

    def _halve(self) -> None:
        """Ask for half of what was refused, so that the good ones get through."""
        self._batch_size = max(1, self._refusable // 2)

    def _refused(self, error: PollingRefused) -> None:
        self._api.drop_connection()
        reason, advice = _REFUSALS.get(error.code) or self._conflict(error.description)
        self._heartbeat.report(State.STOPPED, reason, self._failures + 1)
        self._log.error("polling_stopped", reason=reason, code=error.code, advice=advice)

    def _conflict(self, description: str) -> tuple[str, str]:
        """Return which of its two causes a 409 has: texts differ over the years, so ask first."""
        try:
            has_webhook = bool(self._api.get_webhook_url())
        except (HttpError, TelegramError):
            has_webhook = "webhook" in description.lower()
        if has_webhook:
            return "webhook_set", _WEBHOOK_ADVICE
        return "other_poller", _CONFLICT_ADVICE

    def _wait(self, stop: Stop, seconds: float) -> None:
        """Wait for the time, the stop, or leave to skip the update that blocks polling."""
        if self._blocked_by is None:
            stop.wait(seconds)
            return
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0:
            if stop.wait(min(left, SKIP_LOOK)) or self._may_skip(self._blocked_by):
                return

    def _may_skip(self, update_id: int) -> bool:
        try:
            return update_id in self._inbox.skips()
        except StorageUnavailable:
            return False
