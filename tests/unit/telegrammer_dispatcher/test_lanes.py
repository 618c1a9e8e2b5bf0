"""Which lane is due, in which order."""

from hypothesis import given
from hypothesis import strategies as st

from telegrammer.store.queue import Lane
from telegrammer_dispatcher.lanes import Lanes


def lane(lane_id: int, due_at: int = 0) -> Lane:
    return Lane(lane_id, f"http://{lane_id}/", due_at)


def filled(*found: Lane, now: float = 100) -> Lanes:
    lanes = Lanes()
    lanes.refresh(found, now)
    return lanes


def take_all(lanes: Lanes, now: float = 100) -> list[int]:
    taken = []
    while (lane_id := lanes.take(now)) is not None:
        taken.append(lane_id)
    return taken


def test_a_lane_is_taken_once_until_it_is_put_back() -> None:
    lanes = filled(lane(1), lane(2))
    assert take_all(lanes) == [1, 2]
    assert not lanes.has_due(100)

    lanes.ready(2)

    assert take_all(lanes) == [2]


def test_a_lane_that_has_just_finished_goes_behind_the_others() -> None:
    lanes = filled(lane(1), lane(2), lane(3))
    first = lanes.take(100)
    assert first == 1

    lanes.ready(first)

    assert take_all(lanes) == [2, 3, 1]


def test_lanes_come_in_sweeps_by_id_whatever_the_order_in_which_they_finish() -> None:
    lanes = filled(*(lane(i) for i in range(1, 7)))
    taken = [lanes.take(100) for _ in range(4)]
    assert taken == [1, 2, 3, 4]

    for lane_id in (3, 1, 4, 2):
        lanes.ready(lane_id)

    assert take_all(lanes) == [5, 6, 1, 2, 3, 4]


@given(st.data(), st.integers(2, 8))
def test_no_ready_lane_waits_for_more_than_two_sweeps(data: st.DataObject, slots: int) -> None:
    """Whatever the order in which others finish and are at once ready again."""
    lanes = filled(*(lane(i) for i in range(10)))
    running: list[int] = []
    ready_since = dict.fromkeys(range(10), 0)
    for takes in range(60):
        if len(running) == slots:
            finished = running.pop(data.draw(st.integers(0, slots - 1)))
            lanes.ready(finished)
            ready_since[finished] = takes
        taken = lanes.take(100)
        assert taken is not None
        running.append(taken)
        del ready_since[taken]

        assert all(takes - since < 20 for since in ready_since.values())


def test_a_delayed_lane_comes_when_the_wall_clock_shows_its_time() -> None:
    lanes = filled(lane(1, due_at=160), lane(2, due_at=130))
    assert lanes.next_due() == 130
    assert lanes.take(129.9) is None

    assert take_all(lanes, now=130) == [2]
    assert lanes.next_due() == 160
    assert take_all(lanes, now=200) == [1]
    assert lanes.next_due() is None


def test_a_refresh_takes_over_a_new_due_time() -> None:
    lanes = filled(lane(1, due_at=160))

    lanes.refresh([lane(1, due_at=100)], 100)

    assert take_all(lanes) == [1]


def test_a_refresh_leaves_busy_lanes_alone() -> None:
    lanes = filled(lane(1))
    assert take_all(lanes) == [1]

    lanes.refresh([lane(1)], 100)
    assert lanes.take(100) is None
    lanes.refresh([], 100)
    lanes.ready(1)

    assert take_all(lanes) == [1]


def test_a_lane_without_jobs_is_forgotten_and_may_come_back() -> None:
    """A ready one is found empty at its take, and forgotten then."""
    lanes = filled(lane(1), lane(2, due_at=150))
    lanes.refresh([], 100)
    assert take_all(lanes, now=200) == [1]
    lanes.forget(1)
    assert take_all(lanes, now=200) == []

    lanes.refresh([lane(1), lane(2)], 100)
    assert sorted(take_all(lanes)) == [1, 2]


def test_a_lane_that_comes_and_goes_gets_no_second_turn() -> None:
    lanes = filled(lane(1), lane(2))
    for _ in range(3):
        lanes.refresh([lane(2)], 100)
        lanes.refresh([lane(1), lane(2)], 100)

    first = lanes.take(100)
    assert first == 1
    lanes.ready(first)
    assert take_all(lanes) == [2, 1]


def test_a_held_lane_is_not_due() -> None:
    lanes = filled(lane(1))
    lanes.hold(1)

    assert lanes.take(100) is None


@given(st.lists(st.tuples(st.sampled_from(["take", "ready", "delay", "pass", "refresh"]),
                          st.integers(0, 5)), max_size=60))  # fmt: skip
def test_no_lane_is_ever_taken_twice_and_none_is_lost(steps: list[tuple[str, int]]) -> None:
    """Whatever happens in whatever order, six lanes stay six lanes."""
    lanes = filled(*(lane(i) for i in range(6)), now=0)
    busy: list[int] = []
    now = 0
    for step, number in steps:
        if step == "take":
            if (taken := lanes.take(now)) is not None:
                assert taken not in busy
                busy.append(taken)
        elif step == "ready" and busy:
            lanes.ready(busy.pop(number % len(busy)))
        elif step == "delay" and busy:
            lanes.delay(busy.pop(number % len(busy)), now + 1 + number)
        elif step == "refresh":
            due = {i: now + 3 if i % 2 else 0 for i in range(6)}
            lanes.refresh([lane(i, due[i]) for i in range(6)], now)
        else:
            now += number

    assert sorted(busy + take_all(lanes, now=now + 100)) == [0, 1, 2, 3, 4, 5]
