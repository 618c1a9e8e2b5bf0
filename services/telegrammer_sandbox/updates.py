"""The queue of updates, and what the offset of getUpdates does to it.

The rules are those of ``Client::do_get_updates`` and ``TQueue`` of the official server.
Head is the id of the oldest update that waits, tail the id that the next one gets.
"""

import json
import re
from dataclasses import dataclass
from math import inf
from typing import Final

MOST_UPDATES: Final = 100_000
LARGEST_UPDATE: Final = 512 * 1024
LARGEST_ID: Final = 2_000_000_000

_FUTURE: Final = 10
_ANSWER_SIZE: Final = 4 * 1024 * 1024
_UPDATE_OVERHEAD: Final = 50
_ID: Final = re.compile(rb'"update_id"\s*:\s*([0-9]{1,10})\b')


class Unfit(ValueError):  # noqa: N818
    """A raw update cannot be queued; the text says why."""


@dataclass(frozen=True)
class Queued:
    """One update: ``body`` is its JSON text, byte for byte as it goes out."""

    id: int
    body: bytes
    expires_at: float = inf


@dataclass(frozen=True)
class Taken:
    """What one poll gets. ``offset`` is absolute; ``confirmed`` were deleted by it."""

    offset: int
    updates: list[Queued]
    confirmed: list[int]


class UpdateQueue:
    """Updates in ascending order of id."""

    def __init__(self, next_id: int) -> None:
        self._waiting: list[Queued] = []
        self._tail = next_id

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def head(self) -> int:
        return self._waiting[0].id if self._waiting else self._tail

    @property
    def tail(self) -> int:
        return self._tail

    def add(self, kind: str, content: str, expires_at: float) -> int | None:
        """Queue an update of ``kind``; return its id, or None when the server drops it."""
        text = f'{{"update_id":{self._tail},\n"{kind}":{content}}}'.encode("ascii")
        if len(self) >= MOST_UPDATES or len(text) > LARGEST_UPDATE:
            return None
        return self._append(Queued(self._tail, text, expires_at))

    def add_raw(self, body: bytes) -> int:
        """Queue any bytes as an update; return the id by which offsets count it.

        That is its own ``update_id`` (the last one, if there are more), or the next id
        when it has none between 1 and 2,000,000,000. An id below the tail is a reset of
        the ids, and raises ``Unfit`` while updates wait; the newest id once more is a
        duplicate and welcome. So does an update that no answer can carry (4 MiB).
        """
        if len(body) + _UPDATE_OVERHEAD >= _ANSWER_SIZE:
            raise Unfit("the update is too large for any answer")
        update_id = _own_id(body) or self._tail
        if self._waiting and update_id < self._waiting[-1].id:
            raise Unfit(f"update {update_id} comes before {self._waiting[-1].id}, which waits")
        return self._append(Queued(update_id, body))

    def restart(self, next_id: int) -> None:
        """Forget what waits and go on with ``next_id``, as after a week of silence."""
        self._waiting.clear()
        self._tail = next_id

    def take(self, offset: int, limit: int, now: float) -> Taken:
        """Delete the updates below the offset and return up to ``limit`` others.

        An offset of 0, in the future or in the far past deletes nothing; a negative one
        keeps that many of the newest.
        """
        start = self._start(offset)
        confirmed = [update.id for update in self._waiting if update.id < start]
        self._waiting = [u for u in self._waiting if u.id >= start and u.expires_at > now]
        return Taken(start, self._first(limit), confirmed)

    def _start(self, offset: int) -> int:
        if offset < 0:
            return max(offset + self.tail, self.head)
        if offset == 0 or not self.head - MOST_UPDATES <= offset <= self.tail + _FUTURE:
            return self.head
        return offset

    def _first(self, limit: int) -> list[Queued]:
        room = _ANSWER_SIZE
        for count, update in enumerate(self._waiting[:limit]):
            room -= _UPDATE_OVERHEAD + len(update.body)
            if room <= 0:
                return self._waiting[:count]
        return self._waiting[:limit]

    def _append(self, update: Queued) -> int:
        self._waiting.append(update)
        self._tail = update.id + 1
        return update.id


def _own_id(body: bytes) -> int | None:
    """Return the ``update_id`` of a JSON text that may be broken, or None."""
    try:
        update = json.loads(body)
        found = update.get("update_id") if isinstance(update, dict) else None
    except (ValueError, RecursionError):
        match = _ID.search(body)
        found = int(match[1]) if match else None
    usable = isinstance(found, int) and not isinstance(found, bool) and 0 < found <= LARGEST_ID
    return found if usable else None
