"""list-failed-deliveries, retry-delivery, delete-delivery."""

import json
import time
from pathlib import Path

import pytest

from support.builders import CHAT, NOW, Gateway, message
from support.cli import Run, assert_refused
from telegrammer import notification

PAYLOAD = '{"text": "private words"}'
URL = "http://receiver.example/path?token=query-secret"


@pytest.fixture
def dead(gateway: Gateway) -> Gateway:
    """One dead letter, id 1, and one live job behind it, id 2."""
    gateway.subscribe(gateway.key()[0], URL)
    gateway.ingest(message(700, payload=PAYLOAD), message(701))
    with gateway.queue.turn() as turn:
        turn.claim(1)
        turn.dead(1, NOW + 90, "http_404")
    return gateway


def test_the_listing_has_ids_attempts_times_and_the_reason(run: Run, dead: Gateway) -> None:
    ended = run("list-failed-deliveries")

    assert ended.status == 0
    header, row = ended.out.splitlines()
    assert header.split("  ")[0] == "ID"
    assert row.split() == [
        *("1", "1", str(CHAT), "700", "1"),
        *("2026-09-21T14:13:20Z", "2026-09-21T14:14:50Z", "http_404", "app"),
    ]


def test_the_json_listing_is_stable(run: Run, dead: Gateway) -> None:
    assert json.loads(run("list-failed-deliveries", "--json").out) == {
        "failed_deliveries": [
            {
                "id": 1,
                "key": "app",
                "subscription_id": 1,
                "chat_id": CHAT,
                "update_id": 700,
                "attempts": 1,
                "created_at": NOW,
                "died_at": NOW + 90,
                "reason": "http_404",
            }
        ]
    }


def test_no_payload_and_no_url_is_shown(run: Run, dead: Gateway) -> None:
    shown = run("list-failed-deliveries").out + run("list-failed-deliveries", "--json").out

    for secret in ("private", "receiver.example", "query-secret"):
        assert secret not in shown


def test_a_listing_of_nothing_says_so(run: Run, gateway: Gateway) -> None:
    assert run("list-failed-deliveries").out == "No failed deliveries.\n"
    assert json.loads(run("list-failed-deliveries", "--json").out) == {"failed_deliveries": []}


def touched_at(db: Path) -> int:
    path = notification.path_of(db)
    return path.stat().st_mtime_ns if path.exists() else 0


def test_retry_gives_the_whole_budget_from_now_and_wakes_the_dispatcher(
    run: Run, dead: Gateway
) -> None:
    before, began = touched_at(dead.path), int(time.time())

    ended = run("retry-delivery", 1)

    assert (ended.status, ended.err) == (0, "")
    assert touched_at(dead.path) > before
    with dead.queue.turn() as turn:
        job = turn.job(1)
    assert job is not None
    assert job.attempt_count == 0
    assert job.created_at == job.next_attempt_at >= began


def test_delete_removes_it_for_good(run: Run, dead: Gateway) -> None:
    assert run("delete-delivery", 1).status == 0
    assert [job[1] for job in dead.jobs()] == [701]


@pytest.mark.parametrize("command", ["retry-delivery", "delete-delivery"])
@pytest.mark.parametrize("delivery", [0, 2, 3, 2**63 - 1, 2**63, "9" * 100])
def test_what_has_not_failed_is_left_alone(
    run: Run, dead: Gateway, command: str, delivery: int | str
) -> None:
    before = dead.jobs()

    assert_refused(run(command, delivery), 1, f"no failed delivery {delivery}")
    assert dead.jobs() == before


@pytest.mark.parametrize("delivery", ["x", "", "1.0", "-1", "9" * 5000])
def test_what_is_no_id_is_wrong_usage(run: Run, dead: Gateway, delivery: object) -> None:
    ended = run("retry-delivery", delivery)

    assert (ended.status, ended.out) == (2, "")
    assert dead.queue.counts().dead == 1
