"""sandbox: it becomes that program."""

import re
import signal
import urllib.request
from pathlib import Path

from support.processes import Processes


def test_help_is_the_sandboxs_own(processes: Processes) -> None:
    status, process = processes.run("telegrammer_cli", "sandbox", "--help")

    assert status == 0
    assert "Usage: telegrammer sandbox" in process.stdout
    assert "--port" in process.stdout
    assert "stand-in" in process.stdout


def test_options_go_through_and_it_stops_as_asked(processes: Processes) -> None:
    process = processes.spawn("telegrammer_cli", "sandbox", "--port", "0", "--token", "42:abc")
    process.wait_output("Bot API URL")
    found = re.search(r"Bot API URL: (http://127\.0\.0\.1:[0-9]+)", process.stdout)
    assert found is not None
    with urllib.request.urlopen(f"{found[1]}/bot42:abc/getMe", timeout=10) as answer:
        assert b'"id":42' in answer.read().replace(b" ", b"")

    process.send(signal.SIGTERM)
    assert process.wait() == 0


def test_a_wrong_option_is_its_own_wrong_usage(processes: Processes) -> None:
    status, process = processes.run("telegrammer_cli", "sandbox", "--no-such")

    assert status == 2
    assert "--no-such" in process.stderr


def test_a_file_of_its_name_in_the_folder_is_not_run(processes: Processes, tmp_path: Path) -> None:
    """`telegrammer` may be started anywhere, also where others can write."""
    (tmp_path / "telegrammer_sandbox.py").write_text("raise SystemExit(99)")

    status, _ = processes.run("telegrammer_cli", "sandbox", "--help")
    assert status == 0
