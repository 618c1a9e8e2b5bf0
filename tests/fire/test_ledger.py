"""The ledger itself: it is silent about books that are right, and sees each kind of wrong one."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fire.book import Book, Key, Receipt, Revival, Said, Send, Subscription
from fire.diary import Diary
from fire.ledger import Ledger
from fire.receivers import GOOD, TO_REFUSE, TO_RETRY
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
        self.subscription = world.book.new_subscription(CHAT)
        self.subscription.id = 7
        self.subscription.granted_as = CHAT
        self.subscription.granted_at = self.began
        self.store()
        self.receipts = world.book.receipts[0]
        self.log = world.stack.services["dispatcher"].lines
        for number in range(3):
            self.say_and_deliver(f"text {number}")

    def say_and_deliver(self, text: str, chat: int = CHAT) -> None:
        self.world.say(chat, text)
        self.deliver(self.world.book.said[-1])

    def deliver(self, said: Said, number: int = 7) -> None:
        """Let the message come, be logged and acknowledged."""
        self.receipts.append(self.receipt(said, number))
        self.log.append(self.line("delivered", said, number))
        self.acknowledge()

    def acknowledge(self) -> None:
        state = self.world.telegram.state
        with state.changed:
            taken = state.queue.take(state.queue.tail, 1, self.began)
            call = state.ledger.begin("getUpdates", {}, self.began)
            state.ledger.confirmed(call, taken.confirmed, self.began)

    def receipt(self, said: Said, number: int = 7) -> Receipt:
        return Receipt(time.time(), f"{BOT_ID}-{number}-{said.update_id}", said.text, GOOD)

    def line(self, event: str, said: Said, number: int = 7) -> Line:
        text = f"event={event} subscription={number} update={said.update_id} reason=x"
        return Line(time.time(), 1, text)

    def store(self, number: int = 7, chat: int = CHAT) -> None:
        """Let the database have the subscription."""
        with closing(sqlite3.connect(self.world.database)) as database, database:
            database.execute("INSERT OR IGNORE INTO api_keys VALUES (1, 'one', 'digest', 1)")
            row = (number, chat, f"http://localhost/{number}")
            database.execute("INSERT INTO subscriptions VALUES (?, 1, ?, ?, 1)", row)

    def forget(self, number: int = 7) -> None:
        with closing(sqlite3.connect(self.world.database)) as database, database:
            database.execute("DELETE FROM subscriptions WHERE id = ?", (number,))

    def delete(self) -> None:
        """Let the subscription be deleted."""
        self.forget()
        self.subscription.leaving_at = self.subscription.left_at = time.time()

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
        world = World(tmp_path, stack, Telegram(server), receiver, disk, 1, diary, book, {})
        book.keys.append(Key("one", "key-of-one"))
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
    books.delete()
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
    nobody: Subscription = books.world.book.new_subscription(CHAT)
    books.world.book.receipts[nobody.number].append(books.receipts[0])
    assert any("nobody" in text for text in books.violations())


# -- dead letters that are revived


@pytest.fixture
def revived(books: Books) -> Books:
    """The first message was refused, was given up, was tried again, and came as the last."""
    first = books.world.book.said[0]
    books.receipts[0] = Receipt(
        books.began, f"{BOT_ID}-7-{first.update_id}", first.text, TO_REFUSE[0]
    )
    books.log[0] = books.line("dead", first)
    books.world.book.revivals.append(Revival(7, first.update_id, time.time()))
    books.receipts.append(books.receipt(first))
    books.log.append(books.line("delivered", first))
    return books


def test_a_revived_message_may_come_behind_newer_ones(revived: Books) -> None:
    assert revived.violations() == []


def test_a_revived_message_that_never_comes_is_a_loss(revived: Books) -> None:
    del revived.receipts[-1], revived.log[-1]
    assert any("lost" in text for text in revived.violations())


def test_a_revived_message_may_die_again(revived: Books) -> None:
    del revived.receipts[-1]
    revived.log[-1] = revived.line("dead", revived.world.book.said[0])
    assert revived.violations() == []


def test_a_revived_message_may_go_with_its_subscription(revived: Books) -> None:
    del revived.receipts[-1], revived.log[-1]
    revived.delete()
    assert revived.violations() == []


def test_a_late_message_that_nobody_revived_is_seen(revived: Books) -> None:
    revived.world.book.revivals.clear()
    assert any("order" in text for text in revived.violations())


@pytest.mark.parametrize("event", ["delivered", "dead", "dropped"])
def test_an_outcome_too_much_of_a_revived_message_is_seen(revived: Books, event: str) -> None:
    revived.log.append(revived.line(event, revived.world.book.said[0]))
    assert any("logged" in text for text in revived.violations())


# -- deletions


def test_one_callback_after_a_deletion_is_allowed(books: Books) -> None:
    books.delete()
    said = books.world.book.said[2]
    books.receipts[2] = books.receipt(said)
    assert books.violations() == []


def test_two_callbacks_after_a_deletion_are_seen(books: Books) -> None:
    books.delete()
    for place in (1, 2):
        books.receipts[place] = books.receipt(books.world.book.said[place])
    assert any("was deleted" in text for text in books.violations())


def test_a_gap_before_a_deletion_is_a_loss(books: Books) -> None:
    books.delete()
    del books.receipts[1]
    assert any("lost" in text for text in books.violations())


def test_a_deleted_subscription_that_still_stands_is_seen(books: Books) -> None:
    books.delete()
    books.store()
    assert any("stands for the chat" in text for text in books.violations())


def test_a_subscription_that_nobody_deleted_and_is_gone_is_seen(books: Books) -> None:
    books.forget()
    assert any("stands for the chat None" in text for text in books.violations())


def test_what_comes_for_a_key_that_went_before_its_answer_is_allowed(books: Books) -> None:
    books.delete()
    books.subscription.id = books.subscription.granted_at = None
    assert books.violations() == []


# -- a group becomes a supergroup


GROUP, SUPERGROUP = -5001, -1_002_000_000_100


@pytest.fixture
def moved(books: Books) -> Books:
    """The subscription is for a group that moved, and got all of before and after."""
    books.world.book.said.clear()
    books.receipts.clear()
    books.log.clear()
    books.forget()
    books.store(chat=SUPERGROUP)
    books.subscription.chat_id = books.subscription.granted_as = GROUP
    books.say_and_deliver("before", GROUP)
    books.world.move(GROUP, SUPERGROUP)
    for said in books.world.book.said[1:]:
        books.deliver(said)
    books.say_and_deliver("after", SUPERGROUP)
    return books


class Twin:
    """An equal subscription, 8, that stood on the supergroup before: 7 retires, 8 goes on."""

    def __init__(self, books: Books) -> None:
        self.subscription = books.world.book.new_subscription(SUPERGROUP, books.subscription)
        self.subscription.id = 8
        self.subscription.granted_as = SUPERGROUP
        self.subscription.granted_at = books.began
        books.forget()
        books.store(8, SUPERGROUP)
        for place, said in enumerate(books.world.book.said):
            if said.chat_id == SUPERGROUP:
                books.receipts[place] = books.receipt(said, 8)
                books.log[place] = books.line("delivered", said, 8)


def test_a_subscription_follows_its_group(moved: Books) -> None:
    assert moved.violations() == []


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_what_is_lost_around_a_move_is_a_loss(moved: Books, place: int) -> None:
    """The group's last message, and its service message, as well as the supergroup's."""
    del moved.receipts[place]
    assert any("lost" in text for text in moved.violations())


def test_a_subscription_that_stays_behind_is_seen(moved: Books) -> None:
    del moved.receipts[2:], moved.log[2:]
    moved.forget()
    moved.store(chat=GROUP)
    violations = moved.violations()
    assert any("lost" in text for text in violations)
    assert any(f"stands for the chat {GROUP}" in text for text in violations)


def test_an_equal_subscription_goes_on_and_the_old_one_retires(moved: Books) -> None:
    Twin(moved)
    assert moved.violations() == []


def test_a_retired_subscription_that_is_left_is_seen(moved: Books) -> None:
    Twin(moved)
    moved.store(7, GROUP)
    assert any(f"stands for the chat {GROUP}" in text for text in moved.violations())


def test_a_message_under_the_ids_of_both_is_seen(moved: Books) -> None:
    Twin(moved)
    moved.receipts.append(moved.receipt(moved.world.book.said[-1], 7))
    assert any("several delivery ids" in text for text in moved.violations())


def test_what_the_retired_one_lost_is_a_loss(moved: Books) -> None:
    Twin(moved)
    del moved.receipts[1]
    assert any("lost" in text for text in moved.violations())


# -- Telegram begins a new sequence of update ids


def test_a_lower_sequence_is_in_order(books: Books) -> None:
    books.world.restart_ids(5_000_000)
    books.deliver(books.world.book.said[-1])
    books.say_and_deliver("later")
    assert books.violations() == []


def test_an_old_message_after_a_lower_sequence_is_seen(books: Books) -> None:
    books.world.restart_ids(5_000_000)
    books.deliver(books.world.book.said[-1])
    books.receipts.append(books.receipt(books.world.book.said[0]))
    assert any("order" in text for text in books.violations())


def test_a_lost_message_of_the_new_sequence_is_a_loss(books: Books) -> None:
    books.world.restart_ids(5_000_000)
    books.acknowledge()
    assert any("lost" in text for text in books.violations())


def test_a_sequence_that_was_adopted_and_never_begun_is_seen(books: Books) -> None:
    books.world.stack.services["poller"].lines.append(Line(1.0, 1, "event=new_update_ids x=y"))
    assert any("adopted" in text for text in books.violations())
