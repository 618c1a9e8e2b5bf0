"""Everything that is printed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer_cli.output import print_json, print_table, printable, say, utc


def test_times_are_iso_8601_in_utc() -> None:
    assert utc(0) == "1970-01-01T00:00:00Z"
    assert utc(1_790_000_000) == "2026-09-21T14:13:20Z"
    assert utc(None) is None


@pytest.mark.parametrize("seconds", [10**18, -(10**18), 2**63 - 1])
def test_a_time_beyond_all_calendars_is_a_number(seconds: int) -> None:
    assert utc(seconds) == str(seconds)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 汉 'quoted'", "plain ü 汉 'quoted'"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[2J\x7f\x9b", r"\x1b[2J\x7f\x9b"),
        ("\u202eabc\u2028", r"\u202eabc\u2028"),
        ("\udcff", r"\udcff"),
    ],
)
def test_what_could_move_a_cursor_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    assert printable(text).isprintable()


def test_columns_stand_under_each_other_and_numbers_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("ID", "STATE", "NAME"), [(7, "running", "a"), (1234, None, "b\nc")])

    assert capsys.readouterr().out.splitlines() == [
        "  ID  STATE    NAME",
        "   7  running  a",
        r"1234  -        b\nc",
    ]


def test_a_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("ID", "NAME"), [])

    assert capsys.readouterr().out == "ID  NAME\n"


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "ü\u202e"})
    out = capsys.readouterr().out

    assert out.isascii()
    assert json.loads(out) == {"name": "ü\u202e"}


def test_a_line_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb")

    assert capsys.readouterr().out == "a\\nb\n"
