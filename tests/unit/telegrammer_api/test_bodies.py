"""Request bodies: what is accepted, what is refused, and which field is to blame."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer_api.bodies import SendBody, SubscribeBody
from telegrammer_api.errors import ApiError, Code


def refusal(parse: type[SendBody | SubscribeBody], body: bytes) -> dict[str, str]:
    """Return the error's members: ``code``, ``message`` and perhaps ``field``."""
    with pytest.raises(ApiError) as caught:
        parse.parse(body)
    assert caught.value.code is Code.INVALID_REQUEST
    error: dict[str, str] = json.loads(caught.value.body())["error"]
    return error


def send(**members: object) -> bytes:
    return json.dumps(members).encode()


@pytest.mark.parametrize("chat_id", [1, -1, 2**63 - 1, -(2**63), -1001234567890])
def test_chat_ids_are_signed_64_bit(chat_id: int) -> None:
    assert SendBody.parse(send(chat_id=chat_id, text="x")).chat == chat_id
    assert SubscribeBody.parse(send(chat_id=chat_id, callback_url="http://h/")).chat_id == chat_id


@pytest.mark.parametrize(
    "literal",
    [
        "0",
        "-0",
        "1.0",
        "1e3",
        "1E3",
        "0.5",
        "true",
        "false",
        "null",
        '"1"',
        "[1]",
        '{"id":1}',
        "9223372036854775808",
        "-9223372036854775809",
        "1e400",
        "9" * 400,
    ],
)
def test_nothing_else_is_a_chat_id(literal: str) -> None:
    """No float, boolean, string, zero, or number that would wrap."""
    for parse, other in (
        (SendBody, '"text":"x"'),
        (SubscribeBody, '"callback_url":"http://h/"'),
    ):
        body = f'{{"chat_id":{literal},{other}}}'.encode()

        assert refusal(parse, body)["field"] == "chat_id"


@pytest.mark.parametrize(
    ("given", "known_as"),
    [
        ("some_user", "some_user"),
        ("@some_user", "some_user"),
        ("@Some_USER9", "some_user9"),
        ("a", "a"),
        ("a" * 64, "a" * 64),
        ("@" + "a" * 64, "a" * 64),
    ],
)
def test_usernames(given: str, known_as: str) -> None:
    """An ``@`` may lead; ASCII case does not count."""
    assert SendBody.parse(send(username=given, text="x")).chat == known_as


@pytest.mark.parametrize(
    "given",
    [
        "",
        "@",
        "@@a",
        "a@",
        "a" * 65,
        "a b",
        "a-b",
        "ä",
        "\N{LATIN SMALL LETTER LONG S}",
        "\N{KELVIN SIGN}",
        "a\n",
        1,
        None,
        [],
    ],
)
def test_nothing_else_is_a_username(given: object) -> None:
    assert refusal(SendBody, send(username=given, text="x"))["field"] == "username"


@pytest.mark.parametrize("text", ["x", "x" * 4096, "\N{GRINNING FACE}" * 4096, " ", "\x00", "é\n"])
def test_texts_are_counted_in_code_points(text: str) -> None:
    assert SendBody.parse(send(chat_id=1, text=text)).text == text


@pytest.mark.parametrize("text", ["", "x" * 4097, 1, None, True, ["x"], {"a": 1}])
def test_nothing_else_is_a_text(text: object) -> None:
    assert refusal(SendBody, send(chat_id=1, text=text))["field"] == "text"


@pytest.mark.parametrize("text", ["\ud800", "ab\udc00", "a\ud83d", "\ude00\ud83d"])
def test_half_a_surrogate_pair_is_refused_in_every_string(text: str) -> None:
    for name in ("text", "username"):
        body = send(**{"chat_id": 1, "text": "x", name: text})
        if name == "username":
            body = send(username=text, text="x")

        assert refusal(SendBody, body)["field"] == name
    assert refusal(SubscribeBody, send(chat_id=1, callback_url=text))["field"] == "callback_url"


def test_an_escaped_pair_is_one_code_point() -> None:
    body = b'{"chat_id":1,"text":"\\ud83d\\ude00"}'

    assert SendBody.parse(body).text == "\N{GRINNING FACE}"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (send(text="x"), "chat_id"),
        (send(chat_id=1, username="a", text="x"), "chat_id"),
        (send(chat_id=None, username="a", text="x"), "chat_id"),
        (send(chat_id=1), "text"),
        (send(username="a"), "text"),
        (send(), "chat_id"),
        (send(chat_id=1, text="x", parse_mode="HTML"), "parse_mode"),
        (send(chat_id=1, text="x", Text="x"), "Text"),
        (b'{"chat_id":1,"chat_id":1,"text":"x"}', "chat_id"),
        (b'{"chat_id":1,"text":"x","\\u0074ext":"y"}', "text"),
        (b'{"chat_id":1,"text":{"a":1,"a":2}}', "a"),
        (b'{"chat_id":1,"text":"x","":1}', ""),
    ],
)
def test_exactly_the_known_fields_once_each(body: bytes, field: str) -> None:
    assert refusal(SendBody, body)["field"] == field


@pytest.mark.parametrize("missing", ["chat_id", "callback_url"])
def test_a_subscription_needs_both_fields(missing: str) -> None:
    members = {"chat_id": 1, "callback_url": "http://h/"}
    del members[missing]

    assert refusal(SubscribeBody, send(**members))["field"] == missing


@pytest.mark.parametrize("url", ["", "h", "http://u@h/", "http://h/#a", 1, None, ["http://h/"]])
def test_a_wrong_callback_url_is_named(url: object) -> None:
    error = refusal(SubscribeBody, send(chat_id=1, callback_url=url))

    assert error["field"] == "callback_url"
    assert "must" in error["message"]


def test_the_callback_url_becomes_canonical() -> None:
    body = send(chat_id=1, callback_url="HTTP://H:80?a=%2f")

    assert str(SubscribeBody.parse(body).callback_url) == "http://h/?a=%2f"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"true",
        b"1",
        b'"x"',
        b"[]",
        b'[{"chat_id":1,"text":"x"}]',
        b"{",
        b'{"chat_id":1,"text":"x"',
        b'{"chat_id":1,"text":"x",}',
        b'{"chat_id":1,"text":"x"} {}',
        b'{"chat_id":1,"text":"x"}x',
        b'{"chat_id":1,"text":"\n"}',
        b"{'chat_id':1,'text':'x'}",
        b'{chat_id:1,text:"x"}',
        b'{"chat_id":01,"text":"x"}',
        b'{"chat_id":+1,"text":"x"}',
        b'{"chat_id":1,/**/"text":"x"}',
        b'{"chat_id":NaN,"text":"x"}',
        b'{"chat_id":Infinity,"text":"x"}',
        b'{"chat_id":-Infinity,"text":"x"}',
        b'{"chat_id":' + b"9" * 5000 + b',"text":"x"}',
        b"[" * 60000,
        b'{"text":' * 8000,
        b'{"chat_id":1,"text":"\xff"}',
        b'{"chat_id":1,"text":"\xed\xa0\x80"}',
        b'{"chat_id":1,"text":"\xc0\xaf"}',
        b'\xef\xbb\xbf{"chat_id":1,"text":"x"}',
        '{"chat_id":1,"text":"x"}'.encode("utf-16"),
        '{"chat_id":1,"text":"x"}'.encode("utf-16-le"),
        '{"chat_id":1,"text":"x"}'.encode("utf-32"),
        b"chat_id=1&text=x",
    ],
    ids=lambda body: repr(body[:30]),
)
def test_the_body_is_one_json_object_in_utf8(body: bytes) -> None:
    """Too deep, too long a number, NaN, a byte order mark: refused, and nothing worse."""
    assert "field" not in refusal(SendBody, body)


@pytest.mark.parametrize("name", ["\ud800", "a\r\nb", "x" * 9999, "\x1b[31m", "é"])
def test_a_strange_field_is_named_in_bounded_printable_ascii(name: str) -> None:
    error = refusal(SendBody, send(**{name: 1}))

    assert len(error["field"]) <= 64
    assert error["field"].isascii()
    assert error["field"].isprintable()
    assert len(error["message"]) < 200


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
names = st.sampled_from(["chat_id", "username", "text", "callback_url"]) | st.text()
objects = st.dictionaries(names, values).map(lambda members: json.dumps(members).encode())


def answer_to(parse: type[SendBody | SubscribeBody], body: bytes) -> bytes:
    try:
        parse.parse(body)
    except ApiError as error:
        return error.body()
    return b"{}"


@given(st.binary() | objects)
def test_whatever_comes_is_parsed_or_refused(body: bytes) -> None:
    """And every refusal is JSON that can be sent."""
    for parse in (SendBody, SubscribeBody):
        error = json.loads(answer_to(parse, body)).get("error")

        assert error is None or error["code"] == "INVALID_REQUEST"
