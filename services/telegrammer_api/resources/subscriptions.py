"""Who wants which chat where: ``/subscribe``, ``/subscriptions``, one of them."""

import re
from dataclasses import asdict
from typing import Final

import falcon
import msgspec

from telegrammer.clock import Clock
from telegrammer.store.connection import Database
from telegrammer.store.subscriptions import Limits, Subscriptions
from telegrammer_api.bodies import SubscribeBody
from telegrammer_api.errors import ApiError, Code
from telegrammer_api.gate import Request
from telegrammer_api.pool import Pool

_ID: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_LARGEST_ID: Final = 2**63 - 1


class Subscribe:
    """``/subscribe``."""

    def __init__(self, pool: Pool[Database], limits: Limits, clock: Clock) -> None:
        self._pool = pool
        self._limits = limits
        self._clock = clock

    def on_post(self, req: Request, resp: falcon.Response) -> None:
        wanted = SubscribeBody.parse(req.body)
        with self._pool.borrow() as database:
            subscription_id = Subscriptions(database).register(
                req.owner_id,
                wanted.chat_id,
                str(wanted.callback_url),
                self._limits,
                int(self._clock.now()),
            )
        if subscription_id is None:  # the key was deleted since it was checked
            raise ApiError(Code.UNAUTHORIZED)
        resp.data = msgspec.json.encode({"ok": True, "subscription_id": subscription_id})


class SubscriptionList:
    """``/subscriptions``: the caller's own."""

    def __init__(self, pool: Pool[Database]) -> None:
        self._pool = pool

    def on_get(self, req: Request, resp: falcon.Response) -> None:
        with self._pool.borrow() as database:
            own = Subscriptions(database).of_owner(req.owner_id)
        listed = [asdict(subscription) for subscription in own]
        resp.data = msgspec.json.encode({"ok": True, "subscriptions": listed})


class OneSubscription:
    """``/subscriptions/{id}``."""

    def __init__(self, pool: Pool[Database]) -> None:
        self._pool = pool

    def on_delete(self, req: Request, resp: falcon.Response, subscription_id: str) -> None:
        if not _ID.fullmatch(subscription_id) or int(subscription_id) > _LARGEST_ID:
            raise ApiError(Code.SUBSCRIPTION_NOT_FOUND)
        with self._pool.borrow() as database:
            if not Subscriptions(database).delete(req.owner_id, int(subscription_id)):
                raise ApiError(Code.SUBSCRIPTION_NOT_FOUND)
        resp.status = falcon.HTTP_204
