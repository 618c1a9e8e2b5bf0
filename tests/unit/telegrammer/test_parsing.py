"""What is read out of the Bot API's answers."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegrammer.model import MalformedUpdate, Message, Update
from telegrammer.telegram import parsing
from telegrammer.telegram.parsing import one_line, parse_envelope, parse_updates

SAMPLES = Path(__file__).parents[2] / "samples"
UPDATES = sorted((SAMPLES / "updates").glob("*.json"))

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=10
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)


def one(update: str) -> Update | MalformedUpdate:
    [found] = parse_updates(f"[{update}]")
    return found


def message_of(message: str) -> Message:
    found = one(f'{{"update_id":1,"message":{message}}}')
    assert isinstance(found, Update)
    assert found.message is not None
    return found.message


def reason_of(update: str) -> str:
    found = one(update)
    assert isinstance(found, MalformedUpdate)
    assert found.text == update
    return found.reason


# Samples


@pytest.mark.parametrize("sample", UPDATES, ids=lambda path: path.stem)
def test_every_sample_is_read_and_its_messages_kept_to_the_byte(sample: Path) -> None:
    body = sample.read_bytes()
    envelope = parse_envelope(body)
    assert envelope is not None
    expected = json.loads(body)["result"]

    found = parse_updates(envelope.result)

    assert [update.update_id for update in found] == [each["update_id"] for each in expected]
    for update, each in zip(found, expected, strict=True):
        assert isinstance(update, Update)
        message = each.get("message")
        if message is None:
            assert update.message is None
        else:
            assert update.message is not None
            assert update.message.chat_id == message["chat"]["id"]
            assert update.message.payload.encode("utf-8") in body
            assert json.loads(update.message.payload) == message


def test_lone_surrogates_are_delivered_as_they_came() -> None:
    body = (SAMPLES / "updates/u30_lone_surrogates.json").read_bytes()
    envelope = parse_envelope(body)
    assert envelope is not None
    [update] = parse_updates(envelope.result)
    assert isinstance(update, Update)
    assert update.message is not None
    assert r"Ann\ud" in update.message.payload


def test_of_duplicate_keys_the_last_counts() -> None:
    body = (SAMPLES / "updates/u32_duplicate_keys.json").read_bytes()
    envelope = parse_envelope(body)
    assert envelope is not None
    [update] = parse_updates(envelope.result)
    assert isinstance(update, Update)
    assert update.update_id == json.loads(body)["result"][0]["update_id"]
    assert one(
        '{"message":3,"update_id":1,"update_id":2,"message":{"message_id":1,"date":1,'
        '"chat":{"id":1,"id":2,"type":"x","type":"group"}}}'
    ) == Update(
        2, Message(2, '{"message_id":1,"date":1,"chat":{"id":1,"id":2,"type":"x","type":"group"}}')
    )


# Shapes


def test_the_payload_keeps_its_spelling() -> None:
    """Numbers, order, escapes and white space are Telegram's, not ours."""
    text = '{ "z":1.0e+2,"date" : -0,\n"message_id":12 , "a":"\\u00e9é\\/",'
    text += '"chat":{"type":"", "id":-7}}'

    assert message_of(text).payload == text


def test_an_update_without_a_message_is_passed_over() -> None:
    assert one('{"update_id":7,"edited_message":{"chat":null}}') == Update(7)


@pytest.mark.parametrize("update_id", ["7e8", "1.0", "true", "null", '"7"', "[7]", "1" * 5000])
def test_an_update_id_is_an_integer_literal(update_id: str) -> None:
    assert reason_of(f'{{"update_id":{update_id}}}') == "update_id is not an integer"


@pytest.mark.parametrize("update_id", ["-1", str(2**53)])
def test_an_update_id_is_in_range(update_id: str) -> None:
    assert reason_of(f'{{"update_id":{update_id}}}') == "update_id is out of range"


@pytest.mark.parametrize("update_id", ["0", "-0", str(2**53 - 1)])
def test_an_update_id_in_range_is_taken(update_id: str) -> None:
    assert one(f'{{"update_id":{update_id}}}') == Update(int(update_id))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("null", "message is not an object"),
        ("[]", "message is not an object"),
        ("{}", "message.message_id is not an integer"),
        ('{"message_id":true}', "message.message_id is not an integer"),
        ('{"message_id":1}', "message.date is not an integer"),
        ('{"message_id":1,"date":"1"}', "message.date is not an integer"),
        ('{"message_id":1,"date":1}', "message.chat is not an object"),
        ('{"message_id":1,"date":1,"chat":1}', "message.chat is not an object"),
        ('{"message_id":1,"date":1,"chat":{}}', "message.chat.id is not an integer"),
        ('{"message_id":1,"date":1,"chat":{"id":1.0}}', "message.chat.id is not an integer"),
        (
            '{"message_id":1,"date":1,"chat":{"id":9223372036854775808}}',
            "message.chat.id is out of range",
        ),
        ('{"message_id":1,"date":1,"chat":{"id":1}}', "message.chat.type is not a string"),
        ('{"message_id":1,"date":1,"chat":{"id":1,"type":7}}', "message.chat.type is not a string"),
    ],
)
def test_a_malformed_message_is_named_with_its_update(message: str, reason: str) -> None:
    update = f'{{"update_id":41,"message":{message}}}'

    assert one(update) == MalformedUpdate(41, reason, update)


@pytest.mark.parametrize(
    ("update", "update_id", "reason"),
    [
        ("5", None, "not an object"),
        ("[]", None, "not an object"),
        ('{"update_id" 5}', None, "not valid JSON"),
        ('{"update_id":5,"x":NaN}', 5, "not valid JSON"),
        ('{"x":{"y":01},"update_id":5}', 5, "not valid JSON"),
        ('{"x":"\t","update_id":5}', 5, "not valid JSON"),
        ('{"update_id":5,"x":' + "[" * 9999 + "]" * 9999 + "}", 5, "nested too deeply"),
    ],
)
def test_what_is_not_json_stays_within_its_update(
    update: str, update_id: int | None, reason: str
) -> None:
    """The updates beside it are read all the same."""
    assert parse_updates(f'[{{"update_id":4}},{update},{{"update_id":6}}]') == [
        Update(4),
        MalformedUpdate(update_id, reason, update),
        Update(6),
    ]


@pytest.mark.parametrize("result", ["", "{}", "null", "[", "[1,]", '"[]"'])
def test_a_result_that_is_no_array_is_refused(result: str) -> None:
    with pytest.raises(ValueError, match="not"):
        parse_updates(result)


# Usernames and migrations


@pytest.mark.parametrize(
    ("username", "kept"),
    [
        ('"Ann_Example9"', "ann_example9"),
        ('"' + "x" * 64 + '"', "x" * 64),
        ('"' + "x" * 65 + '"', None),
        ('""', None),
        ('"@ann"', None),
        ('"ann\\n"', None),
        ('"Änn"', None),
        ('"\\u0661"', None),
        ("7", None),
        ("null", None),
        ("{}", None),
    ],
)
def test_a_private_chats_username_is_kept_in_lower_case(username: str, kept: str | None) -> None:
    chat = f'{{"id":1,"type":"private","username":{username}}}'
    message = message_of(f'{{"message_id":1,"date":1,"chat":{chat}}}')

    assert (message.is_private, message.username) == (True, kept)


@pytest.mark.parametrize("kind", ["group", "supergroup", "channel", "Private", ""])
def test_other_chats_usernames_are_not_kept(kind: str) -> None:
    chat = f'{{"id":1,"type":"{kind}","username":"ann"}}'
    message = message_of(f'{{"message_id":1,"date":1,"chat":{chat}}}')

    assert (message.is_private, message.username) == (False, None)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("-1002", -1002), ("null", None), ("1.0", None), ("true", None), (str(2**63), None)],
)
def test_a_migration_is_read_and_never_makes_a_message_malformed(
    given: str, kept: int | None
) -> None:
    chat = '"message_id":1,"date":1,"chat":{"id":1,"type":"group"}'

    assert message_of(f'{{{chat},"migrate_to_chat_id":{given}}}').migrated_to == kept
    assert message_of(f'{{{chat},"migrate_from_chat_id":{given}}}').migrated_from == kept


# Any value at all


@given(VALUES)
def test_any_value_as_an_update_is_read_without_an_exception(value: object) -> None:
    text = json.dumps(value)
    found = one(text)

    if isinstance(found, MalformedUpdate):
        assert found.text == text
    else:
        assert isinstance(value, dict)
        assert found.update_id == value["update_id"]


@given(
    st.fixed_dictionaries(
        {"update_id": st.integers(0, 2**53 - 1) | VALUES},
        optional={
            "message": st.fixed_dictionaries(
                {
                    "message_id": INTEGERS | VALUES,
                    "date": INTEGERS | VALUES,
                    "chat": st.fixed_dictionaries(
                        {"id": INTEGERS, "type": TEXTS}, optional={"username": VALUES}
                    )
                    | VALUES,
                },
                optional={"migrate_to_chat_id": VALUES, "text": VALUES},
            )
            | VALUES
        },
    ),
    st.booleans(),
)
def test_any_update_is_read_and_its_message_is_kept_to_the_byte(
    update: dict[str, object], ascii_only: bool
) -> None:
    payload = json.dumps(update.get("message"), ensure_ascii=ascii_only, indent=1)
    members = [f'"update_id":{json.dumps(update["update_id"])}', '"x":[{}]']
    if "message" in update:
        members.append(f'"message": {payload} ')

    found = one("{" + ",".join(members) + "}")

    if isinstance(found, Update) and found.message:
        assert found.message.payload == payload
        assert json.loads(found.message.payload) == update["message"]


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_any_bytes_as_a_body_are_read_without_an_exception(body: bytes) -> None:
    envelope = parse_envelope(body)
    assert envelope is None or envelope.ok in (True, False)


# Envelopes


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html></html>",
        b"[]",
        b"null",
        b'{"result":[]}',
        b'{"ok":1,"result":[]}',
        b'{"ok":"true","result":[]}',
        b'{"ok":true,"result":[]',
        b'{"ok":true,"result":[]}{}',
        b'{"ok":true,"x":NaN}',
        b'\xef\xbb\xbf{"ok":true}',
        b'{"ok":true,"x":"\xff"}',
        b'{"ok":true,"x":"\xed\xa0\x80"}',
        '{"ok":true}'.encode("utf-16"),
        b'{"ok":true,"x":' + b"[" * 9999 + b"]" * 9999 + b"}",
    ],
)
def test_a_body_without_an_envelope_gives_none(body: bytes) -> None:
    assert parse_envelope(body) is None


def test_the_result_is_the_envelopes_own_text() -> None:
    envelope = parse_envelope(b' {"result": [ 1.0 ] ,"ok": true} ')
    assert envelope is not None
    assert (envelope.ok, envelope.result) == (True, "[ 1.0 ]")


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("Bad Request: chat not found", "Bad Request: chat not found"),
        ("a\0b\r\nc\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}d\ud800", "a b c [31m d"),
        ("x" * 600, "x" * 500),
    ],
)
def test_a_description_is_made_one_line(description: str, line: str) -> None:
    assert one_line(description) == line


@pytest.mark.parametrize("description", ["7", "null", "[]"])
def test_a_description_that_is_no_text_counts_as_absent(description: str) -> None:
    envelope = parse_envelope(f'{{"ok":false,"description":{description}}}'.encode())
    assert envelope is not None
    assert envelope.description == ""


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        (1, 1),
        (604_800, 604_800),
        *((insane, None) for insane in (0, -5, 604_801, True, "5", 5.0, None)),
    ],
)
def test_only_sane_times_to_wait_are_taken(seconds: object, taken: int | None) -> None:
    assert parsing.sane_retry_after(seconds) == taken


@pytest.mark.parametrize("parameters", ["null", "7", "[]", '{"retry_after":"5"}', "{}"])
def test_parameters_of_a_wrong_type_count_as_absent(parameters: str) -> None:
    envelope = parse_envelope(f'{{"ok":false,"parameters":{parameters}}}'.encode())
    assert envelope is not None
    assert (envelope.retry_after, envelope.migrate_to_chat_id) == (None, None)
