"""The ledger itself: it is silent about books that are right, and sees each kind of wrong one."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fire.book import Book, Receipt, Said, Send, Subscription
from fire.diary import Diary
from fire.ledger import Ledger
from fire.receivers import GOOD, TO_RETRY
from fire.stack import Line, Stack
from fire.world import BOT_ID, Disk, Telegram, World
from support.builders import Gateway
from support.receiver import Receiver
from support.sandbox import TOKEN, USERNAME
from telegrammer_sandbox.server import Server
from telegrammer_sandbox.state import Bot

CHAT = 1001


class Books:
    """One subscription, three messages that came, were logged and acknowledged."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.began = time.time()
        self.subscription = world.book.new_subscription("one", CHAT)
        self.subscription.id = 7
        self.subscription.granted_at = self.began
        self.receipts = world.book.receipts[0]
        self.log = world.stack.services["dispatcher"].lines
        for number in range(3):
            text = f"text {number}"
            world.say(CHAT, text)
            said = world.book.said[-1]
            self.receipts.append(self.receipt(said))
            self.log.append(self.line("delivered", said))
        offset = world.book.said[-1].update_id + 1
        with world.telegram.state.changed:
            taken = world.telegram.state.queue.take(offset, 1, self.began)
            call = world.telegram.state.ledger.begin("getUpdates", {}, self.began)
            world.telegram.state.ledger.confirmed(call, taken.confirmed, self.began)

    def receipt(self, said: Said) -> Receipt:
        return Receipt(time.time(), f"{BOT_ID}-7-{said.update_id}", said.text, GOOD)

    def line(self, event: str, said: Said) -> Line:
        text = f"event={event} subscription=7 update={said.update_id} reason=x"
        return Line(time.time(), 1, text)

    def violations(self) -> list[str]:
        Ledger(self.world).compare()
        return self.world.diary.violations


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    diary, book = Diary(), Book()
    with Server(Bot(TOKEN, USERNAME)) as server, Receiver() as receiver:
        disk = Disk(tmp_path / "disk")
        gateway = Gateway(disk.folder / "gateway.db")
        stack = Stack(tmp_path, diary, {})
        world = World(
            tmp_path, stack, Telegram(server), receiver, disk, 1, diary, book, {"one": "key-of-one"}
        )
        yield Books(world)
        gateway.close()
        disk.close()


def test_books_that_are_right_are_right(books: Books) -> None:
    assert books.violations() == []


def test_a_message_that_never_came_is_a_loss(books: Books) -> None:
    del books.receipts[1]
    assert any("lost" in text for text in books.violations())


def test_a_message_that_no_receiver_accepted_is_a_loss(books: Books) -> None:
    first = books.receipts[0]
    books.receipts[0] = Receipt(first.at, first.delivery_id, first.text, TO_RETRY[0])
    assert any("lost" in text for text in books.violations())


def test_a_message_to_a_subscription_that_left_is_none(books: Books) -> None:
    books.subscription.leaving_at = time.time()
    del books.receipts[2:], books.log[2:]
    assert books.violations() == []


def test_another_order_is_seen(books: Books) -> None:
    books.receipts.reverse()
    assert any("order" in text for text in books.violations())


def test_a_repetition_after_a_later_message_is_seen(books: Books) -> None:
    books.receipts.append(books.receipts[0])
    assert any("order" in text for text in books.violations())


def test_a_repetition_without_a_reason_is_seen(books: Books) -> None:
    books.receipts.insert(1, books.receipts[0])
    assert any("twice" in text for text in books.violations())


def test_a_repetition_around_a_kill_is_allowed(books: Books) -> None:
    books.world.diary.dispatcher_ends.append(books.receipts[2].at + 0.5)
    again = books.receipt(books.world.book.said[2])
    books.receipts.append(Receipt(again.at + 1, again.delivery_id, again.text, GOOD))
    assert books.violations() == []


def test_a_second_delivery_id_is_seen(books: Books) -> None:
    first = books.receipts[0]
    books.receipts.insert(1, Receipt(first.at, f"{BOT_ID}-7-5", first.text, GOOD))
    assert any("several delivery ids" in text for text in books.violations())


@pytest.mark.parametrize("event", ["delivered", "dead", "dropped"])
def test_a_second_outcome_in_the_log_is_seen(books: Books, event: str) -> None:
    books.log.append(books.line(event, books.world.book.said[0]))
    assert any("logged" in text for text in books.violations())


def test_an_outcome_that_is_not_in_the_log_is_seen(books: Books) -> None:
    del books.log[0]
    assert any("never logged" in text for text in books.violations())


@pytest.mark.parametrize("text", ["event=x token=" + TOKEN, "event=x key=key-of-one", "Traceback"])
def test_a_line_that_must_not_be_is_seen(books: Books, text: str) -> None:
    books.log.append(Line(1.0, 1, text))
    assert books.violations()


def test_a_send_that_succeeded_and_is_not_known_is_seen(books: Books) -> None:
    books.world.book.sends.append(Send("hello", CHAT, 1.0, 2.0, status=200))
    assert any("does not know" in text for text in books.violations())


def test_callbacks_for_nobody_are_seen(books: Books) -> None:
    nobody: Subscription = books.world.book.new_subscription("one", CHAT)
    books.world.book.receipts[nobody.number].append(books.receipts[0])
    assert any("nobody" in text for text in books.violations())
