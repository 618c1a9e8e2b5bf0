"""Delays before another try. Pure: the random part is handed in.

``spread`` is between 0 and 1 and adds up to a quarter, so that many waits that
began together do not end together.
"""

JITTER = 0.25


def poll_delay(failures: int, spread: float) -> float:
    """Return seconds before the next poll after ``failures`` in a row (1 or more).

    1 s doubling to 60 s, before jitter.
    """
    return _doubled(failures, 60) * (1 + JITTER * spread)


def callback_delay(attempts: int, spread: float) -> float:
    """Return seconds before a callback's next attempt after ``attempts`` (1 or more).

    ``min(300, 2^(attempts-1))`` before jitter.
    """
    return _doubled(attempts, 300) * (1 + JITTER * spread)


def _doubled(count: int, most: int) -> int:
    return most if count > most.bit_length() else min(most, 1 << (count - 1))
