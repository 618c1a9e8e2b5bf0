"""A busy worker leaves new connections to a freer one for a moment, and no longer."""

import pytest

from telegrammer_api.accepting import BUSY_PAUSE, FULL_PAUSE, Acceptance

THREADS, CAPACITY = 4, 36


@pytest.fixture
def door() -> Acceptance:
    return Acceptance(THREADS, CAPACITY)


def test_nothing_is_due_before_somebody_knocks(door: Acceptance) -> None:
    assert door.due(0, 1000.0) == 0
    assert door.next_due == float("inf")


def test_a_worker_with_a_free_thread_accepts_one_at_once(door: Acceptance) -> None:
    door.knock(THREADS - 1, THREADS - 1, 10.0)

    assert door.due(THREADS - 1, 10.0) == 1
    assert door.due(THREADS - 1, 10.0) == 0


@pytest.mark.parametrize(
    ("load", "pause", "taken"),
    [(THREADS, BUSY_PAUSE, 16), (CAPACITY - 1, BUSY_PAUSE, 1), (CAPACITY, FULL_PAUSE, 256)],
)
def test_a_worker_without_one_waits_for_the_others_first(
    door: Acceptance, load: int, pause: float, taken: int
) -> None:
    door.knock(load, THREADS, 10.0)

    assert door.next_due == 10.0 + pause
    assert door.due(load, 10.0 + pause * 0.9) == 0
    assert door.due(load, 10.0 + pause) == taken
    assert door.next_due == float("inf")


@pytest.mark.parametrize("load", range(THREADS, CAPACITY))
def test_a_worker_takes_no_more_than_it_has_places_for(door: Acceptance, load: int) -> None:
    """It would refuse the others, and another worker may have places."""
    door.knock(load, THREADS, 10.0)

    assert 1 <= door.due(load, 11.0) <= CAPACITY - load


@pytest.mark.parametrize(
    ("load", "taken"), [(THREADS, 16), (CAPACITY - 1, 1), (CAPACITY, 256), (500, 256)]
)
def test_peers_that_have_not_said_what_they_want_hold_up_nobody_for_long(
    door: Acceptance, load: int, taken: int
) -> None:
    """Five hundred silent ones cost whoever came behind them two seconds."""
    door.knock(load, THREADS - 1, 10.0)

    assert 10.0 < door.next_due < 10.01
    assert door.due(load, 10.01) == taken


def test_a_thread_that_becomes_free_ends_the_pause(door: Acceptance) -> None:
    door.knock(CAPACITY, CAPACITY, 10.0)

    assert door.due(THREADS - 1, 10.001) == 1


def test_a_full_worker_waits_longer_than_one_with_a_free_place() -> None:
    assert BUSY_PAUSE < FULL_PAUSE
