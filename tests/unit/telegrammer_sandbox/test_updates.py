"""What an offset does to the queue, row by row of the official server's rules."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer_sandbox.updates import MOST_UPDATES, Unfit, UpdateQueue

FIRST = 1000
NOW = 50.0


def queue_of(count: int, first: int = FIRST) -> UpdateQueue:
    queue = UpdateQueue(first)
    for _ in range(count):
        queue.add("message", "{}", expires_at=NOW + 1)
    return queue


def ids(queue: UpdateQueue, offset: int, limit: int = 100) -> list[int]:
    return [update.id for update in queue.take(offset, limit, NOW).updates]


def test_no_offset_returns_from_the_oldest_and_confirms_nothing() -> None:
    queue = queue_of(5)

    assert ids(queue, 0) == [1000, 1001, 1002, 1003, 1004]
    assert len(queue) == 5


def test_an_offset_deletes_what_is_below_it_before_the_answer() -> None:
    queue = queue_of(5)
    taken = queue.take(1003, 1, NOW)

    assert taken.confirmed == [1000, 1001, 1002]
    assert [update.id for update in taken.updates] == [1003]
    assert ids(queue, 0) == [1003, 1004]


@pytest.mark.parametrize("ahead", range(1, 11))
def test_an_offset_up_to_ten_past_the_tail_deletes_updates_unseen(ahead: int) -> None:
    queue = queue_of(5)

    assert ids(queue, queue.tail + ahead) == []
    assert len(queue) == 0
    queue.add("message", "{}", NOW + 1)
    assert ids(queue, 1005 + ahead) == []
    assert len(queue) == 0, "the next update was below the offset too"


def test_an_offset_further_ahead_is_nonsense() -> None:
    queue = queue_of(5)

    assert ids(queue, queue.tail + 11) == [1000, 1001, 1002, 1003, 1004]
    assert len(queue) == 5


@pytest.mark.parametrize("offset", [FIRST, FIRST - 1, 1])
def test_an_offset_at_or_before_the_head_confirms_nothing(offset: int) -> None:
    queue = queue_of(2)

    assert ids(queue, offset) == [1000, 1001]
    assert len(queue) == 2


def test_an_offset_in_the_far_past_counts_from_the_oldest() -> None:
    queue = queue_of(2, first=2 * MOST_UPDATES)

    assert queue.take(1, 100, NOW).offset == 2 * MOST_UPDATES
    assert queue.take(MOST_UPDATES, 100, NOW).offset == MOST_UPDATES


def test_a_negative_offset_keeps_only_the_newest() -> None:
    queue = queue_of(5)

    assert ids(queue, -2) == [1003, 1004]
    assert len(queue) == 2
    assert ids(queue, -100) == [1003, 1004]


def test_an_offset_from_before_a_reset_to_lower_ids_loops_on_the_oldest() -> None:
    queue = queue_of(0, first=5000)
    queue.restart(100)
    queue.add("message", "{}", NOW + 1)

    assert ids(queue, 5001) == [100]
    assert ids(queue, 5001) == [100]
    assert ids(queue, 101) == []
    assert len(queue) == 0


def test_expired_updates_vanish_without_a_word() -> None:
    queue = UpdateQueue(FIRST)
    queue.add("message", "{}", expires_at=NOW)
    queue.add("message", "{}", expires_at=NOW + 1)
    taken = queue.take(0, 100, NOW)

    assert [update.id for update in taken.updates] == [1001]
    assert taken.confirmed == []


def test_updates_beyond_the_caps_are_dropped() -> None:
    queue = UpdateQueue(FIRST)

    assert queue.add("message", '"' + "x" * 512 * 1024 + '"', NOW + 1) is None
    assert len(queue) == 0
    full = queue_of(MOST_UPDATES)
    assert full.add("message", "{}", NOW + 1) is None
    assert len(full) == MOST_UPDATES


def test_an_answer_stops_short_of_four_mebibytes() -> None:
    queue = UpdateQueue(FIRST)
    for _ in range(9):
        queue.add("message", '"' + "x" * 500_000 + '"', NOW + 1)
    taken = queue.take(0, 100, NOW)

    assert len(taken.updates) == 8
    assert len(queue) == 9


def test_an_update_goes_out_as_the_server_writes_it() -> None:
    queue = UpdateQueue(FIRST)
    queue.add("message", '{"text":"hi"}', NOW + 1)

    (update,) = queue.take(0, 1, NOW).updates
    assert update.body == b'{"update_id":1000,\n"message":{"text":"hi"}}'


@pytest.mark.parametrize(
    ("body", "update_id"),
    [
        (b'{"update_id":2000}', 2000),
        (b'{"update_id":7,"update_id":2001}', 2001),
        (b'{"update_id":2002,"broken', 2002),
        (b'{"update_id":"2003"}', FIRST),
        (b'{"update_id":7e8}', FIRST),
        (b'{"update_id":-5}', FIRST),
        (b'{"update_id":9999999999}', FIRST),
        (b'{"update_id":true}', FIRST),
        (b"[1]", FIRST),
        (b"\xff\xfe", FIRST),
        (b"[" * 100_000, FIRST),
    ],
)
def test_a_raw_update_counts_by_its_own_id_or_the_next(body: bytes, update_id: int) -> None:
    queue = UpdateQueue(FIRST)

    assert queue.add_raw(body) == update_id
    assert [update.body for update in queue.take(0, 1, NOW).updates] == [body]
    assert queue.take(update_id + 1, 1, NOW).confirmed == [update_id]


def test_raw_ids_go_up_except_where_nothing_waits() -> None:
    queue = UpdateQueue(FIRST)
    queue.add_raw(b'{"update_id":700}')
    queue.add_raw(b'{"update_id":700}')
    with pytest.raises(Unfit, match="700"):
        queue.add_raw(b'{"update_id":699}')
    assert queue.take(701, 1, NOW).confirmed == [700, 700]

    assert queue.add_raw(b'{"update_id":699}') == 699


def test_a_raw_update_that_fits_no_answer_is_refused() -> None:
    with pytest.raises(Unfit, match="large"):
        UpdateQueue(FIRST).add_raw(b" " * 4 * 1024 * 1024)


@given(
    count=st.integers(0, 30),
    offset=st.integers(-40, FIRST + 60),
    limit=st.integers(1, 40),
)
def test_any_offset_deletes_a_prefix_and_returns_what_follows(
    count: int, offset: int, limit: int
) -> None:
    queue = queue_of(count)
    before = list(range(FIRST, FIRST + count))
    taken = queue.take(offset, limit, NOW)
    left = before[len(taken.confirmed) :]

    assert taken.confirmed == before[: len(taken.confirmed)]
    assert [update.id for update in taken.updates] == left[:limit]
    assert len(queue) == len(left)
    assert [json.loads(update.body)["update_id"] for update in taken.updates] == left[:limit]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100), st.booleans()), max_size=40))
def test_a_client_that_confirms_last_plus_one_gets_each_update_in_order_once(
    turns: list[tuple[int, int, bool]],
) -> None:
    """Answers may get lost on the way: those come again, and nothing else does."""
    queue = UpdateQueue(FIRST)
    seen: list[int] = []
    offset = 0
    for arrivals, limit, arrives in [*turns, (0, 100, True), (0, 100, True), (0, 100, True)]:
        for _ in range(arrivals):
            queue.add("message", "{}", NOW + 1)
        got = ids(queue, offset, limit)
        if arrives and got:
            seen += got
            offset = got[-1] + 1

    assert seen == list(range(FIRST, queue.tail))
