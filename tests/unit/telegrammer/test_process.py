"""Stop, signals, one instance."""

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from telegrammer.errors import LockHeld, UnsafeFile
from telegrammer.process import Stop, lock_path, one_instance, stop_on_signals


def test_a_wait_ends_at_its_time_when_nobody_stops() -> None:
    with Stop() as stop:
        assert stop.wait(0.01) is False
        assert stop.wait(-1) is False
        assert stop.is_set() is False


def test_a_stop_wakes_every_wait_and_stays() -> None:
    with Stop() as stop:
        woken: list[bool] = []
        waits = [threading.Thread(target=lambda: woken.append(stop.wait(None))) for _ in range(3)]
        for wait in waits:
            wait.start()
        stop.set()
        stop.set()
        for wait in waits:
            wait.join(10)

        assert woken == [True, True, True]
        assert stop.is_set()
        assert select.select([stop], [], [], 0)[0] == [stop]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_stop_and_more_signals_change_nothing(number: signal.Signals) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert not signal.sigpending()
    assert "signals" not in [thread.name for thread in threading.enumerate()]


def test_without_a_signal_the_block_ends_too() -> None:
    with stop_on_signals():
        pass

    assert "signals" not in [thread.name for thread in threading.enumerate()]


HOLD = """
import sys
from pathlib import Path
from telegrammer.process import one_instance
with one_instance(Path(sys.argv[1]), "poller"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_role_is_held_by_one_process_and_freed_by_its_death(tmp_path: Path) -> None:
    path = lock_path(tmp_path / "t.db", "poller")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(LockHeld, match="another poller is running"),
            one_instance(path, "poller"),
        ):
            pass
        holder.kill()
        holder.wait(10)

        with one_instance(path, "poller"):
            pass
    assert path.name == "t.db.poller.lock"
    assert path.exists(), "a lock file is never deleted"


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_the_lock_file_is_for_its_user_alone(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "lock"
    before = os.umask(umask)
    try:
        with one_instance(path, "poller"):
            pass
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    path.chmod(0o666)
    with one_instance(path, "poller"):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_lock_file_that_is_a_link_or_a_folder_is_refused(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.touch()
    target.chmod(0o644)
    link.symlink_to(target)
    for path in (link, tmp_path, tmp_path / "none" / "lock"):
        with pytest.raises(UnsafeFile, match=str(path)), one_instance(path, "poller"):
            pass

    assert target.stat().st_mode & 0o777 == 0o644, "not even its mode is changed"
