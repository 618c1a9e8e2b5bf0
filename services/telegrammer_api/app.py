"""The application, built from its parts."""

from typing import Final

import falcon

from telegrammer.clock import Clock
from telegrammer.errors import StorageUnavailable
from telegrammer.logs import Log
from telegrammer.store.connection import Database
from telegrammer.store.subscriptions import Limits
from telegrammer_api.errors import ApiError, Code, translated
from telegrammer_api.front import REQUEST_ID
from telegrammer_api.gate import Gate, Request
from telegrammer_api.pool import Pool
from telegrammer_api.resources.health import HealthReport
from telegrammer_api.resources.send import Send, SendMessage
from telegrammer_api.resources.subscriptions import OneSubscription, Subscribe, SubscriptionList

_LOG: Final = Log("api")

App = falcon.App[Request, falcon.Response]


class _App(App):
    # Falcon refuses its own meta methods before it looks at the path; here a method
    # that is not offered is refused after it, whatever it is called.
    _META_METHODS = frozenset[str]()


class _NoStore:
    """Every answer is for this caller and this moment."""

    def process_response(
        self, req: Request, resp: falcon.Response, resource: object, req_succeeded: bool
    ) -> None:
        resp.set_header("Cache-Control", "no-store")


def create_app(
    pool: Pool[Database], send_message: SendMessage, limits: Limits, max_jobs: int, clock: Clock
) -> App:
    """Return the WSGI application. ``max_jobs`` is the queue's limit, for ``/health``."""
    app = _App(
        media_type=falcon.MEDIA_JSON,
        request_type=Request,
        middleware=[Gate(pool), _NoStore()],
    )
    for kind in (Exception, falcon.HTTPError):
        app.add_error_handler(kind, _answer_error)
    app.add_route("/send", Send(pool, send_message))
    app.add_route("/subscribe", Subscribe(pool, limits, clock))
    app.add_route("/subscriptions", SubscriptionList(pool))
    app.add_route("/subscriptions/{subscription_id}", OneSubscription(pool))
    app.add_route("/health", HealthReport(pool, max_jobs, clock))
    return app


def _answer_error(
    req: Request, resp: falcon.Response, error: Exception, params: dict[str, str]
) -> None:
    answer = translated(error)
    if answer.code is Code.INTERNAL_ERROR:
        _LOG.exception("request_failed", request_id=req.env[REQUEST_ID])
    elif answer.code.status >= 500:
        cause = error.__cause__ if isinstance(error, ApiError) else error
        _LOG.warning(
            "request_failed",
            request_id=req.env[REQUEST_ID],
            code=answer.code.name,
            reason=cause.reason if isinstance(cause, StorageUnavailable) else str(cause),
        )
    resp.status = falcon.code_to_http_status(answer.code.status)
    resp.set_headers(answer.headers)
    resp.data = answer.body()
