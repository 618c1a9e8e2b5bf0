"""API keys: what the table keeps, and what goes with a key."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import CHAT, NOW, Gateway, message
from telegrammer.store.keys import KeyInfo, check_name


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    found = Gateway(tmp_path / "t.db")
    yield found
    found.close()


def test_a_key_is_64_hexadecimal_digits_and_never_the_same(gateway: Gateway) -> None:
    keys = {gateway.key(f"name {number}")[1] for number in range(50)}

    assert len(keys) == 50
    assert all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    assert all(len(set(digits)) > 1 for digits in zip(*keys, strict=True)), "each digit is random"


def test_only_the_digest_is_kept(gateway: Gateway) -> None:
    _, key = gateway.key()
    with gateway.database.read() as tx:
        row = tx.execute("SELECT * FROM api_keys").fetchone()

    assert row == (1, "app", hashlib.sha256(key.encode()).hexdigest(), NOW)
    for path in gateway.path.parent.iterdir():
        assert key.encode() not in path.read_bytes()


def test_a_key_is_recognised_by_its_exact_text(gateway: Gateway) -> None:
    owner, key = gateway.key()

    assert gateway.keys.owner(key) == owner
    for other in (key.upper(), f"{key} ", f" {key}", key[:-1], "", gateway.keys.all()[0].name):
        assert gateway.keys.owner(other) is None


def test_a_name_is_taken_once(gateway: Gateway) -> None:
    _, key = gateway.key("app")

    assert gateway.keys.add("app", NOW) is None
    assert gateway.keys.add("App", NOW) is not None, "names are exact"
    assert gateway.keys.owner(key) is not None


def test_listings_have_names_and_times_in_order_of_creation(gateway: Gateway) -> None:
    gateway.keys.add("b", NOW)
    gateway.keys.add("a", NOW + 1)

    assert gateway.keys.all() == [KeyInfo("b", NOW), KeyInfo("a", NOW + 1)]


def test_a_deleted_key_takes_its_subscriptions_and_jobs_along(gateway: Gateway) -> None:
    owner, key = gateway.key("going")
    other, _ = gateway.key("staying")
    gateway.subscribe(owner, "http://a/")
    kept = gateway.subscribe(other, "http://a/")
    gateway.ingest(message(1))

    assert gateway.keys.delete("going")

    assert gateway.keys.owner(key) is None
    assert gateway.subscriptions.of_owner(owner) == []
    assert [job[0] for job in gateway.jobs()] == [kept]
    assert gateway.queue.counts().pending == 1


def test_an_unknown_name_is_not_deleted(gateway: Gateway) -> None:
    gateway.key("app")

    assert not gateway.keys.delete("App")
    assert not gateway.keys.delete("")
    assert len(gateway.keys.all()) == 1


def test_an_owners_id_is_never_given_out_twice(gateway: Gateway) -> None:
    """What still runs for a deleted key must not act for a new one."""
    first, _ = gateway.key("one")
    gateway.keys.delete("one")
    second, _ = gateway.key("one")

    assert second > first
    assert gateway.subscribe(second, "http://a/", CHAT)


@pytest.mark.parametrize("name", ["a", "a" * 128, "ü" * 64, "with space", "汉字", "--flag", "'"])
def test_good_names(gateway: Gateway, name: str) -> None:
    assert gateway.keys.add(name, NOW)
    assert gateway.keys.delete(name)


@pytest.mark.parametrize(
    "name", ["", "a" * 129, "ü" * 65, "a\nb", "\x1b[2J", "\x7f", "a\x00", "\x9b", "\udcff"]
)
def test_names_that_cannot_be_printed_or_stored_are_refused(gateway: Gateway, name: str) -> None:
    with pytest.raises(ValueError, match="a key's name"):
        check_name(name)
    with pytest.raises(ValueError, match="a key's name"):
        gateway.keys.add(name, NOW)
    assert gateway.keys.all() == []
