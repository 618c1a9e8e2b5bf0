"""The operator's command as a real process, on a database of the test's own."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import Gateway
from support.cli import Ended, Run
from support.processes import Processes
from support.secrets import Secrets
from telegrammer_cli.__main__ import main


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "state" / "telegrammer.db"


@pytest.fixture
def run(processes: Processes, db: Path) -> Run:
    """Run the command to its end; keywords are environment variables beside the database's."""

    def to_its_end(*arguments: object, **variables: str) -> Ended:
        env = {"TELEGRAMMER_DB": str(db)} | variables
        status, process = processes.run("telegrammer_cli", *arguments, env=env, timeout=30)
        return Ended(status, process.stdout, process.stderr)

    return to_its_end


@pytest.fixture
def call(
    db: Path,
    secrets: Secrets,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Run]:
    """Run the command in the test's own process, for the sake of time."""
    root, ours = logging.getLogger(), logging.getLogger("telegrammer")
    before = (list(root.handlers), root.level, ours.level, logging.raiseExceptions)
    for name in [name for name in os.environ if name.startswith("TELEGRAMMER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TELEGRAMMER_DB", str(db))

    def in_process(*arguments: object, **variables: str) -> Ended:
        monkeypatch.setattr("sys.argv", ["telegrammer", *map(str, arguments)])
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capfd.readouterr()
        secrets.wrote("telegrammer_cli", out + err)
        return Ended(int(ended.value.code or 0), out, err)

    yield in_process
    root.handlers[:], root_level, our_level, logging.raiseExceptions = before
    root.setLevel(root_level)
    ours.setLevel(our_level)


@pytest.fixture
def gateway(db: Path) -> Iterator[Gateway]:
    found = Gateway(db)
    yield found
    found.close()
