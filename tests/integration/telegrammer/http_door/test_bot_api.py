"""The Bot API through the real door."""

import threading
from pathlib import Path

import pytest

from support.doors import silent, takes
from support.peers import Connection, Peer, response
from telegrammer.errors import Cut, TimedOut
from telegrammer.http import Door
from telegrammer.settings import Secret
from telegrammer.telegram.client import BotApi

SAMPLES = Path(__file__).parents[3] / "samples"
TOKEN = "123456789:AAF-secret_token_of_a_bot_0123456789"


def test_a_bot_polls_and_sends_over_one_connection(door: Door) -> None:
    updates = (SAMPLES / "updates/u30_lone_surrogates.json").read_bytes()
    sent = (SAMPLES / "ok/sendMessage_private.json").read_bytes()
    answers = {"getUpdates": updates, "sendMessage": sent}
    seen: list[str] = []

    def serve(connection: Connection) -> None:
        while request := connection.read_request().decode():
            target, body = request.split(" ")[1], request.partition("\r\n\r\n")[2]
            seen.append(f"{target} {body}")
            connection.send(response(answers[target.rpartition("/")[2]]))

    with Peer(serve) as peer:
        api = BotApi(door, peer.url(""), Secret(TOKEN))
        [update] = api.get_updates(700000038, 100, 0)
        assert update.update_id == 700000038
        assert api.send_message(5000000001, "Hällo", 5, 5) == sent
        assert peer.accepted == 1

    assert seen == [
        f"/bot{TOKEN}/getUpdates "
        '{"limit": 100, "timeout": 0, "allowed_updates": ["message"], "offset": 700000038}',
        f'/bot{TOKEN}/sendMessage {{"chat_id": 5000000001, "text": "H\\u00e4llo"}}',
    ]


def test_an_idle_long_poll_is_cut_at_once(door: Door) -> None:
    with Peer(silent) as peer:
        api = BotApi(door, peer.url(""), Secret(TOKEN))
        timer = threading.Timer(0.2, door.cut)
        timer.start()
        with takes(0.15, 2), pytest.raises(Cut):
            api.get_updates(None, 100, 30)
        timer.join()


def test_a_send_without_an_answer_ends_in_time(door: Door) -> None:
    with Peer(silent) as peer, takes(0.3, 2), pytest.raises(TimedOut):
        BotApi(door, peer.url(""), Secret(TOKEN)).send_message(1, "x", 5, 0.3)
