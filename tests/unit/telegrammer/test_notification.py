"""The file that wakes the dispatcher."""

import errno
import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from inotify_simple import INotify

from telegrammer import notification
from telegrammer.notification import Watch


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "t.db"


@pytest.fixture
def watch(database: Path) -> Iterator[Watch]:
    found = Watch(database)
    yield found
    found.close()


def is_woken(watch: Watch) -> bool:
    """Tell whether the watch is readable, and make it wait again."""
    descriptor = watch.fileno()
    assert descriptor is not None
    readable = bool(select.select([descriptor], [], [], 0)[0])
    watch.drain()
    return readable


def test_a_touch_wakes_once(database: Path, watch: Watch) -> None:
    assert not is_woken(watch)

    notification.touch(database)
    notification.touch(database)

    assert is_woken(watch)
    assert not is_woken(watch)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_file_is_its_owners_alone_whatever_the_umask(database: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        notification.touch(database)
    finally:
        os.umask(before)

    assert stat.S_IMODE(database.with_name("t.db.notify").stat().st_mode) == 0o600


def test_a_file_that_was_replaced_is_watched_again(database: Path, watch: Watch) -> None:
    file = database.with_name("t.db.notify")
    file.unlink()
    assert is_woken(watch)

    is_woken(watch)  # the new file's own first touch
    notification.touch(database)

    assert is_woken(watch)


def test_a_link_is_not_followed_and_no_folder_is_no_error(database: Path) -> None:
    target = database.with_name("elsewhere")
    database.with_name("t.db.notify").symlink_to(target)

    notification.touch(database)
    notification.touch(database.parent / "missing" / "t.db")

    assert not target.exists()


@pytest.mark.parametrize("target", ["elsewhere", "/dev/null"])
def test_a_link_in_its_place_is_watched_like_the_file(
    database: Path, watch: Watch, target: str
) -> None:
    file = database.with_name("t.db.notify")
    file.unlink()
    file.symlink_to(target)
    is_woken(watch)
    is_woken(watch)

    notification.touch(database)

    assert is_woken(watch)


def test_a_watch_that_could_not_be_set_again_is_renewed_later(
    database: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say, has no room for the file: nothing could wake the dispatcher then."""
    with monkeypatch.context() as patched:
        patched.setattr(notification, "_create", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        database.with_name("t.db.notify").unlink()
        assert is_woken(watch)
        is_woken(watch)
        watch.renew()
    notification.touch(database)
    assert not is_woken(watch)

    watch.renew()
    notification.touch(database)

    assert is_woken(watch)


def test_a_file_that_was_moved_away_is_no_longer_watched(database: Path, watch: Watch) -> None:
    """A watch for each would be left, and a user's programs share a number of them."""
    file = database.with_name("t.db.notify")
    for number in range(20):
        file.rename(database.with_name(f"moved {number}"))
        assert is_woken(watch)
        is_woken(watch)
    told = Path(f"/proc/self/fdinfo/{watch.fileno()}").read_text()

    assert told.count("inotify wd") == 1


def test_without_a_watch_left_nothing_wakes_and_touching_still_works(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's programs share a small number of them; the dispatcher then looks by itself."""

    def used_up() -> INotify:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(notification, "INotify", used_up)
    watch = Watch(database)

    assert watch.fileno() is None
    assert database.with_name("t.db.notify").exists()
    watch.drain()
    watch.close()
