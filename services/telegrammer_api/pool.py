"""Things that serve one thread at a time, lent to threads that come and go."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from telegrammer.errors import StorageUnavailable


class Closable(Protocol):
    """What can be given up."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Pool(Generic[T]):
    """Database connections or doors: each borrower has one for itself for a while."""

    def __init__(self, open_one: Callable[[], T]) -> None:
        self._open_one = open_one
        self._idle: list[T] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[T]:
        """Yield an idle one, or a new one.

        A connection that failed is closed and not lent again. A door is: after an error it
        connects anew by itself, and goes on waiting for a name whose lookup hangs.
        """
        with self._lock:
            lent = self._idle.pop() if self._idle else None
        lent = lent or self._open_one()
        try:
            yield lent
        except StorageUnavailable:
            lent.close()
            raise
        except BaseException:
            self._give_back(lent)
            raise
        self._give_back(lent)

    def close(self) -> None:
        """Close those that are idle; none may be lent out."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def _give_back(self, lent: T) -> None:
        with self._lock:
            self._idle.append(lent)
