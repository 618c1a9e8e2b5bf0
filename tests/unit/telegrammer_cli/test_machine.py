"""Disk and clock, as `telegrammer check` judges them."""

import datetime
from pathlib import Path

import pytest

from telegrammer.model import State
from telegrammer.store.components import Component
from telegrammer_cli.checks.finding import Level
from telegrammer_cli.checks.machine import judge_free_space, look_at_clock

MIB = 1024 * 1024
NOW = 1_790_000_000


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (0, Level.ERROR),
        (64 * MIB - 1, Level.ERROR),
        (64 * MIB, Level.WARNING),
        (1024 * MIB - 1, Level.WARNING),
        (1024 * MIB, Level.OK),
    ],
)
def test_little_room_is_a_warning_and_hardly_any_an_error(free: int, level: Level) -> None:
    found = judge_free_space(free, Path("/state"))

    assert found.level is level
    assert f"{free // MIB} MiB free at /state" in found.text


def api(heartbeat: int) -> dict[str, Component]:
    return {"api": Component("api", 1, State.RUNNING, None, 0, heartbeat)}


@pytest.mark.parametrize(
    ("beat", "level"), [(NOW - 100, Level.OK), (NOW + 15, Level.OK), (NOW + 16, Level.WARNING)]
)
def test_a_beat_from_the_future_says_that_the_clock_was_set_back(beat: int, level: Level) -> None:
    assert look_at_clock(NOW, api(beat)).level is level


def test_a_clock_before_this_program_is_wrong() -> None:
    unset = datetime.datetime(2025, 12, 31, tzinfo=datetime.UTC).timestamp()

    found = look_at_clock(unset, {})
    assert found.level is Level.ERROR
    assert "2025-12-31" in found.text
