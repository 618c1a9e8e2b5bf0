"""Claims, outcomes and dead letters."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import CHAT, NOW, Gateway, message
from telegrammer.store.queue import Counts, DeadJob, Look, Marks, Queued, Turn


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path / "t.db")
    yield gateway
    gateway.close()


@pytest.fixture
def lane(gateway: Gateway) -> int:
    owner, _ = gateway.key()
    return gateway.subscribe(owner, "http://a/")


def test_a_live_job_is_found_by_its_id(gateway: Gateway, lane: int) -> None:
    gateway.ingest(message(1), message(2))
    with gateway.queue.turn() as turn:
        turn.dead(1, NOW, "http_404")
        turn.claim(2)
    with gateway.queue.turn() as turn:
        assert turn.job(1) is None
        assert turn.job(3) is None
        job = turn.job(2)

    assert job is not None
    assert (job.subscription_id, job.update_id, job.attempt_count) == (lane, 2, 1)
    assert (job.callback_url, job.next_attempt_at) == ("http://a/", 0)


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


def test_live_jobs_are_all_but_the_dead(gateway: Gateway, lane: int) -> None:
    owner, _ = gateway.key("b")
    other = gateway.subscribe(owner, "http://b/")
    gateway.ingest(message(1), message(2))
    with gateway.queue.turn() as turn:
        turn.claim(1)
        turn.dead(2, NOW, "http_404")

    with gateway.queue.look() as look:
        assert set(look.live()) == {Queued(1, lane), Queued(3, lane), Queued(4, other)}


def test_new_jobs_are_those_behind_what_was_seen(gateway: Gateway, lane: int) -> None:
    assert marks(gateway) == Marks(newest=0, revivals=0)
    gateway.ingest(*(message(i) for i in range(1, 5)))
    assert marks(gateway) == Marks(newest=4, revivals=0)

    with gateway.queue.look() as look:
        assert list(look.new(2)) == [Queued(3, lane), Queued(4, lane)]
        assert list(look.new(4)) == []


def marks(gateway: Gateway) -> Marks:
    with gateway.queue.look() as look:
        return look.marks()


def test_the_id_of_a_job_that_is_gone_is_not_given_out_again(gateway: Gateway, lane: int) -> None:
    """Else the dispatcher would not see the next one: it lies not above the newest."""
    gateway.ingest(message(1), message(2))
    with gateway.queue.turn() as turn:
        turn.delivered(1)
        turn.delivered(2)
    assert marks(gateway).newest == 0

    gateway.ingest(message(3))

    with gateway.queue.look() as look:
        assert list(look.new(2)) == [Queued(3, lane)]


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
    assert gateway.queue.dead_jobs() == [
        DeadJob(1, "app", lane, CHAT, 1, 1, NOW, NOW + 5, "http_404")
    ]
    assert not gateway.queue.revive(2, NOW)
    assert not gateway.queue.delete_dead(2)

    assert gateway.queue.revive(1, NOW + 9)
    with gateway.database.read() as tx:
        row = tx.execute(
            "SELECT state, attempt_count, next_attempt_at, created_at, last_error"
            " FROM deliveries WHERE id = 1"
        ).fetchone()
    assert row == ("PENDING", 0, NOW + 9, NOW + 9, None)
    assert marks(gateway).revivals == 1

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

    gateway.queue.see_clock(NOW, moved=-50)

    with gateway.database.read() as tx:
        rows = tx.execute("SELECT next_attempt_at FROM deliveries ORDER BY id").fetchall()
    assert rows == [(NOW + 10,), (NOW,)]


def ages(gateway: Gateway) -> list[int]:
    """Return how old each live job is at ``NOW``, and how long each other has been dead."""
    with gateway.database.read() as tx:
        rows = tx.execute(
            "SELECT iif(state = 'DEAD', next_attempt_at, created_at) FROM deliveries ORDER BY id"
        ).fetchall()
    return [NOW - at for (at,) in rows]


@pytest.mark.parametrize(("moved", "expected"), [(50, [10, 0, 10, 0]), (-50, [60, 0, 60, 0])])
def test_no_job_gets_older_by_a_clock_set_forward_or_is_left_in_the_future(
    gateway: Gateway, lane: int, moved: int, expected: list[int]
) -> None:
    gateway.ingest(message(1), now=NOW - 60)
    gateway.ingest(message(2), now=NOW + 5)
    gateway.ingest(message(3), message(4))
    with gateway.queue.turn() as turn:
        turn.dead(3, NOW - 60, "http_404")
        turn.dead(4, NOW + 5, "http_404")

    gateway.queue.see_clock(NOW, moved)

    assert ages(gateway) == expected


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


def test_no_statement_of_a_turn_looks_at_more_than_its_row(gateway: Gateway, lane: int) -> None:
    """By primary key, and what was not seen yet by a range of it, whatever the backlog."""
    statements: list[str] = []
    with gateway.database.write() as connection:
        turn = Turn(connection)
        connection.set_trace_callback(statements.append)
        turn.job(1)
        turn.claim(1)
        turn.retry(1, NOW, "timeout")
        turn.dead(1, NOW, "timeout")
        turn.delivered(1)
        list(Look(connection).new(1))

    assert plans(gateway, statements) == {
        "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH s USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH deliveries USING INTEGER PRIMARY KEY (rowid>?)",
    }


def test_the_live_jobs_are_read_without_their_rows(gateway: Gateway, lane: int) -> None:
    """A long payload would lie between a row's ids and its state."""
    statements: list[str] = []
    with gateway.database.read() as connection:
        connection.set_trace_callback(statements.append)
        list(Look(connection).live())

    assert plans(gateway, statements) == {
        "SCAN deliveries USING COVERING INDEX sqlite_autoindex_deliveries_1",
        "SEARCH deliveries USING COVERING INDEX deliveries_due (state=?)",
    }


def plans(gateway: Gateway, statements: list[str]) -> set[str]:
    """Return how SQLite looks for the rows of those statements that are about deliveries."""
    with gateway.database.read() as connection:
        connection.set_trace_callback(None)
        steps = [
            step[3]
            for statement in statements
            if "deliveries" in statement
            for step in connection.execute("EXPLAIN QUERY PLAN " + statement)
        ]
    return {step for step in steps if step.startswith("S")}
