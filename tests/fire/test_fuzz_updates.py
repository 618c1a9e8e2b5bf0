"""Whatever the Bot API answers to getUpdates: nothing of it ends the poller or is made up."""

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fire.bytes_of import mutated
from fire.effort import tries
from support.builders import Gateway
from support.sandbox import TOKEN, Sandbox
from telegrammer.clock import SystemClock
from telegrammer.heartbeat import Heartbeat
from telegrammer.http import Door
from telegrammer.model import MalformedUpdate
from telegrammer.settings import Secret
from telegrammer.store.components import Components
from telegrammer.telegram.client import BotApi
from telegrammer.telegram.parsing import parse_envelope, parse_updates
from telegrammer_poller.loop import Poller, Rules

_SAMPLES = Path(__file__).parents[1] / "samples" / "updates"
ANSWERS = (
    *(path.read_bytes() for path in sorted(_SAMPLES.glob("*.json"))),
    b'{"ok":true,"result":[{"update_id":1,"message":{"message_id":1,"date":1,'
    b'"chat":{"id":1001,"type":"private","username":"somebody"},"text":"x"}}]}',
    b'{"ok":false,"error_code":429,"description":"no","parameters":{"retry_after":3}}',
)


@tries(500)
@given(body=mutated(ANSWERS, most=5) | st.binary(max_size=40))
def test_an_answer_is_parsed_or_refused_and_payloads_are_its_own_text(body: bytes) -> None:
    envelope = parse_envelope(body)
    if envelope is None:
        return
    try:
        updates = parse_updates(envelope.result)
    except ValueError:
        return
    text = body.decode()
    for update in updates:
        if isinstance(update, MalformedUpdate):
            assert update.text in text
            assert update.reason.isprintable()
        elif update.message is not None:
            assert update.message.payload in text
            assert -(2**63) <= update.message.chat_id < 2**63


class Bench:
    """A real poller, its door and database, and a Telegram that answers what it is told."""

    def __init__(self, gateway: Gateway, sandbox: Sandbox, door: Door) -> None:
        self.gateway = gateway
        self.sandbox = sandbox
        owner, _ = gateway.key("fuzz")
        for chat in (1001, -1001234567890, 7000000001):
            gateway.subscribe(owner, "http://127.0.0.1:9/", chat)
        clock = SystemClock()
        self.poller = Poller(
            BotApi(door, sandbox.url, Secret(TOKEN)),
            gateway.inbox,
            Heartbeat(Components(gateway.database), "poller", clock),
            Rules(1, 100_000),
            database=gateway.path,
            clock=clock,
            spread=random.Random(1).random,
        )

    def turn(self, body: bytes) -> float | None:
        self.sandbox.fault("getUpdates", body=body, status=200)
        delay = self.poller.turn()
        self.sandbox.clear_faults()
        return delay


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    gateway = Gateway(tmp_path_factory.mktemp("poller") / "gateway.db")
    with Sandbox.start() as sandbox, closing(Door()) as door, closing(gateway):
        with gateway.database.write() as tx:
            tx.execute("DELETE FROM poll_state")
        bench = Bench(gateway, sandbox, door)
        assert bench.poller.turn() == 0.0
        yield bench


@tries(150)
@given(body=mutated(ANSWERS, most=3))
def test_a_turn_of_the_poller_moves_the_cursor_forward_or_not_at_all(
    bench: Bench, body: bytes
) -> None:
    before = bench.gateway.inbox.cursor()
    jobs = len(bench.gateway.jobs())

    delay = bench.turn(body)

    after = bench.gateway.inbox.cursor()
    assert delay is None or 0 <= delay <= 7 * 86400
    assert after >= before
    if after == before:
        assert len(bench.gateway.jobs()) == jobs
    with bench.gateway.database.write() as tx:
        tx.execute("DELETE FROM deliveries")
        tx.execute("UPDATE poll_state SET next_offset = 0")
