"""Delays before another try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer.backoff import callback_delay, poll_delay

COUNTS = st.integers(min_value=1, max_value=10**9)
SPREADS = st.floats(min_value=0, max_value=1)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (1000, 60)]
)
def test_polls_wait_one_second_doubling_to_sixty(failures: int, seconds: int) -> None:
    assert poll_delay(failures, 0) == seconds


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(1, 1), (2, 2), (3, 4), (8, 128), (9, 256), (10, 300), (1000, 300)]
)
def test_callbacks_wait_two_to_the_attempts_and_at_most_300(attempts: int, seconds: int) -> None:
    assert callback_delay(attempts, 0) == seconds


@given(COUNTS, SPREADS)
def test_jitter_adds_up_to_a_quarter_and_never_takes_any(count: int, spread: float) -> None:
    for delay in (poll_delay, callback_delay):
        assert delay(count, 0) <= delay(count, spread) <= delay(count, 0) * 1.25


@given(COUNTS, SPREADS)
def test_more_failures_never_wait_less(count: int, spread: float) -> None:
    assert poll_delay(count + 1, spread) >= poll_delay(count, spread)
    assert callback_delay(count + 1, spread) >= callback_delay(count, spread)
