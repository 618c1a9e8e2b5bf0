"""What becomes of a text."""

import pytest

from telegrammer_sandbox.texts import BadText, check_raw, cleaned, command_length


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "message text is empty"),
        ("x" * 32769, "text is too long"),
        ("\u00e9" * 16385, "text is too long"),
        ("\ud83d", "strings must be encoded in UTF-8"),
    ],
)
def test_some_texts_are_refused_before_the_chat_is_looked_up(text: str, complaint: str) -> None:
    with pytest.raises(BadText) as caught:
        check_raw(text)

    assert str(caught.value) == complaint


@pytest.mark.parametrize("text", [" ", "\n\t\r", "\u200b\u200d\ufeff", "\u00a0\u3000", "\x00"])
def test_a_text_of_nothing_visible_is_refused(text: str) -> None:
    check_raw(text)
    with pytest.raises(BadText, match="text must be non-empty"):
        cleaned(text)


def test_4096_code_points_are_the_most() -> None:
    assert cleaned("\U0001f680" * 4096) == "\U0001f680" * 4096
    with pytest.raises(BadText, match="message is too long"):
        cleaned("x" * 4097)
    assert cleaned("x" * 4096 + "   ") == "x" * 4096


def test_a_text_is_cleaned() -> None:
    assert cleaned("  a\tb\r\n ") == "a b"
    assert cleaned("one\r\ntwo\u202e\u2028!") == "one\ntwo!"


@pytest.mark.parametrize(
    ("text", "length"),
    [("/start deep", 6), ("/help@gate_bot", 14), ("/", 0), ("say /start", 0), ("/caf\u00e9", 4)],
)
def test_a_leading_command_is_found(text: str, length: int) -> None:
    assert command_length(text) == length
