"""Who does the standard job: ours, the bare limits and the peers.

A contestant is filled with all jobs for a sink and then run; while it runs, its
processes are known, so that what it costs can be read from outside.
"""

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench import ours
from bench.harness import ROOT, child, environment
from bench.peers import services, setup

SUBSCRIPTIONS: Final = 100
PEERS: Final = ROOT / "bench" / "peers"


@dataclass(frozen=True)
class Job:
    """The standard job for one run: how much, at how many slots, to which port."""

    jobs: int
    workers: int
    port: int


@dataclass(frozen=True)
class Running:
    """A contestant at work. ``servers`` are the database or broker it needs.

    ``left`` tells how many jobs its store still holds, where that is cheap to ask.
    """

    own: psutil.Process
    servers: list[psutil.Process]
    left: Callable[[], int] | None = None


Contestant = Callable[[Job], AbstractContextManager[Running]]


@contextlib.contextmanager
def telegrammer(job: Job) -> Iterator[Running]:
    """Run ours: the real process, its log at the default level in a file."""
    with ours.new_database() as database:
        chats = list(range(1, SUBSCRIPTIONS + 1))
        ours.subscribe(database, chats, f"http://127.0.0.1:{job.port}/s/{{}}")
        ours.fill(database, chats, job.jobs)
        options = ("--callback-workers", str(job.workers))
        with ours.process("telegrammer_dispatcher", database.path, *options) as process:
            yield Running(psutil.Process(process.pid), [], lambda: ours.jobs_left(database))


@contextlib.contextmanager
def bare_client(job: Job) -> Iterator[Running]:
    """Run the HTTP client of ours without a database."""
    command = [sys.executable, "-m", "bench.bare", "client", job.port, job.workers, job.jobs]
    with child(command, env=environment()) as process:
        yield Running(psutil.Process(process.pid), [])


@contextlib.contextmanager
def huey(job: Job) -> Iterator[Running]:
    """Run four processes (the best number here), the workers' queues shared out to them."""
    python = setup.python()
    with tempfile.TemporaryDirectory(prefix="bench-huey-") as folder:
        script, file = PEERS / "huey_peer.py", Path(folder, "huey.db")
        _fill([python, script, "fill", file, job.workers, SUBSCRIPTIONS, job.jobs, job.port])
        shares = [[str(n) for n in range(job.workers) if n % 4 == share] for share in range(4)]
        with contextlib.ExitStack() as held:
            log = held.enter_context(Path(folder, "log").open("wb"))
            launcher = [sys.executable, "-c", _LAUNCH]
            commands = [
                "\x1f".join(map(str, [python, script, "work", file, *names])) for names in shares
            ]
            process = held.enter_context(child([*launcher, *commands], stderr=log))
            yield Running(psutil.Process(process.pid), [])


@contextlib.contextmanager
def celery(job: Job) -> Iterator[Running]:
    python = setup.python()
    with services.redis() as redis, _log() as log:
        url = f"redis://127.0.0.1:{redis.address}/0"
        script = PEERS / "celery_peer.py"
        _fill([python, script, "fill", url, job.workers, SUBSCRIPTIONS, job.jobs, job.port])
        command = [python, script, "work", url, job.workers]
        with child(command, stdout=log, stderr=log, cwd=PEERS) as process:
            yield Running(psutil.Process(process.pid), [redis.process])


@contextlib.contextmanager
def procrastinate(job: Job) -> Iterator[Running]:
    python = setup.python()
    with services.postgres() as postgres, _log() as log:
        script = PEERS / "procrastinate_peer.py"
        _fill([python, script, "fill", postgres.address, SUBSCRIPTIONS, job.jobs, job.port])
        command = [python, script, "work", postgres.address, job.workers]
        with child(command, stderr=log) as process:
            yield Running(psutil.Process(process.pid), [postgres.process])


@contextlib.contextmanager
def bullmq(job: Job) -> Iterator[Running]:
    script = setup.node_script("bullmq_peer.mjs")
    with services.redis() as redis, _log() as log:
        port = redis.address
        _fill(["node", script, "fill", port, SUBSCRIPTIONS, job.jobs, job.port])
        command = ["node", script, "work", port, str(SUBSCRIPTIONS), job.workers]
        with child(command, stdout=log, stderr=log) as process:
            yield Running(psutil.Process(process.pid), [redis.process])


# Starts each argument as a command, so that they are one family with one parent.
_LAUNCH: Final = """
import subprocess, sys
for process in [subprocess.Popen(command.split("\\x1f")) for command in sys.argv[1:]]:
    process.wait()
"""


def _fill(command: list[object]) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=PEERS)


@contextlib.contextmanager
def _log() -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        yield file.fileno()
