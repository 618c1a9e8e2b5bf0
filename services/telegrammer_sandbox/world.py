"""Users, chats and messages, in memory. Dates are Unix seconds, handed in."""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from telegrammer_sandbox.texts import command_length

Json = dict[str, object]
ChatType = Literal["private", "group", "supergroup", "channel"]

_REMEMBERED: Final = 2000
_SUPERGROUP_PREFIX: Final = -1_000_000_000_000
_NEW_SUPERGROUP: Final = 2_000_000_100


@dataclass(frozen=True)
class User:
    id: int
    first_name: str
    last_name: str = ""
    username: str = ""
    is_bot: bool = False

    def as_json(self) -> Json:
        shown: Json = {"id": self.id, "is_bot": self.is_bot, **_names(self)}
        return shown if self.is_bot else {**shown, "language_code": "en"}


@dataclass(frozen=True)
class Chat:
    """``title`` is empty in a private chat, which has the id of its ``user``."""

    id: int
    type: ChatType
    title: str = ""
    username: str = ""
    user: User | None = None
    migrated_to: int | None = None

    def as_json(self) -> Json:
        if self.user is not None:
            return {"id": self.id, **_names(self.user), "type": "private"}
        name: Json = {"username": self.username} if self.username else {}
        return {"id": self.id, "title": self.title, **name, "type": self.type}


@dataclass(frozen=True)
class Posted:
    """One message, its place in the order of all, and whether the bot wrote it."""

    number: int
    by_bot: bool
    message: Json


@dataclass
class World:
    """What there is before anybody speaks: two people, and a chat of each type."""

    bot: User
    people: dict[int, User] = field(default_factory=dict)
    chats: dict[int, Chat] = field(default_factory=dict)
    posted: deque[Posted] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _count: int = 0
    _message_ids: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.meet(User(5000000001, "Ann", "Example", "ann_example"))
        self.meet(User(5000000002, "Bob", "Example", "bob_example"))
        self.add(Chat(-4000000001, "group", "Team"))
        self.add(Chat(-1002000000001, "supergroup", "Operations", "ops_example"))
        self.add(Chat(-1001000000003, "channel", "News", "news_example"))

    def meet(self, user: User) -> User:
        """Know a person, by these names from now on, and have a private chat with them."""
        self.people[user.id] = user
        self.add(Chat(user.id, "private", username=user.username, user=user))
        return user

    def add(self, chat: Chat) -> Chat:
        self.chats[chat.id] = chat
        return chat

    def chat(self, chat_id: int) -> Chat:
        """Return the chat, made up by the form of its id when it is new."""
        if chat_id in self.chats:
            return self.chats[chat_id]
        if chat_id > 0:
            self.meet(User(chat_id, "User", str(chat_id)))
            return self.chats[chat_id]
        big = chat_id <= _SUPERGROUP_PREFIX
        return self.add(Chat(chat_id, "supergroup" if big else "group", f"Chat {chat_id}"))

    def find(self, address: str) -> Chat | None:
        """Return the public chat called ``@name``; people are not found by name."""
        name = address.removeprefix("@").lower()
        named = (c for c in self.chats.values() if c.user is None and c.username)
        return next((chat for chat in named if chat.username.lower() == name), None)

    def post(self, chat: Chat, sender: User, date: float, content: Json) -> Json:
        """Keep and return a new message; ``content`` is what follows its date."""
        by = "sender_chat" if chat.type == "channel" else "from"
        message: Json = {
            "message_id": self._next_message_id(chat),
            by: chat.as_json() if chat.type == "channel" else sender.as_json(),
            "chat": chat.as_json(),
            "date": int(date),
            **content,
        }
        self._count += 1
        self.posted.append(Posted(self._count, sender.is_bot, message))
        return message

    def migrate(self, chat: Chat) -> Chat:
        """Turn a group into a new supergroup, whose message ids begin at 1."""
        taken = sum(1 for known in self.chats.values() if known.migrated_to is not None)
        new_id = _SUPERGROUP_PREFIX - _NEW_SUPERGROUP - taken
        self.add(replace(chat, migrated_to=new_id))
        return self.add(Chat(new_id, "supergroup", chat.title))

    def _next_message_id(self, chat: Chat) -> int:
        # Private chats and groups share the account's own numbers, as in Telegram.
        space = chat.id if chat.type in ("supergroup", "channel") else 0
        self._message_ids[space] = self._message_ids.get(space, 0) + 1
        return self._message_ids[space]


def text_content(text: str) -> Json:
    """Return the members of a text message, with a leading command marked as one."""
    length = command_length(text)
    if not length:
        return {"text": text}
    return {"text": text, "entities": [{"offset": 0, "length": length, "type": "bot_command"}]}


def _names(user: User) -> Json:
    shown: Json = {"first_name": user.first_name}
    if user.last_name:
        shown["last_name"] = user.last_name
    if user.username:
        shown["username"] = user.username
    return shown
