"""What a receiver's answer means for the delivery. Pure."""

import datetime
import email.utils
import math
from enum import Enum
from typing import Final, NamedTuple

# Statuses that say "not now": Request Timeout, Too Many Requests. And every 5xx.
_NOT_NOW: Final = (408, 429)
_LONGEST_DIGITS: Final = 10  # of a Retry-After in seconds: 300 years are enough


class Answer(NamedTuple):
    """What came back from a POST.

    ``error`` is a code such as ``timeout`` when no whole answer came; ``status`` then
    means nothing. ``retry_after`` is that header's value as it came.
    """

    status: int = 0
    error: str | None = None
    retry_after: str | None = None

    @property
    def reason(self) -> str:
        """Return the code that the log, the job and the operator see."""
        return self.error or f"http_{self.status}"


class Verdict(Enum):
    """What the delivery does next."""

    DELIVERED = "delivered"
    RETRY = "retry"
    REFUSED = "refused"


def verdict(answer: Answer) -> Verdict:
    """Judge an answer: the table in the README, "What an answer means"."""
    if answer.error is None and 200 <= answer.status <= 299:
        return Verdict.DELIVERED
    if answer.error is not None or answer.status in _NOT_NOW or 500 <= answer.status <= 599:
        return Verdict.RETRY
    return Verdict.REFUSED


def least_delay(retry_after: str | None, now: float) -> int:
    """Return the seconds that a ``Retry-After`` asks for (RFC 9110, 10.2.3); 0 when invalid.

    ``now`` is the wall clock: the header may be an HTTP date.
    """
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return int(text) if len(text) <= _LONGEST_DIGITS else 10**_LONGEST_DIGITS
    try:
        moment = email.utils.parsedate_to_datetime(text)
        # HTTP dates are UTC, also those that do not say so (asctime's form, RFC 9110, 5.6.7).
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return max(0, math.ceil(moment.timestamp() - now))
    except (ValueError, OverflowError, IndexError, TypeError):
        return 0
