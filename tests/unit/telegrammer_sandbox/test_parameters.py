"""How a request's parameters are read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer_sandbox.parameters import Unreadable, boolean, integer, members, read

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("text", "bits", "value"),
    [
        ("12", 64, 12),
        ("-12", 64, -12),
        ("123abc", 64, 123),
        ("1e3", 64, 1),
        ("1.9", 64, 1),
        ("", 64, 0),
        ("abc", 64, 0),
        ("+5", 64, 0),
        ("\u0661", 64, 0),
        ("4294967297", 32, 1),
        ("2147483648", 32, -(2**31)),
    ],
)
def test_integers_are_read_as_cpp_reads_them(text: str, bits: int, value: int | None) -> None:
    found = integer(text, bits)

    assert -(2 ** (bits - 1)) <= found < 2 ** (bits - 1)
    assert value is None or found == value


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), (" YES ", True), ("1", True), ("0", False), ("", False)]
)
def test_booleans(text: str, value: bool) -> None:
    assert boolean(text) is value


def test_the_query_beats_the_body_and_the_first_duplicate_counts() -> None:
    assert read("a=1&a=2", FORM, b"a=3&b=4&b=5") == {"a": "1", "b": "4"}
    assert read("a=1", JSON, b'{"a":"2","b":"3","b":"4"}') == {"a": "1", "b": "3"}


def test_json_values_keep_their_own_text() -> None:
    body = b' { "s" : "\\u00e9" , "n":1e3, "big":12345678901234567890, "l" : [1, "x"] ,"z":null} '

    assert read("", JSON + "; charset=utf-8", body) == {
        "s": "\u00e9",
        "n": "1e3",
        "big": "12345678901234567890",
        "l": '[1, "x"]',
        "z": "null",
    }


def test_multipart_fields_are_read_and_files_left_out() -> None:
    body = (
        '--X\r\nContent-Disposition: form-data; name="text"\r\n\r\nh\u00e9\nllo\r\n'
        '--X\r\nContent-Disposition: form-data; name="f"; filename="f.bin"\r\n\r\nxx\r\n--X--\r\n'
    ).encode()

    assert read("", 'multipart/form-data; boundary="X"', body) == {"text": "h\u00e9\nllo"}


def test_a_body_of_another_kind_is_not_looked_at() -> None:
    assert read("a=1", "text/plain", b"\xff") == {"a": "1"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b"["),
        (JSON, b"[]"),
        (JSON, b"1"),
        (JSON, b"{"),
        (JSON, b'{"a"'),
        (JSON, b'{"a":'),
        (JSON, b'{"a":1'),
        (JSON, b'{"a":1,'),
        (JSON, b'{"a":1}x'),
        (JSON, b"{1:2}"),
        (JSON, b'{"a" 1}'),
        (JSON, b'{"a":1 "b":2}'),
        (JSON, b"\xff"),
        (JSON, b'{"a":' + b"[" * 100_000),
        (FORM, b"\xff"),
        (FORM, b"a=1&" * 1001),
    ],
)
def test_what_cannot_be_parsed_is_unreadable(kind: str, body: bytes) -> None:
    with pytest.raises(Unreadable):
        read("", kind, body)


@given(st.binary(max_size=60), st.sampled_from([JSON, FORM, "multipart/form-data; boundary=X", ""]))
def test_garbage_is_read_or_unreadable(body: bytes, kind: str) -> None:
    try:
        found = read("", kind, body)
    except Unreadable:
        return

    assert all(isinstance(value, str) for value in found.values())


_VALUES = st.none() | st.text(max_size=8) | st.floats(allow_nan=False)


@given(st.dictionaries(st.text(max_size=4), _VALUES | st.lists(_VALUES, max_size=3), max_size=5))
def test_every_object_is_taken_apart_into_its_members(content: dict[str, object]) -> None:
    text = json.dumps(content, indent=1)

    assert {name: json.loads(value) for name, value in members(text)} == content
