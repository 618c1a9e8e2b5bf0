"""The operator's command as a real process, on a database of the test's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import Gateway
from support.cli import Ended, Run
from support.log_lines import log_put_back
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

    with log_put_back():
        yield in_process


@pytest.fixture
def gateway(db: Path) -> Iterator[Gateway]:
    found = Gateway(db)
    yield found
    found.close()
