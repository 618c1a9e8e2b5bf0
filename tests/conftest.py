"""What every test can have: real processes, and the watch over secrets."""

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from support.processes import SOURCES, Processes
from support.sandbox import TOKEN, Sandbox
from support.secrets import Secrets, listen_to_log

# Whatever is installed, commands that tests start are this checkout's.
os.environ |= SOURCES

# A slow machine is no failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def suite_secrets() -> Iterator[Secrets]:
    """The secrets of the whole suite; at its end all that was written is looked through."""
    found = Secrets()
    found.token(TOKEN)
    with pytest.MonkeyPatch.context() as patch:
        listen_to_log(found, patch)
        yield found
    found.check()


@pytest.fixture
def secrets(suite_secrets: Secrets) -> Iterator[Secrets]:
    """The secrets; the test fails when one was written while it ran."""
    before = suite_secrets.mark()
    yield suite_secrets
    suite_secrets.check(since=before)


@pytest.fixture
def processes(tmp_path: Path, secrets: Secrets) -> Iterator[Processes]:
    """Start our commands; see ``support.processes``."""
    found = Processes(tmp_path, secrets)
    yield found
    found.finish()


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """A "Telegram" of the test's own, in this process."""
    with Sandbox.start() as found:
        yield found
