"""Budgets, delays and outcomes of one delivery."""

from pathlib import Path

import pytest

from support.builders import NOW, Gateway, job, message
from telegrammer.callbacks.outcome import Answer
from telegrammer_dispatcher.delivery import (
    Budget,
    Flight,
    Outcome,
    Result,
    delivery_id,
    is_due,
    settle,
    spent,
)

BUDGET = Budget(attempts=8, lifetime=86400)


@pytest.mark.parametrize(
    ("attempts", "age", "expected"),
    [
        (0, 0, None),
        (0, 90000, None),
        (1, 86400, None),
        (1, 86401, "lifetime_exceeded"),
        (7, 10, None),
        (8, 10, "attempts_exhausted"),
    ],
)
def test_only_trying_again_has_a_budget(attempts: int, age: int, expected: str | None) -> None:
    assert spent(job(attempt_count=attempts), BUDGET, NOW + age) == expected


def test_a_first_attempt_waits_for_no_clock() -> None:
    assert is_due(job(next_attempt_at=NOW + 3600), NOW)
    assert not is_due(job(attempt_count=1, next_attempt_at=NOW + 1), NOW)
    assert is_due(job(attempt_count=1, next_attempt_at=NOW), NOW)


def test_a_delivery_id_is_made_of_bot_subscription_and_update() -> None:
    assert delivery_id(6, job(id=99, subscription_id=17, update_id=5)) == "6-17-5"


def outcome(
    tmp_path: Path, answer: Answer, attempt: int = 1, spread: float = 0.0, age: int = 0
) -> tuple[Outcome, list[tuple[str, int, str | None]]]:
    """Return the outcome of the attempt, and the state, due time and error of its row."""
    gateway = Gateway(tmp_path / "t.db")
    owner, _ = gateway.key()
    gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(5))
    flight = Flight(job(id=1), attempt, "6-17-5", began=0, expires=0)
    with gateway.queue.turn() as turn:
        found = settle(
            turn, flight, answer, attempts=8, now=NOW + 0.5, left=86399.5 - age, spread=spread
        )
    with gateway.database.read() as tx:
        rows = tx.execute("SELECT state, next_attempt_at, last_error FROM deliveries").fetchall()
    gateway.close()
    return found, rows


def test_a_success_removes_the_job(tmp_path: Path) -> None:
    assert outcome(tmp_path, Answer(204)) == (Outcome(Result.DELIVERED, "http_204"), [])


def test_a_refusal_makes_a_dead_letter_at_once(tmp_path: Path) -> None:
    found, rows = outcome(tmp_path, Answer(404))

    assert found == Outcome(Result.DEAD, "http_404")
    assert rows == [("DEAD", NOW, "http_404")]


@pytest.mark.parametrize(
    ("attempt", "spread", "delay"),
    [(1, 0.0, 1), (1, 1.0, 1), (3, 0.0, 4), (3, 1.0, 5), (7, 0.0, 64)],
)
def test_a_failure_is_tried_again_later_and_later(
    tmp_path: Path, attempt: int, spread: float, delay: int
) -> None:
    found, rows = outcome(tmp_path, Answer(500), attempt, spread)

    at = NOW + 1 + delay  # due times are whole seconds, never early
    assert found == Outcome(Result.RETRY, "http_500", at)
    assert rows == [("PENDING", at, "http_500")]


def test_the_last_attempt_is_the_last(tmp_path: Path) -> None:
    found, rows = outcome(tmp_path, Answer(error="timeout"), attempt=8)

    assert found == Outcome(Result.DEAD, "timeout")
    assert rows == [("DEAD", NOW, "timeout")]


def test_retry_after_is_a_minimum(tmp_path: Path) -> None:
    longer, _ = outcome(tmp_path, Answer(503, retry_after="120"))
    shorter, _ = outcome(tmp_path / "b", Answer(503, retry_after="1"), attempt=7)

    assert longer.retry_at == NOW + 1 + 120
    assert shorter.retry_at == NOW + 1 + 64


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (10, Outcome(Result.RETRY, "http_429", NOW + 86390)),
        (11, Outcome(Result.DEAD, "http_429")),
    ],
)
def test_a_retry_after_beyond_the_lifetime_ends_the_delivery(
    tmp_path: Path, age: int, expected: Outcome
) -> None:
    found, _ = outcome(tmp_path, Answer(429, retry_after="86389"), age=age)

    assert found == expected


def test_an_outcome_of_a_deleted_subscription_is_dropped(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path / "t.db")
    flight = Flight(job(), 1, "6-17-5", began=0, expires=0)
    with gateway.queue.turn() as turn:
        found = settle(turn, flight, Answer(500), attempts=8, now=NOW, left=86400, spread=0)
    gateway.close()

    assert found == Outcome(Result.DROPPED, "http_500")
