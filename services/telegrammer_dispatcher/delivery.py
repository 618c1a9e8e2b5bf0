"""One delivery, from its claim to its outcome: what an answer does to its row."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from telegrammer import backoff
from telegrammer.callbacks.outcome import Answer, Verdict, least_delay, verdict
from telegrammer.store.queue import Job, Turn


@dataclass(frozen=True, slots=True)
class Budget:
    """How often, and for how many seconds from its start, a delivery is attempted."""

    attempts: int
    lifetime: float


class Flight(NamedTuple):
    """A job whose callback runs.

    When it ``began``, and ``expires`` and is not tried again, is on the monotonic clock:
    ``job.created_at`` is as it was before the other was set.
    """

    job: Job
    attempt: int
    delivery_id: str
    began: float
    expires: float


class Result(StrEnum):
    """What became of an attempt; the names of its log events."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    DROPPED = "dropped"


class Outcome(NamedTuple):
    """``retry_at`` is the due time, Unix seconds, of a delivery that is tried again."""

    result: Result
    reason: str
    retry_at: int | None = None


def delivery_id(bot_id: int, job: Job) -> str:
    """Return what receivers know a delivery by: the same on every attempt."""
    return f"{bot_id}-{job.subscription_id}-{job.update_id}"


def spent(job: Job, budget: Budget, now: float) -> str | None:
    """Return why the job may not be attempted again, or None.

    The first attempt is always made: only trying again has a budget.
    """
    if job.attempt_count == 0:
        return None
    if job.attempt_count >= budget.attempts:
        return "attempts_exhausted"
    if now > job.created_at + budget.lifetime:
        return "lifetime_exceeded"
    return None


def is_due(job: Job, now: float) -> bool:
    """Tell whether the job may be attempted now.

    A job that was never attempted waits for nothing, even if a clock that was set
    back has left it with a due time in the future.
    """
    return job.attempt_count == 0 or job.next_attempt_at <= now


def settle(
    turn: Turn,
    flight: Flight,
    answer: Answer,
    attempts: int,
    *,
    now: float,
    left: float,
    spread: float,
) -> Outcome:
    """Record what an answer means for the job, and return it.

    ``attempts`` is the most there may be, ``left`` the seconds for which it may be tried again.
    """
    outcome = _outcome(flight, answer, attempts, now, left, spread)
    if outcome.result is Result.DELIVERED:
        is_known = turn.delivered(flight.job.id)
    elif outcome.retry_at is not None:
        is_known = turn.retry(flight.job.id, outcome.retry_at, outcome.reason)
    else:
        is_known = turn.dead(flight.job.id, int(now), outcome.reason)
    # Its subscription or key was deleted while it was in flight.
    return outcome if is_known else Outcome(Result.DROPPED, outcome.reason)


def _outcome(
    flight: Flight, answer: Answer, attempts: int, now: float, left: float, spread: float
) -> Outcome:
    judged = verdict(answer)
    if judged is Verdict.DELIVERED:
        return Outcome(Result.DELIVERED, answer.reason)
    if judged is Verdict.REFUSED or flight.attempt >= attempts:
        return Outcome(Result.DEAD, answer.reason)
    delay = backoff.callback_delay(flight.attempt, spread)
    # Due times are whole seconds: rounded up, so that none comes early.
    at = math.ceil(now + max(delay, least_delay(answer.retry_after, now)))
    if at > now + left:
        return Outcome(Result.DEAD, answer.reason)
    return Outcome(Result.RETRY, answer.reason, at)
