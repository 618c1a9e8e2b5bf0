"""Ingestion: each update once, everything of a batch or nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.builders import BOT, NOW, Gateway, message, private
from telegrammer.errors import QueueFull, WrongBot
from telegrammer.model import Message, Update
from telegrammer.store.queue import Queue

SIX_DAYS = 6 * 86400


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path / "t.db")
    yield gateway
    gateway.close()


def test_a_message_becomes_one_job_for_each_subscription_of_its_chat(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    first = gateway.subscribe(owner, "http://a/")
    second = gateway.subscribe(owner, "http://b/")
    gateway.subscribe(owner, "http://a/", chat=99)

    done = gateway.ingest(message(10, payload='{"a" :1.0e2}'))

    assert (done.updates, done.jobs) == (1, 2)
    assert gateway.jobs() == [
        (first, 10, '{"a" :1.0e2}', "PENDING", 0, None),
        (second, 10, '{"a" :1.0e2}', "PENDING", 0, None),
    ]


def test_ids_are_taken_ascending_once_and_only_from_the_cursor_on(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(10))

    done = gateway.ingest(
        message(12), message(9), message(11, payload='"1st"'), message(11, payload='"2nd"'),
        message(10),
    )  # fmt: skip

    assert done.updates == 2
    assert [row[1] for row in gateway.jobs()] == [10, 11, 12]
    assert gateway.jobs()[1][2] == '"2nd"'
    assert gateway.inbox.cursor() == 13


def test_unsupported_updates_move_the_cursor_without_jobs(gateway: Gateway) -> None:
    done = gateway.ingest(Update(7), Update(8))

    assert (done.updates, done.jobs, gateway.inbox.cursor()) == (2, 0, 9)


def test_a_replay_below_the_cursor_changes_nothing(gateway: Gateway) -> None:
    gateway.ingest(message(100))

    done = gateway.ingest(message(5), message(6), now=NOW + SIX_DAYS)

    assert (done.updates, done.adopted, gateway.inbox.cursor()) == (0, False, 101)


def test_the_six_days_count_from_the_last_update(gateway: Gateway) -> None:
    gateway.ingest(message(100))
    gateway.ingest(message(101), now=NOW + SIX_DAYS)

    done = gateway.ingest(message(5), now=NOW + SIX_DAYS + 1)

    assert (done.updates, done.adopted, gateway.inbox.cursor()) == (0, False, 102)


def test_lower_ids_after_six_quiet_days_are_a_new_sequence(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(100))

    done = gateway.ingest(message(5), message(6), now=NOW + SIX_DAYS + 1)

    assert (done.updates, done.adopted, gateway.inbox.cursor()) == (2, True, 7)
    assert [row[1] for row in gateway.jobs()] == [100, 5, 6]


def test_a_clock_that_was_months_ahead_does_not_make_the_bot_deaf(gateway: Gateway) -> None:
    gateway.ingest(message(100), now=NOW + 90 * 86400)

    assert gateway.ingest(message(5)).adopted
    assert gateway.inbox.cursor() == 6


def test_a_jump_to_higher_ids_is_followed(gateway: Gateway) -> None:
    gateway.ingest(message(100))

    gateway.ingest(message(915000000), message(915000007))

    assert gateway.inbox.cursor() == 915000008


def test_a_batch_over_capacity_is_rolled_back_whole(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    gateway.subscribe(owner, "http://a/", chat=1)
    gateway.ingest(message(1, chat=1), max_jobs=3)

    with pytest.raises(QueueFull):
        gateway.ingest(
            private(2, 5, "ann"), message(3, chat=1), message(4, chat=1), message(5, chat=1),
            max_jobs=3,
        )  # fmt: skip

    assert gateway.inbox.cursor() == 2
    assert len(gateway.jobs()) == 1
    assert gateway.inbox.chat_of("ann") is None


def test_dead_jobs_count_and_room_comes_back_with_deleted_keys(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(1), message(2), max_jobs=2)
    with gateway.queue.turn() as turn:
        turn.dead(1, NOW, "http_404")
    with pytest.raises(QueueFull):
        gateway.ingest(message(3), max_jobs=2)

    gateway.keys.delete("app")

    assert gateway.queue.counts().pending == gateway.queue.counts().dead == 0
    other, _ = gateway.key("other")
    gateway.subscribe(other, "http://a/")
    assert gateway.ingest(message(3), max_jobs=2).jobs == 1


def test_a_full_queue_lets_updates_without_jobs_pass(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(1), message(2), max_jobs=2)

    assert gateway.ingest(message(3, chat=77), Update(4), max_jobs=2).updates == 2
    # An operator has lowered the limit since.
    assert gateway.ingest(message(5, chat=77), max_jobs=1).updates == 1


def test_a_username_belongs_to_the_chat_that_showed_it_last(gateway: Gateway) -> None:
    gateway.ingest(private(1, 5, "ann"), private(2, 6, "bob"))
    assert gateway.inbox.chat_of("ann") == 5

    gateway.ingest(private(3, 6, "ann"))

    assert gateway.inbox.chat_of("ann") == 6
    assert gateway.inbox.chat_of("bob") is None


def test_a_username_that_disappears_is_forgotten(gateway: Gateway) -> None:
    gateway.ingest(private(1, 5, "ann"))
    gateway.ingest(private(2, 5, None))

    assert gateway.inbox.chat_of("ann") is None


def test_a_group_message_tells_nothing_about_usernames(gateway: Gateway) -> None:
    gateway.ingest(Update(1, Message(-5, "{}", username="ann")))

    assert gateway.inbox.chat_of("ann") is None


def test_the_database_belongs_to_one_bot(gateway: Gateway) -> None:
    gateway.inbox.bind(BOT)

    with pytest.raises(WrongBot, match="6000000001"):
        gateway.inbox.bind(42)


@pytest.mark.parametrize("from_new_chat", [True, False])
def test_subscriptions_follow_a_group_to_its_supergroup(
    gateway: Gateway, from_new_chat: bool
) -> None:
    owner, _ = gateway.key()
    moved = gateway.subscribe(owner, "http://a/", chat=-5)
    if from_new_chat:
        note = Message(-1005, "{}", migrated_from=-5)
    else:
        note = Message(-5, "{}", migrated_to=-1005)

    assert gateway.ingest(Update(1, note)).moved == 1

    assert [(s.id, s.chat_id) for s in gateway.subscriptions.of_owner(owner)] == [(moved, -1005)]
    assert [row[0] for row in gateway.jobs()] == [moved]
    gateway.ingest(message(2, chat=-1005))
    assert [row[1] for row in gateway.jobs()] == [1, 2]


def test_a_group_that_becomes_itself_keeps_its_subscriptions(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    gateway.subscribe(owner, "http://a/", chat=-5)

    gateway.ingest(Update(1, Message(-5, "{}", migrated_to=-5)))

    with gateway.queue.turn() as turn:
        turn.delivered(1)
    assert len(gateway.subscriptions.of_owner(owner)) == 1


def test_an_equal_subscription_on_the_new_chat_wins_and_the_old_one_ends_with_its_jobs(
    gateway: Gateway,
) -> None:
    owner, _ = gateway.key()
    old = gateway.subscribe(owner, "http://a/", chat=-5)
    new = gateway.subscribe(owner, "http://a/", chat=-1005)
    gateway.ingest(message(1, chat=-5))

    gateway.ingest(Update(2, Message(-1005, "{}", migrated_from=-5)))
    assert [s.id for s in gateway.subscriptions.of_owner(owner)] == [old, new]

    with gateway.queue.turn() as turn:
        assert turn.delivered(1)
    assert [s.id for s in gateway.subscriptions.of_owner(owner)] == [new]


@pytest.mark.parametrize(
    "end", [lambda queue: queue.delete_dead(1), lambda queue: queue.purge(NOW + 1)]
)
def test_a_retiring_subscription_keeps_its_dead_letters(
    gateway: Gateway, end: Callable[[Queue], object]
) -> None:
    owner, _ = gateway.key()
    old = gateway.subscribe(owner, "http://a/", chat=-5)
    gateway.subscribe(owner, "http://a/", chat=-1005)
    gateway.ingest(message(1, chat=-5))
    gateway.ingest(Update(2, Message(-5, "{}", migrated_to=-1005)))
    with gateway.queue.turn() as turn:
        turn.dead(1, NOW, "http_404")
        turn.delivered(2)
    assert [dead.subscription_id for dead in gateway.queue.dead_jobs()] == [old]

    end(gateway.queue)

    assert [s.chat_id for s in gateway.subscriptions.of_owner(owner)] == [-1005]


def test_a_retiring_subscription_that_moves_after_all_stays(gateway: Gateway) -> None:
    """Its owner ended the equal one between Telegram's two service messages."""
    owner, _ = gateway.key()
    old = gateway.subscribe(owner, "http://a/", chat=-5)
    new = gateway.subscribe(owner, "http://a/", chat=-1005)
    gateway.ingest(message(1, chat=-5))
    gateway.ingest(Update(2, Message(-5, "{}", migrated_to=-1005)))
    gateway.subscriptions.delete(owner, new)
    gateway.ingest(Update(3, Message(-1005, "{}", migrated_from=-5)))

    with gateway.queue.turn() as turn:
        for job_id in range(1, 4):
            turn.delivered(job_id)
    assert gateway.jobs() == []

    assert [(s.id, s.chat_id) for s in gateway.subscriptions.of_owner(owner)] == [(old, -1005)]


def test_a_retiring_subscription_that_is_registered_again_stays(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    old = gateway.subscribe(owner, "http://a/", chat=-5)
    gateway.subscribe(owner, "http://a/", chat=-1005)
    gateway.ingest(message(1, chat=-5))
    gateway.ingest(Update(2, Message(-1005, "{}", migrated_from=-5)))

    assert gateway.subscribe(owner, "http://a/", chat=-5) == old

    with gateway.queue.turn() as turn:
        turn.delivered(1)
    assert old in [s.id for s in gateway.subscriptions.of_owner(owner)]


def test_a_skip_is_remembered_until_the_cursor_has_passed_it(gateway: Gateway) -> None:
    gateway.ingest(message(10))
    assert gateway.inbox.request_skip(11, NOW)
    assert not gateway.inbox.request_skip(10, NOW)
    assert gateway.inbox.skips() == {11}

    gateway.ingest(Update(11))

    assert gateway.inbox.skips() == set()


def test_a_malformed_update_of_a_new_sequence_may_be_skipped(gateway: Gateway) -> None:
    """Its id is below the cursor, and yet nothing gets past it without a skip."""
    gateway.ingest(message(100))
    later = NOW + SIX_DAYS + 1

    assert not gateway.inbox.request_skip(5, later - 1)
    assert gateway.inbox.request_skip(5, later)
    assert gateway.inbox.skips() == {5}


def test_ids_are_never_given_out_twice(gateway: Gateway) -> None:
    owner, _ = gateway.key()
    first = gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(1))
    gateway.keys.delete("app")

    other, _ = gateway.key()
    assert other > owner
    assert gateway.subscribe(other, "http://a/") > first
    gateway.ingest(message(2))
    with gateway.database.read() as tx:
        assert tx.execute("SELECT id FROM deliveries").fetchall() == [(2,)]
