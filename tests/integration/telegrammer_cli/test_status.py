"""status: what the processes say about themselves."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from support.builders import BOT, Gateway, message
from support.cli import Run
from support.front import until
from support.processes import Processes
from support.sandbox import Sandbox
from telegrammer.model import State
from telegrammer.store.components import Component, Components

NAMES = ("api", "poller", "dispatcher")


@pytest.fixture
def now() -> int:
    return int(time.time())


@pytest.fixture
def rows(gateway: Gateway, now: int) -> Components:
    """Three processes that run."""
    found = Components(gateway.database)
    for number, name in enumerate(NAMES):
        found.write(Component(name, 100 + number, State.RUNNING, None, now - 60, now, 0, now))
    return found


def test_a_running_gateway_is_healthy(run: Run, gateway: Gateway, rows: Components) -> None:
    gateway.subscribe(gateway.key()[0], "http://a/")
    gateway.ingest(message(700), message(701))
    with gateway.queue.turn() as turn:
        turn.claim(1)

    ended = run("status")

    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["Status:", "healthy"]
    assert lines[1].split() == ["Bot:", f"{BOT},", "next", "update", "702"]
    assert lines[2].split(maxsplit=1)[1] == ("1 pending, 1 in flight, 0 failed, of at most 100000")
    assert lines[4].split("  ")[0] == "PROCESS"
    assert [line.split()[:2] for line in lines[5:]] == [[name, "running"] for name in NAMES]
    assert "s ago" in lines[5]


def test_the_json_is_healths_with_the_processes_beside_it(
    run: Run, rows: Components, now: int
) -> None:
    found = json.loads(run("status", "--json").out)

    assert (found["ok"], found["status"]) == (True, "healthy")
    assert found["queue"] == {"pending": 0, "in_flight": 0, "dead": 0, "limit": 100_000}
    assert (found["bot_id"], found["next_update_id"]) == (BOT, None)
    assert found["components"]["poller"] == {
        "state": "running",
        "last_success_at": now,
        "consecutive_failures": 0,
        "pid": 101,
        "since": now - 60,
        "heartbeat_at": now,
    }


def test_it_tells_of_processes_that_do_not_run(run: Run, gateway: Gateway) -> None:
    ended = run("status")

    assert (ended.status, ended.err) == (1, "")
    assert ended.out.splitlines()[0].split() == ["Status:", "unavailable"]
    for line in ended.out.splitlines()[5:]:
        assert line.split()[1:3] == ["absent", "not_running"]
    assert run("status", "--json").status == 1


def test_a_process_without_a_beat_is_stale(run: Run, rows: Components, now: int) -> None:
    dispatcher = rows.all()["dispatcher"]
    rows.write(replace(dispatcher, heartbeat=now - 100))

    ended = run("status")
    assert ended.status == 1
    assert ended.out.splitlines()[-1].split()[1:3] == ["stale", "heartbeat_lost"]


def test_a_poller_that_backs_off_is_degraded_and_that_is_no_failure(
    run: Run, rows: Components
) -> None:
    poller = rows.all()["poller"]
    rows.write(replace(poller, state=State.BACKING_OFF, reason="timeout", consecutive_failures=3))

    ended = run("status")
    assert ended.status == 0
    assert ended.out.splitlines()[0].split() == ["Status:", "degraded"]
    assert ended.out.splitlines()[6].split()[1:3] == ["backing_off", "timeout"]


def test_what_only_an_operator_can_mend_comes_with_the_remedy(run: Run, rows: Components) -> None:
    poller = rows.all()["poller"]
    rows.write(replace(poller, state=State.STOPPED, reason="other_poller"))

    ended = run("status")
    assert ended.status == 1
    assert ended.out.splitlines()[-1].endswith("stop it, then restart the poller")


def test_a_malformed_update_that_waits_is_named_with_the_way_out(
    run: Run, rows: Components
) -> None:
    poller = rows.all()["poller"]
    rows.write(replace(poller, state=State.BACKING_OFF, reason="malformed_update", update_id=700))

    assert "telegrammer skip-update 700" in run("status").out
    assert json.loads(run("status", "--json").out)["components"]["poller"]["update_id"] == 700


def test_the_limit_is_the_setting(run: Run, rows: Components) -> None:
    found = json.loads(run("status", "--json", "--max-jobs", "7").out)

    assert found["queue"]["limit"] == 7


@pytest.mark.parametrize("role", ["poller", "dispatcher"])
def test_a_real_process_is_seen_and_gone_after_its_stop(
    processes: Processes, run: Run, gateway: Gateway, sandbox: Sandbox, role: str
) -> None:
    env = {
        "TELEGRAMMER_DB": str(gateway.path),
        "TELEGRAMMER_BOT_TOKEN": sandbox.token,
        "TELEGRAMMER_BOT_API_URL": sandbox.url,
    }
    process = processes.spawn(f"telegrammer_{role}", env=env)
    process.wait_event("started")
    assert until(lambda: Components(gateway.database).all()[role].state is State.RUNNING)
    running = json.loads(run("status", "--json").out)["components"][role]
    assert process.terminate() == 0
    stopped = json.loads(run("status", "--json").out)["components"][role]

    assert (running["pid"], running["state"]) == (process.pid, "running")
    assert (stopped["state"], stopped["reason"]) == ("absent", "not_running")


def test_a_killed_dispatcher_is_still_named_until_it_is_stale(
    processes: Processes, run: Run, gateway: Gateway, tmp_path: Path
) -> None:
    env = {"TELEGRAMMER_DB": str(gateway.path)}
    dispatcher = processes.spawn("telegrammer_dispatcher", env=env)
    dispatcher.wait_event("started")
    dispatcher.kill()
    row = Components(gateway.database).all()["dispatcher"]
    Components(gateway.database).write(replace(row, heartbeat=row.heartbeat - 16))

    found = json.loads(run("status", "--json").out)["components"]["dispatcher"]
    assert (found["state"], found["reason"]) == ("stale", "heartbeat_lost")
