"""The methods of the Bot API, over the state. Wordings are the official server's.

What it does not do: text formatting (``parse_mode`` is ignored), replies, media, real
webhooks (one that is set only keeps getUpdates from working).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from telegrammer_sandbox import texts
from telegrammer_sandbox.ledger import Call, Sent
from telegrammer_sandbox.parameters import boolean, integer
from telegrammer_sandbox.polling import Poll, allowed_kinds
from telegrammer_sandbox.state import State, as_ascii
from telegrammer_sandbox.updates import Taken
from telegrammer_sandbox.world import Chat, Json, text_content

_WEBHOOK_ACTIVE: Final = (
    "Conflict: can't use getUpdates method while webhook is active;"
    " use deleteWebhook to delete the webhook first"
)
_OTHER_POLL: Final = (
    "Conflict: terminated by other getUpdates request;"
    " make sure that only one bot instance is running"
)
_SET_WEBHOOK: Final = "Conflict: terminated by setWebhook request"
_LONGEST_TOKEN: Final = 80


@dataclass(frozen=True)
class Answer:
    """A response before it is delivered."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Refusal(Exception):  # noqa: N818
    """The method is not carried out."""

    def __init__(self, code: int, description: str, parameters: Json | None = None) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def answer(self) -> Answer:
        envelope: Json = {"ok": False, "error_code": self.code, "description": self.description}
        headers = {}
        if self.parameters:
            envelope["parameters"] = self.parameters
            if "retry_after" in self.parameters:
                headers["Retry-After"] = str(self.parameters["retry_after"])
        return Answer(self.code, as_ascii(envelope).encode("ascii"), headers)


def success(result: str, description: str = "") -> Answer:
    """Return the envelope around a result, which is JSON text already."""
    tail = f',"description":{as_ascii(description)}' if description else ""
    return Answer(200, f'{{"ok":true,"result":{result}{tail}}}'.encode("ascii"))


def check_token(state: State, token: str) -> None:
    """Raise ``Refusal`` unless it is the bot's token."""
    if token != state.bot.token:
        malformed = ":" not in token or token.startswith("0") or len(token) > _LONGEST_TOKEN
        detail = ": invalid token specified" if malformed else ""
        raise Refusal(401, "Unauthorized" + detail)


def carry_out(state: State, call: Call) -> Answer:
    """Run the method that was called; it may wait, and never raises for what was sent."""
    method = _METHODS.get(call.method.lower(), _unknown)
    try:
        with state.changed:
            return method(state, call)
    except Refusal as refusal:
        return refusal.answer()


def _unknown(_state: State, _call: Call) -> Answer:
    raise Refusal(404, "Not Found: method not found")


def _get_me(state: State, _call: Call) -> Answer:
    abilities = {
        "can_join_groups": True,
        "can_read_all_group_messages": True,
        "supports_inline_queries": False,
        "supports_guest_queries": False,
        "can_connect_to_business": False,
        "has_main_web_app": False,
        "has_topics_enabled": False,
        "allows_users_to_create_topics": False,
        "can_manage_bots": False,
    }
    return success(as_ascii({**state.world.bot.as_json(), **abilities}))


def _get_updates(state: State, call: Call) -> Answer:
    if state.webhook_url:
        raise _conflict(state, _WEBHOOK_ACTIVE)
    given = call.parameters
    offset = integer(given.get("offset", ""), 32)
    limit = integer(given.get("limit") or "100", 32)
    timeout = integer(given.get("timeout", ""), 32)
    state.allowed = allowed_kinds(given.get("allowed_updates", ""), state.allowed)
    poll = state.rules.begin(offset, limit, timeout, state.clock.monotonic())
    taken = _wait_for_updates(state, call, poll)
    state.ledger.handed_out(call, [update.id for update in taken.updates])
    state.changed.notify_all()
    bodies = [update.body for update in taken.updates]
    return Answer(200, b'{"ok":true,"result":[' + b",\n".join(bodies) + b"]}")


def _wait_for_updates(state: State, call: Call, poll: Poll) -> Taken:
    deadline = state.clock.monotonic() + poll.timeout
    while True:
        taken = state.queue.take(poll.offset, poll.limit, state.clock.now())
        state.ledger.confirmed(call, taken.confirmed, state.clock.now())
        left = deadline - state.clock.monotonic()
        if taken.updates or left <= 0 or state.closing:
            break
        _park(state, poll)
        poll.offset = taken.offset
        call.state = "parked"
        state.changed.notify_all()
        _wait_for_news(state, poll, left)
        call.state = "running"
        if poll.terminated is not None:
            raise _conflict(state, poll.terminated)
    if state.parked is poll:
        state.parked = None
    return taken


def _wait_for_news(state: State, poll: Poll, seconds: float) -> None:
    epoch = state.epoch

    def news() -> bool:
        return poll.terminated is not None or len(state.queue) > 0 or state.epoch != epoch

    state.wait(news, seconds)


def _park(state: State, poll: Poll) -> None:
    """Let the poll be the one that waits; the one that waited before must end."""
    if state.parked is not poll:
        _terminate_parked(state, _OTHER_POLL)
        state.parked = poll


def _terminate_parked(state: State, reason: str) -> None:
    if state.parked is not None:
        state.parked.terminated = reason
        state.parked = None
        state.changed.notify_all()


def _conflict(state: State, description: str) -> Refusal:
    delay = state.rules.conflict_delay(state.clock.monotonic())
    state.wait(lambda: False, delay)
    return Refusal(409, description)


def _send_message(state: State, call: Call) -> Answer:
    raw = call.parameters.get("text", "")
    try:
        texts.check_raw(raw)
        chat = _addressed(state, call.parameters.get("chat_id", ""))
        text = texts.cleaned(raw)
    except texts.BadText as error:
        raise Refusal(400, f"Bad Request: {error}") from None
    now = state.clock.now()
    message = state.world.post(chat, state.world.bot, now, text_content(text))
    state.ledger.sent.append(Sent(call.number, now, message))
    state.changed.notify_all()
    return success(as_ascii(message))


def _addressed(state: State, address: str) -> Chat:
    if not address:
        raise Refusal(400, "Bad Request: chat_id is empty")
    if address.startswith("@"):
        chat = state.world.find(address)
    else:
        chat = state.world.chats.get(integer(address, 64))
    if chat is None:
        raise Refusal(400, "Bad Request: chat not found")
    if chat.migrated_to is not None:
        raise Refusal(
            400,
            "Bad Request: group chat was upgraded to a supergroup chat",
            {"migrate_to_chat_id": chat.migrated_to},
        )
    return chat


def _set_webhook(state: State, call: Call) -> Answer:
    url = call.parameters.get("url", "")
    if not url:
        return _delete_webhook(state, call)
    now = state.clock.monotonic()
    if now < state.next_webhook_at:
        raise Refusal(429, "Too Many Requests: retry after 1", {"retry_after": 1})
    state.next_webhook_at = now + 1
    if url == state.webhook_url and not _drops_pending(call):
        return success("true", "Webhook is already set")
    _terminate_parked(state, _SET_WEBHOOK)
    _drop_pending(state, call)
    if url.startswith("http://"):
        state.webhook_url = ""
        raise Refusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
    state.webhook_url = url
    state.allowed = allowed_kinds(call.parameters.get("allowed_updates", ""), state.allowed)
    return success("true", "Webhook was set")


def _delete_webhook(state: State, call: Call) -> Answer:
    _drop_pending(state, call)
    was_set, state.webhook_url = state.webhook_url, ""
    return success("true", "Webhook was deleted" if was_set else "Webhook is already deleted")


def _drops_pending(call: Call) -> bool:
    return boolean(call.parameters.get("drop_pending_updates", ""))


def _drop_pending(state: State, call: Call) -> None:
    if _drops_pending(call):
        state.restart_ids(state.queue.tail)


def _get_webhook_info(state: State, _call: Call) -> Answer:
    info: Json = {
        "url": state.webhook_url,
        "has_custom_certificate": False,
        "pending_update_count": len(state.queue),
    }
    return success(as_ascii(info))


_METHODS: Final[dict[str, Callable[[State, Call], Answer]]] = {
    "getme": _get_me,
    "getupdates": _get_updates,
    "sendmessage": _send_message,
    "setwebhook": _set_webhook,
    "deletewebhook": _delete_webhook,
    "getwebhookinfo": _get_webhook_info,
}
