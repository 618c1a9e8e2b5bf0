"""What every benchmark shares: interleaved rounds, medians, facts about the machine."""

import contextlib
import importlib.metadata
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import psutil
import pycurl

ROOT: Final = Path(__file__).parents[1]
WORK: Final = ROOT / ".bench"
RESULTS: Final = WORK / "results.json"

Json = dict[str, Any]


class Skipped(Exception):  # noqa: N818
    """A contestant cannot run here; the text says why."""


@dataclass(frozen=True)
class Options:
    """``repeats`` is how often each contestant is measured; ``quick`` makes jobs small."""

    quick: bool
    repeats: int


@dataclass(frozen=True)
class Section:
    """A benchmark's result: rows for its table, remarks below it, every single value."""

    name: str
    title: str
    remarks: list[str]
    columns: list[str]
    rows: list[list[str]]
    goals: list[str]
    values: Json


def interleaved(
    contestants: Mapping[str, Callable[[], Json]], repeats: int
) -> dict[str, list[Json]]:
    """Measure each contestant ``repeats`` times, in rounds, so that a drift hits all alike.

    Every other round runs backwards. A contestant that raises ``Skipped`` is left out.
    """
    found: dict[str, list[Json]] = {name: [] for name in contestants}
    left = dict(contestants)
    for repeat in range(repeats):
        names = list(left)
        for name in names if repeat % 2 == 0 else reversed(names):
            try:
                value = left[name]()
            except Skipped as reason:
                say(f"skipped: {name}: {reason}")
                del left[name]
            else:
                found[name].append(value)
                say(f"  {repeat + 1}/{repeats} {name}: {_shown(value)}")
    return {name: values for name, values in found.items() if values}


def median(values: Sequence[Json], member: str) -> float:
    """Return the median of one member over the repeats."""
    return float(statistics.median(value[member] for value in values))


def goal(what: str, value: float, *, least: float = 0, most: float = float("inf")) -> str:
    """Return a line that says whether a goal is met."""
    wanted = f"at least {least:g}" if least else f"at most {most:g}"
    return f"{'met' if least <= value <= most else 'MISSED'}: {value:.3g} {what}, wanted {wanted}"


def _shown(value: Json) -> str:
    texts = {k: f"{v:.4g}" if isinstance(v, float) else str(v) for k, v in value.items()}
    return " ".join(f"{name}={text}" for name, text in texts.items())


def say(text: str) -> None:
    print(text, flush=True)


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """Return user and system time of the processes and their living descendants."""
    total = 0.0
    for process in processes:
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                total += times.user + times.system
    return total


@contextlib.contextmanager
def child(
    command: Sequence[object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdout: int | BinaryIO | None = None,
    stderr: int | BinaryIO | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process for as long as the block; it is told to stop, then made to."""
    arguments = [str(part) for part in command]
    process = subprocess.Popen(arguments, env=env, cwd=cwd, stdout=stdout, stderr=stderr)
    try:
        yield process
    finally:
        family = [psutil.Process(process.pid)] if process.poll() is None else []
        family += [c for p in family for c in p.children(recursive=True)]
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for orphan in family[1:]:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll for a condition; raise ``TimeoutError`` that names it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds:g} s still not so: {what}")
        time.sleep(0.01)


def environment() -> dict[str, str]:
    """Return the environment for our own processes: the source roots, no settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TELEGRAMMER_")}
    roots = f"{ROOT / 'shared'}:{ROOT / 'services'}:{ROOT}"
    return {**kept, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}


def facts() -> dict[str, str]:
    """Return what the numbers depend on."""
    memory = psutil.virtual_memory().total / 2**30
    packages = ("pycurl", "falcon", "gunicorn", "requests", "msgspec")
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores, {_processor()}, {memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load at start": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "libcurl": pycurl.version_info()[1],
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def save(section: Section, options: Options, circumstances: dict[str, str]) -> None:
    """Put a full run's section into the results file beside what other runs left there."""
    WORK.mkdir(exist_ok=True)
    results = load()
    results[section.name] = {
        "facts": circumstances,
        "repeats": options.repeats,
        **vars(section),
    }
    RESULTS.write_text(json.dumps(results, indent=1))


def load() -> Json:
    """Return what the results file holds, by the name of the section."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
