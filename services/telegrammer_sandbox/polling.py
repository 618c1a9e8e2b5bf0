"""What the server remembers from one getUpdates to the next.

Source: ``process_get_updates_query``, ``fail_query_conflict`` and
``get_allowed_update_types`` of the official server. Times are monotonic seconds.
"""

import json
from dataclasses import dataclass
from math import inf
from typing import Final

LONGEST_POLL: Final = 50
MOST_UPDATES_A_POLL: Final = 100
CONFLICT_PAUSE: Final = 3.0

KINDS: Final = frozenset(
    (
        "message",
        "edited_message",
        "channel_post",
        "edited_channel_post",
        "business_connection",
        "business_message",
        "edited_business_message",
        "deleted_business_messages",
        "message_reaction",
        "message_reaction_count",
        "inline_query",
        "chosen_inline_result",
        "callback_query",
        "shipping_query",
        "pre_checkout_query",
        "purchased_paid_media",
        "poll",
        "poll_answer",
        "my_chat_member",
        "chat_member",
        "chat_join_request",
        "chat_boost",
        "removed_chat_boost",
    )
)
DEFAULT_KINDS: Final = KINDS - {"chat_member", "message_reaction", "message_reaction_count"}


@dataclass
class Poll:
    """One getUpdates that may wait. ``terminated`` is why it must end, once it must."""

    offset: int
    limit: int
    timeout: int
    terminated: str | None = None


class PollRules:
    """Repeated offsets and conflicts."""

    def __init__(self) -> None:
        self._last_offset: int | None = None
        self._last_begin = -inf
        self._next_conflict = -inf

    def begin(self, offset: int, limit: int, timeout: int, now: float) -> Poll:
        """Return the poll as the server carries it out.

        The same offset again within 3 s is made to wait up to 3 s; within 0.5 s it gets
        one update.
        """
        limit = min(max(limit, 1), MOST_UPDATES_A_POLL)
        timeout = min(max(timeout, 0), LONGEST_POLL)
        if offset == self._last_offset:
            since = now - self._last_begin
            timeout = max(timeout, 3) if since < 3.0 else timeout
            limit = 1 if since < 0.5 else limit
        self._last_offset = offset
        self._last_begin = now
        return Poll(offset, limit, timeout)

    def conflict_delay(self, now: float) -> float:
        """Return the seconds until a 409 is answered: at once only every 3 s."""
        if now < self._next_conflict:
            return CONFLICT_PAUSE
        self._next_conflict = now + CONFLICT_PAUSE
        return 0.0


def allowed_kinds(text: str, current: frozenset[str]) -> frozenset[str]:
    """Return the kinds of update that ``allowed_updates`` asks for.

    What is not a list of strings leaves the setting alone; an empty list, or unknown
    names alone, restores the default.
    """
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return current
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return current
    return KINDS.intersection(name.lower() for name in names) or DEFAULT_KINDS
