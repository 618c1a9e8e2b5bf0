"""The log of the test's own process: read, and put back as it was."""

import contextlib
import logging
from collections.abc import Iterator

import pytest

from support.processes import Event, parse_event
from telegrammer import logs


def logged(capsys: pytest.CaptureFixture[str]) -> list[Event]:
    """Return the events written since the last look."""
    return [parse_event(line) for line in capsys.readouterr().err.splitlines()]


@contextlib.contextmanager
def log_put_back() -> Iterator[None]:
    """Undo ``logs.set_up`` at the end."""
    root, lines = logging.getLogger(), logs._lines
    before = (list(root.handlers), root.level)
    yield
    logs._lines = lines
    root.handlers[:], level = before
    root.setLevel(level)
