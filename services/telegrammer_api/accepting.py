"""When a worker accepts the connections that wait at the listener.

Every worker hears each knock, and whoever is awake first gets the connection, with all
its requests. So a worker with enough to do holds back a little: for a worker with a
free thread, or else for one with a free place in its queue.
"""

from typing import Final

BUSY_PAUSE: Final = 0.1
"""Seconds that a worker without a free thread leaves to the others."""
FULL_PAUSE: Final = 0.15
"""Seconds that a worker without a free place leaves to the others, before it refuses."""
_UNSURE: Final = 1 / 20
"""Of such a pause, as long as threads are free: the load is then peers that have not said
yet what they want, and slow ones could hold up all that come behind them."""

_BUSY_BATCH: Final = 16
_FULL_BATCH: Final = 256
_NEVER: Final = float("inf")


class Acceptance:
    """Decides for one worker.

    ``load`` is how many requests it has or will have in a moment, ``busy`` how many of
    them are complete.
    """

    def __init__(self, threads: int, capacity: int) -> None:
        self._threads = threads
        self._capacity = capacity
        self.next_due = _NEVER
        """When to ask ``due`` again; infinite while nobody has knocked."""

    def knock(self, load: int, busy: int, now: float) -> None:
        """Note that a connection waits."""
        pause = 0.0
        if load >= self._threads:
            pause = BUSY_PAUSE if load < self._capacity else FULL_PAUSE
        self.next_due = now + (pause if busy >= self._threads else pause * _UNSURE)

    def due(self, load: int, now: float) -> int:
        """Return how many connections to accept now; then listen for the next knock.

        Zero while nobody waits or the pause is not over; a thread that became free
        ends the pause.
        """
        if self.next_due == _NEVER or (load >= self._threads and now < self.next_due):
            return 0
        self.next_due = _NEVER
        if load < self._threads:
            return 1
        if load < self._capacity:
            # What has no place here may find one at another worker.
            return min(_BUSY_BATCH, self._capacity - load)
        return _FULL_BATCH
