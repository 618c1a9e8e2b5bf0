"""What happened, for tests and people to read. Times are Unix seconds."""

from collections import deque
from typing import Final, Literal

import msgspec

from telegrammer_sandbox.world import Json

CallState = Literal["running", "parked", "held", "answered", "broken"]
UpdateState = Literal["waiting", "confirmed", "forgotten"]

_REMEMBERED: Final = 100_000


class Call(msgspec.Struct):
    """One call of a Bot API method.

    ``parked`` is a getUpdates that waits for updates; ``held`` an answer that a fault
    keeps back; ``answered`` means that the whole answer was written to the socket; ``broken`` that
    a fault or the client prevented it. ``handed_out`` and ``confirmed`` are update ids.
    """

    number: int
    method: str
    parameters: dict[str, str]
    received_at: float
    state: CallState = "running"
    status: int | None = None
    ended_at: float | None = None
    handed_out: list[int] = []
    confirmed: list[int] = []


class UpdateRecord(msgspec.Struct):
    """One update's life. ``handed_out`` holds the numbers of the calls that got it."""

    update_id: int
    state: UpdateState = "waiting"
    handed_out: list[int] = []
    confirmed_at: float | None = None
    confirmed_by: int | None = None


class Sent(msgspec.Struct):
    """One message that the bot sent, and the number of the call that sent it."""

    call: int
    at: float
    message: Json


class Ledger:
    """Bounded lists, oldest first; the newest 100,000 of each are kept."""

    def __init__(self) -> None:
        self.calls: deque[Call] = deque(maxlen=_REMEMBERED)
        self.updates: deque[UpdateRecord] = deque(maxlen=_REMEMBERED)
        self.sent: deque[Sent] = deque(maxlen=_REMEMBERED)
        self._waiting: dict[int, list[UpdateRecord]] = {}
        self._count = 0

    def begin(self, method: str, parameters: dict[str, str], now: float) -> Call:
        self._count += 1
        call = Call(self._count, method, parameters, now)
        self.calls.append(call)
        return call

    def queued(self, update_id: int) -> None:
        record = UpdateRecord(update_id)
        self.updates.append(record)
        self._waiting.setdefault(update_id, []).append(record)

    def handed_out(self, call: Call, ids: list[int]) -> None:
        call.handed_out = ids
        for update_id in dict.fromkeys(ids):
            for record in self._waiting.get(update_id, []):
                record.handed_out.append(call.number)

    def confirmed(self, call: Call, ids: list[int], now: float) -> None:
        call.confirmed.extend(ids)
        for update_id in dict.fromkeys(ids):
            for record in self._waiting.pop(update_id, []):
                record.state = "confirmed"
                record.confirmed_at = now
                record.confirmed_by = call.number

    def forgotten(self) -> None:
        """Note that everything that waited is gone without a confirmation."""
        for records in self._waiting.values():
            for record in records:
                record.state = "forgotten"
        self._waiting.clear()
