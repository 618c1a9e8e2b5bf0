"""What the server remembers between two polls."""

import pytest

from telegrammer_sandbox.polling import DEFAULT_KINDS, KINDS, PollRules, allowed_kinds


@pytest.mark.parametrize(("asked", "limit"), [(-1, 1), (0, 1), (1, 1), (100, 100), (1000, 100)])
def test_the_limit_is_clamped(asked: int, limit: int) -> None:
    assert PollRules().begin(0, asked, 0, now=0).limit == limit


@pytest.mark.parametrize(("asked", "timeout"), [(-1, 0), (0, 0), (50, 50), (51, 50), (3600, 50)])
def test_the_timeout_is_clamped(asked: int, timeout: int) -> None:
    assert PollRules().begin(0, 100, asked, now=0).timeout == timeout


def test_the_same_offset_again_within_half_a_second_gets_one_update() -> None:
    rules = PollRules()
    rules.begin(7, 100, 30, now=10)

    assert rules.begin(7, 100, 30, now=10.4).limit == 1
    assert rules.begin(7, 100, 30, now=10.9).limit == 100
    assert rules.begin(8, 100, 30, now=11.0).limit == 100


def test_the_same_offset_again_within_three_seconds_waits_at_least_that_long() -> None:
    rules = PollRules()
    rules.begin(7, 100, 0, now=10)

    assert rules.begin(7, 100, 0, now=12.9).timeout == 3
    assert rules.begin(7, 100, 30, now=13).timeout == 30
    assert rules.begin(7, 100, 0, now=16).timeout == 0
    assert rules.begin(8, 100, 0, now=16.1).timeout == 0


def test_one_conflict_in_three_seconds_is_answered_at_once() -> None:
    rules = PollRules()

    assert [rules.conflict_delay(now) for now in (5, 6, 7.9, 8, 9)] == [0, 3, 3, 0, 3]


@pytest.mark.parametrize(
    "text", ["", "{}", '"message"', "[1]", '["message",null]', "[", "[" * 100_000, "null"]
)
def test_allowed_updates_that_is_no_list_of_strings_changes_nothing(text: str) -> None:
    current = frozenset({"callback_query"})

    assert allowed_kinds(text, current) == current


@pytest.mark.parametrize("text", ["[]", '["no_such_kind"]'])
def test_an_empty_list_or_unknown_names_restore_the_default(text: str) -> None:
    assert allowed_kinds(text, frozenset({"callback_query"})) == DEFAULT_KINDS


def test_three_kinds_come_only_when_asked_for() -> None:
    left_out = KINDS - DEFAULT_KINDS

    assert left_out == {"chat_member", "message_reaction", "message_reaction_count"}


def test_names_are_taken_in_any_case_and_unknown_ones_left_out() -> None:
    wanted = allowed_kinds('["Message","no_such_kind","chat_member"]', DEFAULT_KINDS)

    assert wanted == {"message", "chat_member"}
