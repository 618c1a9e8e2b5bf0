"""Claims, outcomes and dead letters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import NOW, Gateway, message
from telegrammer.store.queue import Counts, DeadJob, Lane, Turn


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path / "t.db")
    yield gateway
    gateway.close()


@pytest.fixture
def lane(gateway: Gateway) -> int:
    owner, _ = gateway.key()
    return gateway.subscribe(owner, "http://a/")


def test_the_head_is_the_oldest_live_job(gateway: Gateway, lane: int) -> None:
    gateway.ingest(message(1), message(2), message(3))
    with gateway.queue.turn() as turn:
        turn.dead(1, NOW, "http_404")
    with gateway.queue.turn() as turn:
        turn.claim(2)
        head = turn.head(lane)

    assert head is not None
    assert (head.update_id, head.attempt_count) == (2, 1)


def test_claims_and_outcomes_of_a_failed_turn_do_not_count(gateway: Gateway, lane: int) -> None:
    gateway.ingest(message(1), message(2))

    def fail() -> None:
        with gateway.queue.turn() as turn:
            turn.delivered(1)
            turn.claim(2)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert [(row[1], row[3], row[4]) for row in gateway.jobs()] == [
        (1, "PENDING", 0),
        (2, "PENDING", 0),
    ]
    assert gateway.queue.counts() == Counts(pending=2, in_flight=0, dead=0)


def test_recovery_puts_back_what_was_in_flight_and_keeps_its_attempts(
    gateway: Gateway, lane: int
) -> None:
    gateway.ingest(message(1))
    with gateway.queue.turn() as turn:
        turn.claim(1)
    assert gateway.queue.counts() == Counts(pending=0, in_flight=1, dead=0)

    assert gateway.queue.recover() == 1

    assert [(row[3], row[4]) for row in gateway.jobs()] == [("PENDING", 1)]


def test_the_clock_that_was_seen_last_is_known(gateway: Gateway) -> None:
    assert gateway.queue.clock_seen_at() is None

    gateway.queue.see_clock(NOW)
    gateway.queue.see_clock(NOW - 5)

    assert gateway.queue.clock_seen_at() == NOW - 5


def test_lanes_are_due_when_their_head_is(gateway: Gateway, lane: int) -> None:
    owner, _ = gateway.key("b")
    other = gateway.subscribe(owner, "http://b/")
    gateway.subscribe(owner, "http://idle/", chat=3)
    gateway.ingest(message(1), message(2))
    with gateway.queue.turn() as turn:
        turn.claim(1)
    with gateway.queue.turn() as turn:
        turn.retry(1, NOW + 60, "timeout")

    assert gateway.queue.lanes() == [
        Lane(lane, "http://a/", NOW + 60),
        Lane(other, "http://b/", 0),
    ]


def test_an_outcome_for_a_job_that_is_gone_says_so(gateway: Gateway, lane: int) -> None:
    gateway.ingest(message(1))
    gateway.keys.delete("app")

    with gateway.queue.turn() as turn:
        assert not turn.delivered(1)
        assert not turn.retry(1, NOW, "timeout")
        assert not turn.dead(1, NOW, "http_404")


def test_a_dead_letter_can_be_listed_revived_and_deleted(gateway: Gateway, lane: int) -> None:
    gateway.ingest(message(1), message(2))
    with gateway.queue.turn() as turn:
        turn.claim(1)
        turn.dead(1, NOW + 5, "http_404")
    assert gateway.queue.dead_jobs() == [DeadJob(1, lane, 1, 1, NOW, NOW + 5, "http_404")]
    assert not gateway.queue.revive(2, NOW)
    assert not gateway.queue.delete_dead(2)

    assert gateway.queue.revive(1, NOW + 9)
    with gateway.database.read() as tx:
        row = tx.execute(
            "SELECT state, attempt_count, next_attempt_at, created_at, last_error"
            " FROM deliveries WHERE id = 1"
        ).fetchone()
    assert row == ("PENDING", 0, NOW + 9, NOW + 9, None)

    with gateway.queue.turn() as turn:
        turn.dead(1, NOW, "http_404")
    assert gateway.queue.delete_dead(1)
    assert [row[1] for row in gateway.jobs()] == [2]


def test_only_jobs_that_died_before_then_are_purged(gateway: Gateway, lane: int) -> None:
    gateway.ingest(message(1), message(2), message(3))
    with gateway.queue.turn() as turn:
        turn.dead(1, NOW - 100, "http_404")
        turn.dead(2, NOW, "http_404")

    assert gateway.queue.purge(NOW) == 1
    assert gateway.queue.purge(NOW) == 0
    assert [row[1] for row in gateway.jobs()] == [2, 3]


def test_a_clock_set_back_shortens_only_the_waits_for_a_retry(gateway: Gateway, lane: int) -> None:
    gateway.ingest(message(1), message(2))
    with gateway.queue.turn() as turn:
        turn.claim(1)
        turn.retry(1, NOW + 60, "timeout")

    gateway.queue.see_clock(NOW, set_back=50)

    with gateway.database.read() as tx:
        rows = tx.execute("SELECT next_attempt_at FROM deliveries ORDER BY id").fetchall()
    assert rows == [(NOW + 10,), (NOW,)]


def test_the_number_of_jobs_is_right_whatever_removes_them(gateway: Gateway, lane: int) -> None:
    gateway.ingest(*(message(i) for i in range(1, 8)))
    with gateway.queue.turn() as turn:
        turn.delivered(1)
        turn.dead(2, NOW - 9, "http_404")
        turn.dead(3, NOW, "http_404")
        turn.claim(4)
    gateway.queue.purge(NOW - 1)
    gateway.queue.delete_dead(3)
    assert gateway.queue.counts() == Counts(pending=3, in_flight=1, dead=0)

    gateway.keys.delete("app")

    assert gateway.queue.counts() == Counts(pending=0, in_flight=0, dead=0)


def test_the_claim_seeks_the_head_by_its_partial_index(gateway: Gateway, lane: int) -> None:
    statements: list[str] = []
    with gateway.database.write() as connection:
        connection.set_trace_callback(statements.append)
        Turn(connection).head(lane)
        connection.set_trace_callback(None)
        plan = connection.execute("EXPLAIN QUERY PLAN " + statements[0]).fetchall()

    assert [step[3].split(" (")[0] for step in plan] == [
        "SEARCH deliveries USING INDEX deliveries_head"
    ]
