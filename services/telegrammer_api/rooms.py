"""Where connections wait: each for one thing, and each for a limited time."""

from __future__ import annotations

import enum
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final
from wsgiref.types import WSGIEnvironment

_EVERYTHING_SENT: Final = memoryview(b"")
_NEVER: Final = float("inf")


class Then(enum.Enum):
    """What follows when an answer was sent."""

    KEEP = enum.auto()
    """The next request, on the same connection."""
    LINGER = enum.auto()
    """Our end is closed; what the peer still sends is read away for a moment, since
    closing over unread bytes resets the connection and the peer loses the answer."""
    CLOSE = enum.auto()
    """Both sides are done with it."""


class Connection:
    """One peer's socket, non-blocking, and how far its exchange is."""

    def __init__(self, sock: socket.socket, peer: tuple[str, int], now: float) -> None:
        self.sock = sock
        self.peer = peer
        self.began = now
        """When the present request's first byte came, or the connection itself."""
        self.received = b""
        """What came of a head that is not complete, or of the next request."""
        self.room: Room | None = None
        self.work: Future[None] | None = None
        self.environ: WSGIEnvironment = {}
        """The running request's, once the application has it."""
        self.then = Then.CLOSE
        self._unsent = _EVERYTHING_SENT

    def answer(self, data: bytes, then: Then) -> None:
        """Begin to send ``data``; ``then`` is for when all of it was taken."""
        self._unsent, self.then = memoryview(data), then
        self.send()

    def send(self) -> None:
        """Send what the peer takes at once; a lost peer counts as served."""
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent, self.then = _EVERYTHING_SENT, Then.CLOSE

    @property
    def sent(self) -> bool:
        """Tell whether the peer took the whole answer."""
        return not self._unsent


class Room:
    """Connections that wait for the same thing, the oldest first.

    ``ready`` is what to do when a connection's socket is, ``late`` when a connection
    has waited for ``seconds``.
    """

    def __init__(
        self,
        seconds: float,
        ready: Callable[[Connection], None],
        late: Callable[[Connection], None],
    ) -> None:
        self.ready = ready
        self.late = late
        self._seconds = seconds
        self._until: OrderedDict[Connection, float] = OrderedDict()
        self._closes = _NEVER

    def __len__(self) -> int:
        return len(self._until)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._until)

    def enter(self, connection: Connection, now: float) -> None:
        """Take the connection out of the room where it was, into this one."""
        leave(connection)
        connection.room = self
        self._until[connection] = now + self._seconds

    def discard(self, connection: Connection) -> None:
        del self._until[connection]

    def close(self, moment: float) -> None:
        """Let nobody stay beyond this moment, whatever was left of the time."""
        self._closes = moment

    def is_closed(self, now: float) -> bool:
        """Tell whether nobody may stay any more."""
        return now >= self._closes

    @property
    def oldest(self) -> Connection | None:
        """The connection that is here the longest, if any is."""
        return next(iter(self._until), None)

    @property
    def next_late(self) -> float:
        """When the oldest connection's time is over; infinite when none is here."""
        return min(self._closes, next(iter(self._until.values()))) if self._until else _NEVER


def leave(connection: Connection) -> None:
    """Take the connection out of its room, if it is in one."""
    if connection.room is not None:
        connection.room.discard(connection)
        connection.room = None
