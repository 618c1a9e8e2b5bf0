"""``POST /send`` in front of a Bot API that answers at once.

Added latency: one caller, one request after another, against the same caller at the stub
itself. Rate: eight callers at once, as many as are served at once, against a bare Falcon
application under the same worker. Then both again beside 200 clients that send a byte a
second and never finish a request.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, cast

from bench import ours
from bench.harness import (
    Json,
    Options,
    Section,
    child,
    environment,
    goal,
    interleaved,
    median,
    wait_until,
)
from bench.native import Sink, compiled
from bench.peers.services import free_port
from bench.slow import BYTE_PERIOD

CALLERS: Final = 8
SLOW_CLIENTS: Final = 200
ENVELOPE: Final = {
    "ok": True,
    "result": {
        "message_id": 15,
        "from": {"id": ours.BOT_ID, "is_bot": True, "first_name": "B", "username": "bench_bot"},
        "chat": {"id": 77, "first_name": "Ann", "type": "private"},
        "date": 1770000000,
        "text": "Hello",
    },
}


@dataclass(frozen=True)
class _Targets:
    stub: int
    gateway: int
    falcon: int
    request: Path


def run(options: Options) -> Section:
    """Measure stub, bare Falcon and the gateway, alone and beside slow clients."""
    seconds = 1.0 if options.quick else 5.0
    with _targets() as targets:
        ports = {
            "stub": targets.stub,
            "bare Falcon": targets.falcon,
            "gateway": targets.gateway,
        }
        contestants: dict[str, Callable[[], Json]] = {}
        for name, port in ports.items():
            contestants[name] = partial(_measure, port, targets.request, seconds, 0)
            if name != "stub":
                contestants[f"{name}, {SLOW_CLIENTS} slow clients"] = partial(
                    _measure, port, targets.request, seconds, SLOW_CLIENTS
                )
        values = interleaved(contestants, options.repeats)
    return _section(values)


def _measure(port: int, request: Path, seconds: float, slow: int) -> Json:
    with _slow_clients(port, slow):
        one = _load(port, 1, seconds, request)
        many = _load(port, CALLERS, seconds, request)
    return {
        "p50_us": one["p50_us"],
        "p99_us": one["p99_us"],
        "rate": many["rate"],
        "busy_p99_us": many["p99_us"],
        "not_200": one["refused"] + many["refused"],
        "reopened": one["reopened"] + many["reopened"],
    }


def _load(port: int, callers: int, seconds: float, request: Path) -> Json:
    command = [compiled("load"), port, callers, seconds, request]
    done = subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE)
    return cast("Json", json.loads(done.stdout))


@contextlib.contextmanager
def _slow_clients(port: int, amount: int) -> Iterator[None]:
    if not amount:
        yield
        return
    command = [sys.executable, "-m", "bench.slow", str(port), str(amount)]
    with child(command, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with process.stdout:
            process.stdout.readline()  # all are connected
            yield


@contextlib.contextmanager
def _targets() -> Iterator[_Targets]:
    with contextlib.ExitStack() as held:
        database = held.enter_context(ours.new_database())
        body = database.path.with_name("envelope.json")
        body.write_text(json.dumps(ENVELOPE))
        sink = held.enter_context(Sink.start(body=body))
        port, falcon = free_port(), free_port()
        url = f"http://127.0.0.1:{sink.port}"
        options = ("--port", str(port), "--bot-api-url", url)
        held.enter_context(ours.process("telegrammer_api", database.path, *options))
        command = [sys.executable, "-m", "bench.bare_falcon", str(falcon)]
        log = held.enter_context(database.path.with_name("bare_falcon.log").open("wb"))
        held.enter_context(child(command, env=environment(), stderr=log))
        request = database.path.with_name("request")
        request.write_bytes(_request(ours.new_key(database)))
        for one in (port, falcon):
            wait_until(partial(_serves, one, request), 20, f"port {one} serves")
        yield _Targets(sink.port, port, falcon, request)


def _serves(port: int, request: Path) -> bool:
    command = [compiled("load"), port, 1, 0.05, request]
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True)
    if done.returncode != 0:
        return False
    found = json.loads(done.stdout)
    return bool(found["answered"] and not found["refused"])


def _request(key: str) -> bytes:
    body = json.dumps({"chat_id": 77, "text": "Hello"})
    head = (
        "POST /send HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def _section(values: dict[str, list[Json]]) -> Section:
    stub, ours_ = values["stub"], values["gateway"]
    slowed = values[f"gateway, {SLOW_CLIENTS} slow clients"]
    added = {p: (median(ours_, p) - median(stub, p)) / 1000 for p in ("p50_us", "p99_us")}
    return Section(
        name="api",
        title="API",
        remarks=[
            "p50 and p99: one caller. Rate: eight callers, two workers of four threads.",
            "*bare Falcon*: the same worker, a route that answers constant bytes.",
            f"A slow client sends a byte every {BYTE_PERIOD:g} s and comes again when cut off.",
            f"`POST /send` adds {added['p50_us']:.2f} ms at p50 and {added['p99_us']:.2f} ms at"
            " p99 to the stub's own answer.",
        ],
        columns=["target", "p50 ms", "p99 ms", "requests/s", "of bare Falcon", "p99 ms at 8"],
        rows=[_row(name, runs, values) for name, runs in values.items()],
        goals=[
            goal(
                "of the rate is left beside 200 slow clients",
                median(slowed, "rate") / median(ours_, "rate"),
                least=0.8,
            ),
            goal("answers were not 200", max(run["not_200"] for run in ours_ + slowed), most=0),
        ],
        values=dict(values),
    )


def _row(name: str, runs: list[Json], values: dict[str, list[Json]]) -> list[str]:
    bare = median(values["bare Falcon"], "rate")
    return [
        name,
        f"{median(runs, 'p50_us') / 1000:.2f}",
        f"{median(runs, 'p99_us') / 1000:.2f}",
        f"{median(runs, 'rate'):,.0f}",
        f"{median(runs, 'rate') / bare:.2f}",
        f"{median(runs, 'busy_p99_us') / 1000:.2f}",
    ]
