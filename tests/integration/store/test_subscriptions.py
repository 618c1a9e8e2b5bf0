"""Who wants which chat where: once each, within limits, by its owner alone."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import CHAT, LIMITS, NOW, Gateway, message
from telegrammer.errors import SubscriptionLimit
from telegrammer.model import Message, Update
from telegrammer.store.connection import Database
from telegrammer.store.subscriptions import Limits, Subscription, Subscriptions

GROUP, SUPERGROUP = -5, -1005


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    found = Gateway(tmp_path / "t.db")
    yield found
    found.close()


@pytest.fixture
def owner(gateway: Gateway) -> int:
    return gateway.key()[0]


def move(update_id: int) -> Update:
    return Update(update_id, Message(GROUP, "{}", migrated_to=SUPERGROUP))


def test_the_same_again_is_the_same_and_one_stream(gateway: Gateway, owner: int) -> None:
    first = gateway.subscribe(owner, "http://a/")

    assert gateway.subscribe(owner, "http://a/") == first
    assert gateway.ingest(message(1)).jobs == 1


def test_another_owner_chat_or_url_is_another(gateway: Gateway, owner: int) -> None:
    other, _ = gateway.key("other")
    ids = {
        gateway.subscribe(owner, "http://a/"),
        gateway.subscribe(owner, "http://a/?b"),
        gateway.subscribe(owner, "http://a/", CHAT - 1),
        gateway.subscribe(other, "http://a/"),
    }

    assert len(ids) == 4


def test_eight_registrations_at_once_give_one_id(gateway: Gateway, owner: int) -> None:
    barrier = threading.Barrier(8)
    ids: list[int | None] = []

    def register() -> None:
        with Database(gateway.path) as database:
            barrier.wait(10)
            subscriptions = Subscriptions(database)
            ids.append(subscriptions.register(owner, CHAT, "http://a/", LIMITS, NOW))

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert len(gateway.subscriptions.of_owner(owner)) == 1


def test_eight_at_once_do_not_pass_the_limit(gateway: Gateway, owner: int) -> None:
    barrier = threading.Barrier(8)
    refused: list[str] = []

    def register(url: str) -> None:
        with Database(gateway.path) as database:
            barrier.wait(10)
            try:
                Subscriptions(database).register(owner, CHAT, url, Limits(3, 10), NOW)
            except SubscriptionLimit:
                refused.append(url)

    threads = [threading.Thread(target=register, args=(f"http://{n}/",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == 5
    assert len(gateway.subscriptions.of_owner(owner)) == 3


def test_limits_count_for_each_key_and_in_all(gateway: Gateway, owner: int) -> None:
    other, _ = gateway.key("other")
    limits = Limits(per_key=2, total=3)
    register = gateway.subscriptions.register
    first = register(owner, 1, "http://a/", limits, NOW)
    register(owner, 2, "http://a/", limits, NOW)
    with pytest.raises(SubscriptionLimit):
        register(owner, 3, "http://a/", limits, NOW)
    register(other, 1, "http://a/", limits, NOW)
    with pytest.raises(SubscriptionLimit):
        register(other, 2, "http://a/", limits, NOW)

    assert register(owner, 1, "http://a/", limits, NOW) == first, "it takes no second place"
    assert first is not None
    assert gateway.subscriptions.delete(owner, first)
    assert register(other, 2, "http://a/", limits, NOW)


def test_a_key_that_is_gone_registers_nothing(gateway: Gateway, owner: int) -> None:
    gateway.keys.delete("app")

    assert gateway.subscriptions.register(owner, CHAT, "http://a/", LIMITS, NOW) is None


def test_an_owner_sees_and_deletes_its_own_alone(gateway: Gateway, owner: int) -> None:
    other, _ = gateway.key("other")
    first = gateway.subscribe(owner, "http://a/", 2)
    second = gateway.subscribe(owner, "http://b/", 1)
    foreign = gateway.subscribe(other, "http://c/")

    assert gateway.subscriptions.of_owner(owner) == [
        Subscription(first, 2, "http://a/"),
        Subscription(second, 1, "http://b/"),
    ]
    assert not gateway.subscriptions.delete(owner, foreign)
    assert not gateway.subscriptions.delete(owner, 999)
    assert [found.id for found in gateway.subscriptions.of_owner(other)] == [foreign]


def test_a_deleted_subscription_takes_its_jobs_along_and_its_id_stays_used(
    gateway: Gateway, owner: int
) -> None:
    first = gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(1), message(2))

    assert gateway.subscriptions.delete(owner, first)
    assert not gateway.subscriptions.delete(owner, first)

    assert gateway.jobs() == []
    assert gateway.queue.counts().pending == 0
    assert gateway.subscribe(owner, "http://a/") > first


def test_a_subscription_starts_with_what_comes_after_it(gateway: Gateway, owner: int) -> None:
    gateway.ingest(message(1))
    gateway.subscribe(owner, "http://a/")
    gateway.ingest(message(2))

    assert [job[1] for job in gateway.jobs()] == [2]


def test_a_group_that_becomes_a_supergroup_takes_its_subscriptions_along(
    gateway: Gateway, owner: int
) -> None:
    moved = gateway.subscribe(owner, "http://a/", GROUP)

    assert gateway.ingest(move(1)).moved == 1
    assert gateway.subscriptions.of_owner(owner) == [Subscription(moved, SUPERGROUP, "http://a/")]


def test_an_equal_one_stays_and_the_old_one_goes_with_its_last_job(
    gateway: Gateway, owner: int
) -> None:
    old = gateway.subscribe(owner, "http://a/", GROUP)
    new = gateway.subscribe(owner, "http://a/", SUPERGROUP)
    gateway.ingest(move(1))
    assert [found.id for found in gateway.subscriptions.of_owner(owner)] == [old, new]

    with gateway.queue.turn() as turn:
        assert turn.delivered(1)

    assert [found.id for found in gateway.subscriptions.of_owner(owner)] == [new]


def test_an_old_one_without_jobs_goes_at_once(gateway: Gateway, owner: int) -> None:
    gateway.subscribe(owner, "http://a/", GROUP)
    new = gateway.subscribe(owner, "http://a/", SUPERGROUP)
    gateway.ingest(Update(1, Message(SUPERGROUP, "{}", migrated_from=GROUP)))

    assert [found.id for found in gateway.subscriptions.of_owner(owner)] == [new]


def test_one_on_its_way_out_that_is_wanted_again_stays(gateway: Gateway, owner: int) -> None:
    old = gateway.subscribe(owner, "http://a/", GROUP)
    gateway.subscribe(owner, "http://a/", SUPERGROUP)
    gateway.ingest(move(1))

    assert gateway.subscribe(owner, "http://a/", GROUP) == old
    with gateway.queue.turn() as turn:
        assert turn.delivered(1)

    assert old in [found.id for found in gateway.subscriptions.of_owner(owner)]
