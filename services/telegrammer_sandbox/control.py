"""The control interface, ``/sandbox/...``: how the demo and the tests direct the world.

JSON over HTTP, only for this machine and for pages that the sandbox served itself, like the
Bot API beside it.
A mistake is 400 ``{"error": "..."}``.

Speaking and arranging:

``POST /sandbox/messages`` ``{"chat_id", "text", "user"?: {"id"?, "first_name"?, ...}}``
    A person writes; answers ``{"update_id", "message"}``. The id is null when the bot
    does not want such updates. A chat that does not exist is made up by the form of
    its id. Without ``user`` it is whose private chat it is, or the first person.
``POST /sandbox/chats`` ``{"id", "type", "title", "username"?}``
    Adds or changes a group, supergroup or channel.
``POST /sandbox/migrations`` ``{"chat_id"}``
    The group becomes a supergroup; answers ``{"chat_id"}``, the new one.
``POST /sandbox/updates`` any bytes
    Queues them as one update, byte for byte; answers ``{"update_id"}``, the id by which
    offsets count it (see ``UpdateQueue.add_raw``).
``POST /sandbox/update-ids`` ``{"next"}``
    Forgets what waits and counts on from there, up or down.
``POST /sandbox/faults`` a ``Fault`` (see ``faults.py``); ``DELETE`` removes all.
``POST /sandbox/release`` lets every held answer go; answers ``{"released"}``.
``POST /sandbox/reset`` begins anew.

Reading; the first four wait up to ``timeout`` seconds (60 at most) until there are
``at_least`` so many, and answer what there is then:

``GET /sandbox/calls?method=&state=``  ``[Call]``, oldest first (see ``ledger.py``)
``GET /sandbox/updates?state=``        ``[UpdateRecord]``
``GET /sandbox/sent?chat_id=``         ``[Sent]``
``GET /sandbox/messages?after=&epoch=`` ``{"epoch", "last", "messages"}``: what everybody
    wrote after number ``after``; waits for one more, or for a reset
``GET /sandbox/chats``                 ``{"bot", "people", "chats"}``
``GET /sandbox/faults``                the faults that are left
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Final, Literal
from urllib.parse import parse_qsl

import msgspec

from telegrammer_sandbox.faults import Fault
from telegrammer_sandbox.state import State
from telegrammer_sandbox.texts import LONGEST_TEXT
from telegrammer_sandbox.updates import LARGEST_ID, Unfit
from telegrammer_sandbox.world import Chat

LONGEST_WAIT: Final = 60.0

Query = dict[str, str]
Operation = Callable[[State, Query, bytes], object]
Name = Annotated[str, msgspec.Meta(max_length=128)]


class Mistake(ValueError):  # noqa: N818
    """A control request that makes no sense; the text says why."""


class _Speaker(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[int, msgspec.Meta(ge=1, le=2**52)] | None = None
    first_name: Name | None = None
    last_name: Name | None = None
    username: Name | None = None


class _Saying(msgspec.Struct, forbid_unknown_fields=True):
    chat_id: Annotated[int, msgspec.Meta(ge=-(2**52), le=2**52)]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)]
    user: _Speaker = msgspec.field(default_factory=_Speaker)


class _NewChat(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[int, msgspec.Meta(ge=-(2**52), le=-1)]
    type: Literal["group", "supergroup", "channel"]
    title: Name
    username: Name = ""


class _ChatId(msgspec.Struct, forbid_unknown_fields=True):
    chat_id: int


class _NextId(msgspec.Struct, forbid_unknown_fields=True):
    next: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_ID)]


def operate(state: State, method: str, path: str, query: str, body: bytes) -> tuple[int, bytes]:
    """Carry out one control request; return status and JSON."""
    operations = _OPERATIONS.get(path, {})
    operation = operations.get(method)
    if operation is None:
        return (405 if operations else 404), _error("there is no such operation")
    try:
        with state.changed:
            return 200, msgspec.json.encode(operation(state, dict(parse_qsl(query)), body))
    except (Mistake, Unfit, msgspec.MsgspecError) as error:
        return 400, _error(str(error))


def _error(text: str) -> bytes:
    return msgspec.json.encode({"error": text})


def _say(state: State, _query: Query, body: bytes) -> object:
    saying = msgspec.json.decode(body, type=_Saying)
    chat = state.world.chat(saying.chat_id)
    if chat.migrated_to is not None:
        raise Mistake("nobody can write there: the group became a supergroup")
    given = msgspec.to_builtins(saying.user)
    user_id = given.pop("id")
    names = {name: value for name, value in given.items() if value is not None}
    if chat.user is not None and user_id not in (None, chat.id):
        raise Mistake("only its owner writes in a private chat")
    sender = state.person(chat, user_id, names)
    message, update_id = state.say(state.world.chat(chat.id), sender, saying.text)
    return {"update_id": update_id, "message": message}


def _add_chat(state: State, _query: Query, body: bytes) -> object:
    new = msgspec.json.decode(body, type=_NewChat)
    return state.world.add(Chat(new.id, new.type, new.title, new.username)).as_json()


def _migrate(state: State, _query: Query, body: bytes) -> object:
    chat = state.world.chats.get(msgspec.json.decode(body, type=_ChatId).chat_id)
    if chat is None or chat.type != "group" or chat.migrated_to is not None:
        raise Mistake("only a group can become a supergroup, once")
    return {"chat_id": state.migrate(chat).id}


def _push(state: State, _query: Query, body: bytes) -> object:
    return {"update_id": state.push_raw(body)}


def _restart_ids(state: State, _query: Query, body: bytes) -> object:
    state.restart_ids(msgspec.json.decode(body, type=_NextId).next)
    return {}


def _set_fault(state: State, _query: Query, body: bytes) -> object:
    state.faults.waiting.append(msgspec.json.decode(body, type=Fault))
    return {}


def _clear_faults(state: State, _query: Query, _body: bytes) -> object:
    state.faults.waiting.clear()
    return {}


def _release(state: State, _query: Query, _body: bytes) -> object:
    held = [call for call in state.ledger.calls if call.state == "held"]
    state.releases += 1
    state.changed.notify_all()
    return {"released": len(held)}


def _reset(state: State, _query: Query, _body: bytes) -> object:
    state.reset()
    return {}


def _calls(state: State, query: Query, _body: bytes) -> object:
    method, wanted = query.get("method", "").lower(), query.get("state")
    return _wait_for_items(
        state,
        query,
        lambda: (
            call
            for call in state.ledger.calls
            if method in ("", call.method.lower()) and wanted in (None, call.state)
        ),
    )


def _updates(state: State, query: Query, _body: bytes) -> object:
    wanted = query.get("state")
    return _wait_for_items(
        state, query, lambda: (u for u in state.ledger.updates if wanted in (None, u.state))
    )


def _sent(state: State, query: Query, _body: bytes) -> object:
    chat_id = _whole(query, "chat_id")

    def to_chat() -> Iterable[object]:
        for sent in state.ledger.sent:
            chat = sent.message["chat"]
            if not chat_id or (isinstance(chat, dict) and chat["id"] == chat_id):
                yield sent

    return _wait_for_items(state, query, to_chat)


def _messages(state: State, query: Query, _body: bytes) -> object:
    after, epoch = _whole(query, "after"), _whole(query, "epoch")

    def newer() -> list[object]:
        known = after if epoch == state.epoch else 0
        return [posted for posted in state.world.posted if posted.number > known]

    state.wait(lambda: epoch != state.epoch or bool(newer()), _timeout(query))
    posted = state.world.posted
    last = posted[-1].number if posted else 0
    return {"epoch": state.epoch, "last": last, "messages": newer()}


def _chats(state: State, _query: Query, _body: bytes) -> object:
    world = state.world
    return {
        "bot": world.bot.as_json(),
        "people": [person.as_json() for person in world.people.values()],
        "chats": [chat.as_json() for chat in world.chats.values() if chat.migrated_to is None],
    }


def _faults(state: State, _query: Query, _body: bytes) -> object:
    return state.faults.waiting


def _wait_for_items(
    state: State, query: Query, items: Callable[[], Iterable[object]]
) -> list[object]:
    at_least = _whole(query, "at_least")
    state.wait(lambda: sum(1 for _ in items()) >= at_least, _timeout(query))
    return list(items())


def _timeout(query: Query) -> float:
    try:
        seconds = float(query.get("timeout", "0"))
    except ValueError:
        raise Mistake("timeout is not a number of seconds") from None
    if not 0 <= seconds <= LONGEST_WAIT:
        raise Mistake(f"timeout goes from 0 to {LONGEST_WAIT:g} seconds")
    return seconds


def _whole(query: Query, name: str) -> int:
    try:
        return int(query.get(name, "0"))
    except ValueError:
        raise Mistake(f"{name} is not a whole number") from None


_OPERATIONS: Final[dict[str, dict[str, Operation]]] = {
    "/sandbox/messages": {"GET": _messages, "POST": _say},
    "/sandbox/chats": {"GET": _chats, "POST": _add_chat},
    "/sandbox/migrations": {"POST": _migrate},
    "/sandbox/updates": {"GET": _updates, "POST": _push},
    "/sandbox/update-ids": {"POST": _restart_ids},
    "/sandbox/faults": {"GET": _faults, "POST": _set_fault, "DELETE": _clear_faults},
    "/sandbox/release": {"POST": _release},
    "/sandbox/reset": {"POST": _reset},
    "/sandbox/calls": {"GET": _calls},
    "/sandbox/sent": {"GET": _sent},
}
