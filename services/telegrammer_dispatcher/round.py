"""One transaction of the dispatcher: outcomes written, due jobs claimed.

Outcomes come first, so that a lane whose delivery has just ended may be claimed again
in the same transaction. When that fails, the lanes in memory are wrong.
"""

from collections.abc import Callable
from typing import Final

from telegrammer.callbacks.outcome import Answer
from telegrammer.store.queue import Job, Turn
from telegrammer_dispatcher.delivery import (
    Budget,
    Flight,
    Outcome,
    delivery_id,
    is_due,
    settle,
    spent,
)
from telegrammer_dispatcher.lanes import Lanes

# Jobs out of budget are buried one by one at their claim: a transaction stays short.
_LOOKS: Final = 500

Ended = list[tuple[Flight, Answer]]


class Round:
    """What one transaction decides. ``now`` is the wall clock, ``monotonic`` the other."""

    def __init__(self, lanes: Lanes, budget: Budget, now: float, monotonic: float) -> None:
        self._lanes = lanes
        self._budget = budget
        self._now = now
        self._monotonic = monotonic
        self.settled: list[tuple[Flight, Outcome]] = []
        self.buried: list[tuple[Job, str]] = []
        self.claimed: list[Flight] = []

    def settle(self, turn: Turn, ended: Ended, spread: Callable[[], float]) -> None:
        """Write the outcome of each delivery that ended."""
        for flight, answer in ended:
            outcome = settle(
                turn,
                flight,
                answer,
                self._budget.attempts,
                now=self._now,
                left=flight.expires - self._monotonic,
                spread=spread(),
            )
            self.settled.append((flight, outcome))
            if outcome.retry_at is None:
                self._lanes.done(flight.job.subscription_id)
            else:
                self._lanes.delay(flight.job.subscription_id, flight.job.id, outcome.retry_at)

    def claim(self, turn: Turn, bot_id: int, free: int) -> None:
        """Claim up to ``free`` due jobs."""
        for _ in range(_LOOKS):
            if len(self.claimed) == free:
                return
            taken = self._lanes.take(self._now)
            if taken is None:
                return
            lane_id, job_id = taken
            job = turn.job(job_id)
            if job is None:  # it went with its subscription
                self._lanes.done(lane_id)
            elif reason := spent(job, self._budget, self._now):
                turn.dead(job_id, int(self._now), reason)
                self.buried.append((job, reason))
                self._lanes.done(lane_id)
            elif not is_due(job, self._now):
                self._lanes.delay(lane_id, job_id, job.next_attempt_at)
            else:
                turn.claim(job_id)
                self.claimed.append(self._flight(job, bot_id))

    def _flight(self, job: Job, bot_id: int) -> Flight:
        left = job.created_at + self._budget.lifetime - self._now
        return Flight(
            job,
            attempt=job.attempt_count + 1,
            delivery_id=delivery_id(bot_id, job),
            began=self._monotonic,
            expires=self._monotonic + left,
        )
