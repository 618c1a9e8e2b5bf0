"""The harness itself: a check that cannot fail would prove nothing."""

import sys
from pathlib import Path

import pytest

from support.processes import Processes, parse_event
from support.secrets import Secrets


@pytest.fixture
def own(tmp_path: Path) -> Processes:
    """A harness that this module finishes by hand."""
    return Processes(tmp_path, Secrets())


def python(own: Processes, code: str, **env: str) -> None:
    own.start("it", [sys.executable, "-c", code], env).wait()


def test_it_notices_a_traceback(own: Processes) -> None:
    """A process that writes a traceback fails its test."""
    python(own, "1 / 0")

    with pytest.raises(AssertionError, match="wrote Traceback"):
        own.finish()


def test_it_notices_and_ends_what_was_left(own: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that leaves a child behind fails its test, and the child is killed."""
    sleeper = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {sleeper!r}])"
    process = own.start("it", [sys.executable, "-c", code + "; print('done')"], {})
    process.wait_output("done")
    process._popen.wait()
    monkeypatch.setattr("support.processes.PATIENCE", 0.2)

    with pytest.raises(AssertionError, match="left"):
        own.finish()

    assert process.left() == []


def test_it_notices_a_process_that_does_not_stop_well(own: Processes) -> None:
    """A process still running at the end must end with 0 when it is told to stop."""
    code = "import signal; print('up', flush=True); signal.pause()"
    own.start("it", [sys.executable, "-c", code], {}).wait_output("up")

    with pytest.raises(AssertionError, match="exit -15"):
        own.finish()


def test_it_ends_a_wait_when_the_process_ends(own: Processes) -> None:
    """Waiting for an event of a process that has ended fails at once and shows its output."""
    process = own.start("it", [sys.executable, "-c", "print('last words')"], {})

    with pytest.raises(AssertionError, match=r"it ended\nlast words"):
        process.wait_event("started")
    own.finish()


@pytest.mark.parametrize("what", ["text", "token", "key", "digest"])
def test_secrets_are_found_in_what_processes_write(tmp_path: Path, what: str) -> None:
    """Each kind of secret is found in a process's output, and not repeated."""
    secrets = Secrets()
    token, key = secrets.token("1234567:" + "x" * 35), secrets.key("ab" * 32)
    digest = next(value for value in secrets._kinds if len(value) == 64 and value != key)
    values = {"text": secrets.text("query"), "token": token[8:], "key": key, "digest": digest}
    own = Processes(tmp_path, secrets)
    python(own, "import os; print(os.environ['VALUE'])", VALUE=values[what])
    own.finish()

    with pytest.raises(AssertionError) as failure:
        secrets.check()
    assert values[what] not in str(failure.value)


def test_events_are_read_from_both_formats() -> None:
    """A log line is the same event as text and as JSON."""
    text = (
        'time=2026-01-01T00:00:00.000Z level=error event=ended error="no \\"x\\": set it" status=78'
    )
    json = '{"event": "ended", "error": "no \\"x\\": set it", "status": 78}'

    assert parse_event(text).items() >= parse_event(json).items()
    assert parse_event(json) == {"event": "ended", "error": 'no "x": set it', "status": "78"}
