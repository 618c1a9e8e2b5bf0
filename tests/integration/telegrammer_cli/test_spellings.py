"""Commands and flags, settings before and behind them."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.builders import NOW, Gateway, message
from support.cli import Run

KEY = re.compile(r"[0-9a-f]{64}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--db", "DB", "--add-key", "N"),
        ("--add-key", "N", "--db", "DB"),
        ("--add-key=N", "--db=DB"),
        ("--db=DB", "--log-level", "debug", "--add-key=N"),
        ("--db", "DB", "add-key", "N"),
        ("add-key", "N", "--db", "DB"),
        ("add-key", "--db", "DB", "N"),
    ],
)
def test_both_spellings_take_settings_on_either_side(
    call: Run, tmp_path: Path, arguments: Sequence[str]
) -> None:
    chosen = tmp_path / "chosen.db"
    given = [argument.replace("DB", str(chosen)) for argument in arguments]

    assert KEY.fullmatch(call(*given).out)
    listed = call("--list-keys", "--db", chosen).out
    assert listed.splitlines()[1].endswith("  N")


def test_behind_the_command_beats_before_it_and_both_beat_the_environment(
    call: Run, db: Path, tmp_path: Path
) -> None:
    before, behind = tmp_path / "before.db", tmp_path / "behind.db"
    call("--db", before, "add-key", "N", "--db", behind)
    assert [path.exists() for path in (behind, before, db)] == [True, False, False]

    call("--db", before, "add-key", "N")
    assert [path.exists() for path in (before, db)] == [True, False]


def test_every_flag_of_the_proposal_is_its_command(run: Run, gateway: Gateway) -> None:
    gateway.subscribe(gateway.key()[0], "http://a/")
    gateway.ingest(message(1), message(2))
    with gateway.queue.turn() as turn:
        for job in (1, 2):
            turn.dead(job, NOW, "timeout")

    assert len(run("--list-failed-deliveries").out.splitlines()) == 3
    assert '"failed_deliveries"' in run("--list-failed-deliveries", "--json").out
    assert '"failed_deliveries"' in run("--json", "--list-failed-deliveries").out
    assert run("--retry-delivery", "1").status == 0
    assert run("--delete-delivery", "2").status == 0
    assert gateway.queue.counts().pending == 1
    assert run("--delete-delivery", "2").status == 1
    assert run("--delete-key", "app").status == 0
    assert gateway.keys.all() == []


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("--no-such-flag",),
        ("--add-key",),
        ("--add-key", "a", "b"),
        ("--add-key", "a", "--list-keys"),
        ("--add-key", "a", "list-keys"),
        ("--list-keys=x",),
        ("--db",),
        ("add-key",),
        ("list-keys", "extra"),
        ("list-keys", "--jso"),
        ("--bot-token", "123456:hush", "list-keys"),
        ("--bot-token=123456:hush", "list-keys"),
    ],
)
def test_wrong_usage_ends_with_2_changes_nothing_and_repeats_no_token(
    call: Run, db: Path, arguments: Sequence[str]
) -> None:
    ended = call(*arguments)

    assert ended.status == 2
    assert ended.err
    assert "hush" not in ended.err
    assert not db.exists()
