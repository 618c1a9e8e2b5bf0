"""The methods over the state, with a clock that the test owns."""

import json
from pathlib import Path

import pytest

from support.fake_clock import FakeClock
from telegrammer_sandbox.bot_api import carry_out
from telegrammer_sandbox.state import FIRST_UPDATE_ID, Bot, State

ANN, TEAM, NEWS = 5000000001, -4000000001, -1001000000003
SAMPLES = Path(__file__).parents[2] / "samples" / "ok"
Json = dict[str, object]


class Bench:
    """A state, its clock, and a bot that calls methods on it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.state = State(Bot("123456:ABC", "gate_example_bot"), self.clock)

    def call(self, method: str, **parameters: str) -> Json:
        call = self.state.ledger.begin(method, parameters, self.clock.now())
        answer = carry_out(self.state, call)
        envelope: Json = json.loads(answer.body)
        assert answer.body.isascii()
        assert envelope["ok"] is (answer.status == 200)
        assert envelope.get("error_code", 200) == answer.status
        return envelope

    def result(self, method: str, **parameters: str) -> object:
        return self.call(method, **parameters)["result"]

    def refusal(self, method: str, **parameters: str) -> object:
        return self.call(method, **parameters)["description"]

    def say(self, chat_id: int, text: str) -> int | None:
        with self.state.changed:
            chat = self.state.world.chat(chat_id)
            return self.state.say(chat, self.state.person(chat, None, {}), text)[1]

    def update_ids(self, **parameters: str) -> list[int]:
        self.clock.pass_time(10)  # never the same offset again within 3 s
        updates = self.result("getUpdates", **parameters)
        assert isinstance(updates, list)
        return [update["update_id"] for update in updates]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_messages_expire_a_day_after_their_date(bench: Bench) -> None:
    bench.say(ANN, "old")
    bench.clock.pass_time(3600)
    bench.say(ANN, "newer")
    bench.clock.pass_time(86400 - 3600 - 10)

    assert bench.update_ids() == [FIRST_UPDATE_ID + 1]


def test_kinds_are_filtered_when_they_arrive_and_the_setting_stays(bench: Bench) -> None:
    bench.say(ANN, "before")
    assert bench.update_ids(allowed_updates='["callback_query"]') == [FIRST_UPDATE_ID]
    assert bench.say(ANN, "unwanted") is None
    assert bench.update_ids() == [FIRST_UPDATE_ID]
    bench.update_ids(allowed_updates='["message"]')

    assert bench.say(ANN, "wanted") == FIRST_UPDATE_ID + 1


def test_raw_updates_are_never_filtered(bench: Bench) -> None:
    bench.update_ids(allowed_updates='["callback_query"]')
    with bench.state.changed:
        bench.state.push_raw(b'{"update_id":700000000,"unheard_of":{}}')

    assert bench.update_ids() == [700000000]


@pytest.mark.parametrize(
    ("chat_id", "text", "description"),
    [
        ("", "x", "Bad Request: chat_id is empty"),
        ("", "", "Bad Request: message text is empty"),
        ("999", "x", "Bad Request: chat not found"),
        ("abc", "x", "Bad Request: chat not found"),
        ("@ann_example", "x", "Bad Request: chat not found"),
        ("999", " ", "Bad Request: chat not found"),
        (str(ANN), " ", "Bad Request: text must be non-empty"),
        (str(ANN), "x" * 4097, "Bad Request: message is too long"),
        (str(ANN), "x" * 32769, "Bad Request: text is too long"),
        (str(ANN), "\ud83d", "Bad Request: strings must be encoded in UTF-8"),
    ],
)
def test_send_message_refuses_as_telegram_does(
    bench: Bench, chat_id: str, text: str, description: str
) -> None:
    assert bench.refusal("sendMessage", chat_id=chat_id, text=text) == description
    assert not bench.state.ledger.sent


@pytest.mark.parametrize("address", [str(ANN), f"{ANN}abc", "@ops_example", "-1001000000003"])
def test_send_message_returns_the_message_and_makes_no_update(bench: Bench, address: str) -> None:
    message = bench.result("sendMessage", chat_id=address, text="  hi ")

    assert isinstance(message, dict)
    assert message["text"] == "hi"
    assert [sent.message for sent in bench.state.ledger.sent] == [message]
    assert bench.update_ids() == []


def test_a_migrated_group_is_refused_with_its_new_id(bench: Bench) -> None:
    with bench.state.changed:
        new = bench.state.migrate(bench.state.world.chat(TEAM))
    envelope = bench.call("sendMessage", chat_id=str(TEAM), text="x")

    assert envelope["description"] == ("Bad Request: group chat was upgraded to a supergroup chat")
    assert envelope["parameters"] == {"migrate_to_chat_id": new.id}
    updates = bench.result("getUpdates")
    assert isinstance(updates, list)
    before, after = (update["message"] for update in updates)
    assert (before["chat"]["id"], before["migrate_to_chat_id"]) == (TEAM, new.id)
    assert (after["chat"]["id"], after["migrate_from_chat_id"]) == (new.id, TEAM)


def test_a_webhook_keeps_get_updates_from_working(bench: Bench) -> None:
    bench.say(ANN, "kept")
    assert bench.call("setWebhook", url="https://example.org/")["description"] == "Webhook was set"

    assert bench.refusal("getUpdates") == (
        "Conflict: can't use getUpdates method while webhook is active;"
        " use deleteWebhook to delete the webhook first"
    )
    info = bench.result("getWebhookInfo")
    assert isinstance(info, dict)
    assert (info["url"], info["pending_update_count"]) == ("https://example.org/", 1)
    assert bench.call("deleteWebhook")["description"] == "Webhook was deleted"
    assert bench.call("deleteWebhook")["description"] == "Webhook is already deleted"
    assert bench.update_ids() == [FIRST_UPDATE_ID]


def test_set_webhook_once_a_second_https_only_and_dropping_when_asked(bench: Bench) -> None:
    bench.say(ANN, "dropped")
    envelope = bench.call("setWebhook", url="http://example.org/")
    assert envelope["description"] == (
        "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"
    )
    envelope = bench.call("setWebhook", url="https://example.org/")
    assert envelope["description"] == "Too Many Requests: retry after 1"
    assert envelope["parameters"] == {"retry_after": 1}
    bench.clock.pass_time(1)
    bench.call("setWebhook", url="https://example.org/", drop_pending_updates="true")
    bench.call("setWebhook", url="")

    assert bench.update_ids() == []
    assert [record.state for record in bench.state.ledger.updates] == ["forgotten"]


@pytest.mark.parametrize(
    ("method", "sample", "parameters"),
    [
        ("getMe", "getMe.json", {}),
        ("getWebhookInfo", "getWebhookInfo_polling.json", {}),
        ("deleteWebhook", "deleteWebhook_already.json", {}),
        ("sendMessage", "sendMessage_private.json", {"chat_id": str(ANN), "text": "hi"}),
        ("sendMessage", "sendMessage_channel.json", {"chat_id": str(NEWS), "text": "hi"}),
    ],
)
def test_answers_have_the_members_of_recorded_ones_in_their_order(
    bench: Bench, method: str, sample: str, parameters: dict[str, str]
) -> None:
    recorded = json.loads((SAMPLES / sample).read_text("ascii"))

    assert shape(bench.call(method, **parameters)) == shape(recorded)


def shape(value: object) -> object:
    """Return the names in a JSON value, in order, without what they hold."""
    if isinstance(value, dict):
        return [(name, shape(member)) for name, member in value.items()]
    return type(value).__name__


def test_methods_are_named_in_any_case_and_others_are_unknown(bench: Bench) -> None:
    assert bench.result("GETME") == bench.result("getMe")
    assert bench.refusal("sendmessages") == "Not Found: method not found"
