"""The application without its front, on a real database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.builders import NOW
from support.fake_clock import FakeClock
from support.wsgi import MAX_JOBS, Api, FakeTelegram
from telegrammer.store.connection import Database
from telegrammer.store.keys import Keys
from telegrammer.store.layout import open_database
from telegrammer.store.subscriptions import Limits
from telegrammer_api.app import create_app
from telegrammer_api.pool import Pool


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    path = tmp_path / "telegrammer.db"
    with open_database(path) as database:
        key = Keys(database).add("tests", NOW)
    assert key is not None
    pool, telegram, clock = Pool(lambda: Database(path)), FakeTelegram(), FakeClock()
    limits = Limits(per_key=3, total=5)
    app = create_app(pool, telegram, limits, MAX_JOBS, clock)
    yield Api(path, pool, app, key, telegram, clock)
    pool.close()
