"""The process: how it begins, what it says about itself, how it ends."""

import contextlib
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from support.builders import Gateway
from support.front import until
from support.processes import REPOSITORY, Process, Processes
from support.raw_http import request
from support.running_api import RunningApi, free_port, outcome
from support.sandbox import TOKEN, Sandbox
from support.secrets import Secrets
from telegrammer.model import State
from telegrammer.store.components import Component, Components

Start = Callable[..., RunningApi]
ENVIRONMENT = {"TELEGRAMMER_BOT_TOKEN": TOKEN}


@pytest.fixture
def start(tmp_path: Path, processes: Processes, secrets: Secrets) -> Iterator[Start]:
    """Start an API of the test's own; options as keywords."""
    with contextlib.ExitStack() as held:
        sandbox = held.enter_context(Sandbox.start())
        gateway = held.enter_context(
            contextlib.closing(Gateway(tmp_path / "state" / "telegrammer.db"))
        )

        def started(port: int | None = None, **options: object) -> RunningApi:
            port = port or free_port()
            given = {"db": gateway.path, "port": port, "bot_api_url": sandbox.url, **options}
            arguments = [part for name, value in given.items() for part in (_option(name), value)]
            process = processes.spawn("telegrammer_api", *arguments, env=ENVIRONMENT)
            process.wait_event("worker_started", n=int(str(options.get("api_workers", 2))))
            api = RunningApi(process, ("127.0.0.1", port), gateway, sandbox, secrets)
            api.key = api.new_key(f"tests {process.pid}")
            return api

        yield started


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def workers(process: Process) -> set[int]:
    return {child.pid for child in psutil.Process(process.pid).children()}


def row(api: RunningApi) -> Component | None:
    return Components(api.gateway.database).all().get("api")


def test_it_fails_at_once_with_one_line(tmp_path: Path, processes: Processes) -> None:
    """Each with the exit status that the contract names, and nothing left listening."""
    db = tmp_path / "telegrammer.db"
    foreign = tmp_path / "foreign.db"
    foreign.write_text("not a database, but more than nothing " * 10)
    legacy = tmp_path / "legacy.db"
    with contextlib.closing(sqlite3.connect(legacy)) as connection:
        connection.execute("CREATE TABLE api_keys (name TEXT, key TEXT, created_at INTEGER)")
    bound = tmp_path / "bound.db"
    other = {"TELEGRAMMER_BOT_TOKEN": "42:another-bots-token-nobody-may-see"}
    Gateway(bound).close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cases: list[tuple[int, str, list[object], dict[str, str]]] = [
            (78, "TELEGRAMMER_BOT_TOKEN", ["--db", db], {}),
            (78, "--port", ["--db", db, "--port", "0"], ENVIRONMENT),
            (78, "--bot-api-url", ["--db", db, "--bot-api-url", "http://h/"], ENVIRONMENT),
            (78, "foreign.db", ["--db", foreign], ENVIRONMENT),
            (78, "telegrammer migrate", ["--db", legacy], ENVIRONMENT),
            (
                78,
                "belongs to bot 6000000001",
                ["--db", bound],
                other,
            ),
            (1, "cannot listen", ["--db", db, "--port", taken.getsockname()[1]], ENVIRONMENT),
            (1, "cannot resolve", ["--db", db, "--host", "a..b"], ENVIRONMENT),
            (2, "--no-such-option", ["--no-such-option"], ENVIRONMENT),
        ]
        for status, said, arguments, environment in cases:
            began = time.monotonic()
            found, process = processes.run("telegrammer_api", *arguments, env=environment)

            assert found == status, process.output
            assert said in process.output
            assert status == 2 or len(process.output.splitlines()) == 1
            assert time.monotonic() - began < 2


def test_the_start_is_told_with_the_settings_and_without_secrets(start: Start) -> None:
    api = start(api_threads=3, api_queue=7, send_timeout="9s")

    event = api.process.wait_event("started")
    assert (event["threads"], event["queue"], event["send_timeout"]) == ("3", "7", "9.0")
    assert event["db"] == str(api.gateway.path)
    assert TOKEN not in api.process.output


def test_all_workers_share_the_masters_row_and_it_goes_at_the_end(start: Start) -> None:
    api = start()
    own = row(api)

    assert own is not None
    assert (own.pid, own.state) == (api.process.pid, State.RUNNING)
    api.process.send(signal.SIGTTOU)
    api.process.wait_event("worker_stopped")
    assert row(api) is not None
    assert api.process.terminate() == 0
    assert row(api) is None


def test_health_tells_what_the_processes_say(start: Start) -> None:
    api = start()
    alone = api.call("GET", "/health")
    now = int(time.time())
    components = Components(api.gateway.database)
    components.write(Component("poller", 1, State.RUNNING, None, now, now, last_success_at=now))
    components.write(Component("dispatcher", 1, State.RUNNING, None, now, now))
    together = api.call("GET", "/health")
    components.write(Component("poller", 1, State.BACKING_OFF, "timeout", now, now, 1, now))
    retrying = api.call("GET", "/health")
    components.write(Component("poller", 1, State.STOPPED, "unauthorized", now, now, 1, now))
    stopped = api.call("GET", "/health")

    assert (alone.status, alone.json()["ok"]) == (503, False)
    assert alone.json()["components"]["poller"]["state"] == "absent"
    assert together.status == 200
    assert together.json() == {
        "ok": True,
        "status": "healthy",
        "components": {
            "api": {"state": "running"},
            "poller": {"state": "running", "last_success_at": now, "consecutive_failures": 0},
            "dispatcher": {"state": "running"},
        },
        "queue": {"pending": 0, "in_flight": 0, "dead": 0, "limit": 100000},
    }
    assert (retrying.status, retrying.json()["status"]) == (200, "degraded")
    assert (stopped.status, stopped.json()["status"]) == (503, "unavailable")
    assert stopped.json()["components"]["poller"]["reason"] == "unauthorized"


def test_an_idle_api_stops_in_under_a_second(start: Start) -> None:
    """With a caller's connection open, too."""
    api = start()
    with api.client() as client:
        assert client.exchange(request("/subscriptions", "GET", *api.headers())).status == 200
        began = time.monotonic()

        assert api.process.terminate() == 0
        assert time.monotonic() - began < 1


def test_a_running_send_is_finished_before_the_end(start: Start) -> None:
    api = start()
    api.sandbox.say(7, "hi")
    api.sandbox.fault("sendMessage", hold=True)
    found: list[int] = []
    body = {"chat_id": 7, "text": "Hello"}
    thread = threading.Thread(target=lambda: found.append(api.call("POST", "/send", body).status))
    thread.start()
    api.sandbox.wait_held("sendMessage")
    api.process.stop_signal()
    assert until(lambda: _refuses(api))
    api.sandbox.release()
    thread.join()

    assert found == [200]
    assert api.process.wait() == 0


def test_a_send_that_may_not_end_before_the_stop_is_refused_and_not_sent(start: Start) -> None:
    """It waits behind another; the times allow 50 s for a send, the stop 45 s."""
    api = start(api_workers=1, api_threads=1, send_timeout="45s", request_timeout="5s")
    api.sandbox.say(7, "hi")
    api.sandbox.fault("sendMessage", hold=True, run=True)
    send = request("/send", "POST", *api.headers(), body=b'{"chat_id":7,"text":"x"}')
    with api.client() as running, api.client() as waiting:
        assert waiting.exchange(request("/nothing")).status == 404  # known to the worker
        running.send(send)
        api.sandbox.wait_held("sendMessage")
        waiting.send(send)
        api.process.stop_signal()
        refusal = api.checked(waiting.read_response())
        api.sandbox.release()

        assert outcome(refusal) == (503, "OVERLOADED")
        assert api.checked(running.read_response()).status == 200
        assert api.process.wait() == 0
    assert len(api.sandbox.calls("sendMessage")) == 1


def _refuses(api: RunningApi) -> bool:
    try:
        api.client().close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_worker_that_dies_is_replaced(start: Start) -> None:
    api = start()
    victim = min(workers(api.process))
    os.kill(victim, signal.SIGKILL)
    api.process.wait_event("worker_started", n=3)

    assert victim not in workers(api.process)
    assert [api.call("GET", "/subscriptions").status for _ in range(8)] == [200] * 8


def test_a_worker_takes_anothers_place_while_the_database_is_gone(start: Start) -> None:
    """It answers like the others, and works again with them."""
    api = start()
    elsewhere = api.gateway.path.with_name("elsewhere")
    api.gateway.path.rename(elsewhere)
    try:
        psutil.Process(workers(api.process).pop()).kill()
        api.process.wait_event("worker_started", n=3)
        refused = [api.call("GET", "/subscriptions") for _ in range(8)]
    finally:
        elsewhere.rename(api.gateway.path)

    assert {outcome(response) for response in refused} == {(503, "AUTH_UNAVAILABLE")}
    assert {api.call("GET", "/subscriptions").status for _ in range(8)} == {200}


def test_it_starts_again_on_the_same_port_and_database(start: Start) -> None:
    """Callers keep their keys and subscriptions."""
    api = start()
    body = {"chat_id": 7, "callback_url": "http://h/"}
    made = api.call("POST", "/subscribe", body).json()
    api.process.terminate()
    again = start(port=api.address[1])

    assert again.address == api.address
    assert again.call("POST", "/subscribe", body, key=api.key).json() == made


def test_a_telegram_that_is_not_there_is_502(start: Start) -> None:
    api = start(bot_api_url=f"http://127.0.0.1:{free_port()}")
    body = {"chat_id": 7, "text": "Hello"}

    assert outcome(api.call("POST", "/send", body)) == (502, "UPSTREAM_UNAVAILABLE")


def test_too_many_requests_are_refused_at_once(start: Start) -> None:
    """One runs, one waits, the next is told to come again; the two are answered."""
    api = start(api_workers=1, api_threads=1, api_queue=1)
    api.sandbox.say(7, "hi")
    api.sandbox.fault("sendMessage", hold=True, times=2)
    send = request("/send", "POST", *api.headers(), body=b'{"chat_id":7,"text":"x"}')
    with api.client() as first, api.client() as second:
        first.send(send)
        api.sandbox.wait_held("sendMessage")
        second.send(send)
        assert until(lambda: _is_overloaded(api))
        api.sandbox.release()
        assert first.read_response().status == 200
        api.sandbox.wait_held("sendMessage")
        api.sandbox.release()
        assert second.read_response().status == 200


def _is_overloaded(api: RunningApi) -> bool:
    """Tell whether a request is refused; one that is not refused waits, and is given up."""
    response = api.raw(request("/nothing"))
    if response.status == 503:
        assert outcome(response) == (503, "OVERLOADED")
        assert int(response.headers["retry-after"]) > 0
    return response.status == 503


def test_it_starts_and_answers_while_no_file_can_be_written(
    tmp_path: Path, processes: Processes, secrets: Secrets
) -> None:
    """As on a full disk, or a file system that was turned read-only; another process runs."""
    port = free_port()
    module = [sys.executable, "-X", "dev", "-W", "error", "-m", "telegrammer_api"]
    with (
        contextlib.closing(Gateway(tmp_path / "telegrammer.db")) as gateway,
        Sandbox.start() as bot,
    ):
        key = secrets.key(gateway.key()[1])
        process = processes.start(
            "telegrammer_api",
            ["prlimit", "--fsize=0", *module, "--db", str(gateway.path), "--port", str(port)],
            {
                "PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services",
                "TELEGRAMMER_BOT_API_URL": bot.url,
                **ENVIRONMENT,
            },
        )
        process.wait_event("worker_started", n=2)
        api = RunningApi(process, ("127.0.0.1", port), gateway, bot, secrets, key)

        assert api.call("GET", "/subscriptions").status == 200
        body = {"chat_id": 5, "callback_url": "http://127.0.0.1/"}
        assert outcome(api.call("POST", "/subscribe", body)) == (503, "STORAGE_UNAVAILABLE")
