"""The one comparison at the end: what was said, what came, what the logs and the database hold."""

import itertools
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field

from fire.book import Receipt, Said, Subscription
from fire.stack import Line
from fire.world import BOT_ID, World
from support.processes import Event, parse_event
from support.sandbox import TOKEN
from support.secrets import MARK

Key = tuple[int, int]
"""A delivery: subscription and update."""


@dataclass
class Result:
    """The figures of one campaign."""

    messages: int = 0
    deliveries: int = 0
    dead: int = 0
    losses: int = 0
    duplicates: Counter[str] = field(default_factory=Counter)
    """Messages that a receiver accepted more than once, by what allowed it."""
    sends: int = 0
    sent: int = 0
    unlogged: int = 0
    """Outcomes whose line a kill kept from being written."""


class Logged:
    """What the dispatcher's log says of each delivery."""

    def __init__(self, lines: list[Line]) -> None:
        self.outcomes: dict[Key, list[str]] = {}
        self.timeouts: Counter[Key] = Counter()
        for line in lines:
            event = parse_event(line.text)
            if event.get("event") in ("delivered", "dead", "dropped"):
                self.outcomes.setdefault(_key(event), []).append(event["event"])
            elif event.get("event") == "retry" and event["reason"] == "timeout":
                self.timeouts[_key(event)] += 1


def _key(event: Event) -> Key:
    return int(event["subscription"]), int(event["update"])


class Ledger:
    """Compares everything with everything; each difference is a violation in the diary."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._result = Result(messages=len(world.book.said))
        self._logged = Logged(world.stack.services["dispatcher"].lines)
        self._confirmed = world.telegram.confirmed()
        self._ends = sorted(world.diary.dispatcher_ends)
        with closing(sqlite3.connect(f"file:{world.database}?mode=ro", uri=True)) as database:
            self._dead = self._read(database)

    def compare(self) -> Result:
        ids_of_text: dict[str, set[str]] = {}
        for subscription in self._world.book.subscriptions:
            receipts = self._world.book.receipts[subscription.number]
            for receipt in receipts:
                name = f"{subscription.number} {receipt.text}"
                ids_of_text.setdefault(name, set()).add(receipt.delivery_id)
            if subscription.id is not None:
                self._compare_one(subscription, subscription.id, receipts)
            elif receipts:
                self._violation(f"callbacks for {subscription}, which nobody was granted")
        for name, ids in ids_of_text.items():
            if len(ids) > 1:
                self._violation(f"{name}: several delivery ids {ids}")
        self._compare_sends()
        self._compare_logs()
        return self._result

    # -- deliveries ----------------------------------------------------------------------

    def _compare_one(
        self, subscription: Subscription, number: int, receipts: list[Receipt]
    ) -> None:
        chat = [said for said in self._world.book.said if said.chat_id == subscription.chat_id]
        said = {f"{BOT_ID}-{number}-{s.update_id}": s for s in chat}
        for receipt in receipts:
            if receipt.delivery_id not in said or said[receipt.delivery_id].text != receipt.text:
                self._violation(f"{subscription}: an unknown callback {receipt}")
                return
        self._check_order(subscription, [said[r.delivery_id].update_id for r in receipts])
        came: dict[int, list[Receipt]] = {}
        for receipt in receipts:
            came.setdefault(said[receipt.delivery_id].update_id, []).append(receipt)
        self._check_complete(subscription, number, chat, came)
        for update_id, those in came.items():
            self._count_duplicates((number, update_id), those)

    def _check_order(self, subscription: Subscription, update_ids: list[int]) -> None:
        """Let a message be repeated, but never after a later one has begun."""
        last = 0
        for update_id in update_ids:
            if update_id < last:
                self._violation(f"{subscription}: out of order {update_ids}")
                return
            last = update_id

    def _check_complete(
        self,
        subscription: Subscription,
        number: int,
        chat: list[Said],
        came: dict[int, list[Receipt]],
    ) -> None:
        settled = {u for u, those in came.items() if any(r.accepted for r in those)}
        outcomes = self._logged.outcomes
        dead = {s.update_id for s in chat if "dead" in outcomes.get((number, s.update_id), [])}
        dead |= {update_id for owner, update_id in self._dead if owner == number}
        self._result.deliveries += len(settled)
        self._result.dead += len(dead)
        done = settled | dead
        for said in chat:
            if said.update_id not in self._confirmed or said.update_id in done:
                continue
            if self._is_owed(subscription, said, done):
                self._result.losses += 1
                self._violation(
                    f"lost: {said} for {subscription}, callbacks {came.get(said.update_id)}"
                )

    def _is_owed(self, subscription: Subscription, said: Said, done: set[int]) -> bool:
        """Tell whether the message had to come: it began when the subscription stood.

        Ingestion knows one moment when a subscription begins and one when it ends: what
        lies between two messages that came had to come as well.
        """
        later = any(update_id > said.update_id for update_id in done)
        earlier = any(update_id < said.update_id for update_id in done)
        granted = subscription.granted_at is not None and subscription.granted_at < said.at
        if subscription.leaving_at is not None:
            return later and (granted or earlier)
        return granted or earlier

    def _count_duplicates(self, key: Key, receipts: list[Receipt]) -> None:
        accepted = [receipt for receipt in receipts if receipt.accepted]
        timeouts = self._logged.timeouts[key]
        for first, again in itertools.pairwise(accepted):
            if any(first.at <= end <= again.at for end in self._ends):
                self._result.duplicates["the dispatcher ended"] += 1
            elif timeouts:
                timeouts -= 1
                self._result.duplicates["timeout"] += 1
            else:
                self._violation(f"{key} was accepted twice: {first}, {again}")

    # -- sends ---------------------------------------------------------------------------

    def _compare_sends(self) -> None:
        state = self._world.telegram.state
        with state.changed:
            sent = Counter(str(sent.message["text"]) for sent in state.ledger.sent)
            called = Counter(
                call.parameters.get("text", "")
                for call in state.ledger.calls
                if call.method == "sendMessage"
            )
        self._result.sent = sum(sent.values())
        self._result.sends = len(self._world.book.sends)
        for send in self._world.book.sends:
            if called[send.text] > 1:
                self._violation(f"{send}: called {called[send.text]} times")
            if send.status == 200 and sent[send.text] != 1:
                self._violation(f"{send}: a success that Telegram does not know")
            if send.status == 422 and sent[send.text]:
                self._violation(f"{send}: refused, and sent all the same")

    # -- logs and database ------------------------------------------------------------------

    def _compare_logs(self) -> None:
        for key, outcomes in self._logged.outcomes.items():
            if outcomes not in (["delivered"], ["dead"]) and not self._is_dropped(key, outcomes):
                self._violation(f"{key}: logged {outcomes}")
        self._check_unlogged()
        for service in self._world.stack.services.values():
            for line in service.lines:
                if any(sign in line.text for sign in ("Traceback", "traceback=", "Warning:")):
                    self._violation(f"{service.name}: {line.text}")
                if MARK in line.text or TOKEN in line.text or self._has_key(line.text):
                    self._violation(f"{service.name}: a secret in {line.text}")
                if not parse_event(line.text):
                    self._violation(f"{service.name}: not an event: {line.text}")

    def _has_key(self, text: str) -> bool:
        return any(key in text for key in self._world.keys.values())

    def _is_dropped(self, key: Key, outcomes: list[str]) -> bool:
        left = {s.id for s in self._world.book.subscriptions if s.leaving_at is not None}
        return outcomes == ["dropped"] and key[0] in left

    def _check_unlogged(self) -> None:
        """Each acceptance by a living subscription has its line, unless a kill took it."""
        for subscription in self._world.book.subscriptions:
            if subscription.id is None or subscription.leaving_at is not None:
                continue
            for receipt in self._world.book.receipts[subscription.number]:
                key = subscription.id, int(receipt.delivery_id.rpartition("-")[2])
                if not receipt.accepted or key in self._logged.outcomes:
                    continue
                if any(receipt.at <= end <= receipt.at + 10 for end in self._ends):
                    self._result.unlogged += 1
                else:
                    self._violation(f"{key}: accepted at {receipt.at} and never logged")

    def _read(self, database: sqlite3.Connection) -> set[Key]:
        """Check the database itself; return its dead letters."""
        for pragma in ("integrity_check", "foreign_key_check"):
            rows = database.execute(f"PRAGMA {pragma}").fetchall()
            if rows not in ([("ok",)], []):
                self._violation(f"{pragma}: {rows}")
        live = database.execute("SELECT count(*) FROM deliveries WHERE state <> 'DEAD'").fetchone()
        size = database.execute("SELECT jobs FROM queue_size").fetchone()
        rows = database.execute(
            "SELECT subscription_id, update_id, last_error FROM deliveries WHERE state = 'DEAD'"
        ).fetchall()
        if live != (0,) or size != (len(rows),):
            self._violation(f"the queue holds {live}, counts {size}, with {len(rows)} dead")
        for row in rows:
            if not row[2]:
                self._violation(f"dead without a reason: {row}")
            if self._logged.outcomes.get(row[:2], ["dead"]) != ["dead"]:
                self._violation(f"dead, but logged otherwise: {row}")
        return {row[:2] for row in rows}

    def _violation(self, text: str) -> None:
        self._world.diary.violation(text)
