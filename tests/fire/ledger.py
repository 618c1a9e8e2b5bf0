"""The one comparison at the end: what was said, what came, what the logs and the database hold."""

import itertools
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from math import inf

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
    upheavals: Counter[str] = field(default_factory=Counter)
    """Subscriptions with live jobs whose group moved, or that were deleted, by what they did."""
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
        self._revivals: dict[Key, list[float]] = {}
        for revival in world.book.revivals:
            key = revival.subscription, revival.update_id
            self._revivals.setdefault(key, []).append(revival.at)
        # A restart of the update ids makes them no order.
        self._order = {said.update_id: at for at, said in enumerate(world.book.said)}
        with closing(sqlite3.connect(f"file:{world.database}?mode=ro", uri=True)) as database:
            self._dead = self._read(database)
            self._chat_of = dict(database.execute("SELECT id, chat_id FROM subscriptions"))

    def compare(self) -> Result:
        book = self._world.book
        for number, receipts in book.receipts.items():
            self._compare_place(number, receipts)
        for subscription in book.subscriptions:
            if subscription.id is not None and subscription.same_as is None:
                self._compare_one(subscription, subscription.id)
                self._compare_row(subscription, subscription.id)
        self._compare_sends()
        self._compare_logs()
        return self._result

    def _compare_place(self, number: int, receipts: list[Receipt]) -> None:
        """All that came to one URL is somebody's, and no message has two ids."""
        ids_of_text: dict[str, set[str]] = {}
        for receipt in receipts:
            ids_of_text.setdefault(receipt.text, set()).add(receipt.delivery_id)
        for text, ids in ids_of_text.items():
            if len(ids) > 1:
                self._violation(f"{number} {text}: several delivery ids {ids}")
        here = [each for each in self._world.book.subscriptions if each.place == number]
        strange = {r.subscription for r in receipts} - {each.id for each in here}
        # A key may go before its program was told the id.
        for subscription in here:
            if strange and subscription.id is None and subscription.left_at is not None:
                subscription.id = strange.pop()
        if strange:
            self._violation(f"callbacks for {here} from {strange}, which nobody was granted")

    # -- deliveries ----------------------------------------------------------------------

    def _compare_one(self, subscription: Subscription, number: int) -> None:
        receipts = self._receipts(subscription)
        chats = {subscription.chat_id, subscription.granted_as}
        if not self._is_retired(subscription):
            chats |= {move.new for move in self._world.book.moves if move.old in chats}
        chat = [said for said in self._world.book.said if said.chat_id in chats]
        said = {f"{BOT_ID}-{number}-{s.update_id}": s for s in chat}
        for receipt in receipts:
            if receipt.delivery_id not in said or said[receipt.delivery_id].text != receipt.text:
                self._violation(f"{subscription}: an unknown callback {receipt}")
                return
        self._check_order(
            subscription,
            [
                said[receipt.delivery_id].update_id
                for receipt in receipts
                if not self._is_revived(number, said[receipt.delivery_id], receipt)
            ],
        )
        came: dict[int, list[Receipt]] = {}
        for receipt in receipts:
            came.setdefault(said[receipt.delivery_id].update_id, []).append(receipt)
        self._check_complete(subscription, number, chat, came)
        self._check_end(subscription, receipts)
        self._count_upheavals(subscription, came)
        for update_id, those in came.items():
            self._count_duplicates((number, update_id), those)

    def _receipts(self, subscription: Subscription) -> list[Receipt]:
        receipts = self._world.book.receipts[subscription.place]
        return [each for each in receipts if each.subscription == subscription.id]

    def _is_retired(self, subscription: Subscription) -> bool:
        """Tell whether an equal one stood on the supergroup before its group moved."""
        twins = [s for s in self._world.book.subscriptions if s.twin_of is subscription]
        return any(twin.id is not None and twin.same_as is None for twin in twins)

    def _check_order(self, subscription: Subscription, update_ids: list[int]) -> None:
        """Let a message be repeated, but never after a later one has begun."""
        last = 0
        for place in (self._order[update_id] for update_id in update_ids):
            if place < last:
                self._violation(f"{subscription}: out of order {update_ids}")
                return
            last = place

    def _is_revived(self, number: int, said: Said, receipt: Receipt) -> bool:
        """Tell whether it came after it had been dead: behind newer ones, perhaps."""
        revivals = self._revivals.get((number, said.update_id), [])
        return any(receipt.at >= at for at in revivals)

    def _check_end(self, subscription: Subscription, receipts: list[Receipt]) -> None:
        """After a deletion the callback that is in flight may come, and nothing else."""
        if subscription.left_at is not None:
            late = [receipt for receipt in receipts if receipt.at > subscription.left_at]
            if len(late) > 1:
                self._violation(f"{subscription}: was deleted, and still gets {late}")

    def _check_complete(
        self,
        subscription: Subscription,
        number: int,
        chat: list[Said],
        came: dict[int, list[Receipt]],
    ) -> None:
        settled = {u for u, those in came.items() if any(r.accepted for r in those)}
        dead = {s.update_id for s in chat if self._is_dead((number, s.update_id))}
        dead |= {update_id for owner, update_id in self._dead if owner == number}
        self._result.deliveries += len(settled)
        self._result.dead += len(dead)
        done = settled | dead
        for said in chat:
            if said.update_id not in self._confirmed or said.update_id in done:
                continue
            is_revived = (number, said.update_id) in self._revivals
            if is_revived and subscription.leaving_at is not None:
                continue  # it went with its subscription
            if self._is_owed(subscription, said, done):
                self._result.losses += 1
                self._violation(
                    f"lost: {said} for {subscription}, callbacks {came.get(said.update_id)}"
                )

    def _is_dead(self, key: Key) -> bool:
        """Tell whether the log says that it died, once more than it was revived."""
        deaths = self._logged.outcomes.get(key, []).count("dead")
        return deaths > len(self._revivals.get(key, []))

    def _is_owed(self, subscription: Subscription, said: Said, done: set[int]) -> bool:
        """Tell whether the message had to come: it began when the subscription stood.

        Ingestion knows one moment when a subscription begins and one when it ends: what
        lies between two messages that came had to come as well.
        """
        place = self._order[said.update_id]
        later = any(self._order[update_id] > place for update_id in done)
        earlier = any(self._order[update_id] < place for update_id in done)
        granted = self._is_granted(subscription, said)
        if subscription.leaving_at is not None:
            return later and (granted or earlier)
        return granted or earlier

    def _count_upheavals(self, subscription: Subscription, came: dict[int, list[Receipt]]) -> None:
        """Count whether it had live jobs when its group moved, or when it was deleted."""
        move = self._world.book.move_of(subscription.chat_id)
        said = {s.update_id: s for s in self._world.book.said if move and s.chat_id == move.old}
        moved_at = max((self._confirmed.get(update_id, inf) for update_id in said), default=inf)
        if any(r.at > moved_at for update_id in said for r in came.get(update_id, [])):
            what = "retired" if self._is_retired(subscription) else "followed their group"
            self._result.upheavals[f"{what}, with live jobs"] += 1
        if subscription.leaving_at is not None and self._had_jobs(subscription, came):
            keys_went = {key.left_at for key in self._world.book.keys}
            how = "with their key" if subscription.left_at in keys_went else "alone"
            self._result.upheavals[f"were deleted {how}, with live jobs"] += 1

    def _had_jobs(self, subscription: Subscription, came: dict[int, list[Receipt]]) -> bool:
        assert subscription.leaving_at is not None
        for said in self._world.book.said:
            is_ingested = self._confirmed.get(said.update_id, inf) < subscription.leaving_at
            is_its_own = is_ingested and self._is_granted(subscription, said)
            if is_its_own and not any(r.accepted for r in came.get(said.update_id, [])):
                return True
        return False

    def _is_granted(self, subscription: Subscription, said: Said) -> bool:
        """Tell whether the answer that granted it came before the message was written.

        Before the group moved, if it was granted on a group that has moved.
        """
        if subscription.granted_at is None or subscription.granted_as is None:
            return False
        if said.chat_id == subscription.granted_as:
            return subscription.granted_at < said.at
        move = self._world.book.move_of(subscription.granted_as)
        return move is not None and move.new == said.chat_id and subscription.granted_at < move.at

    def _compare_row(self, subscription: Subscription, number: int) -> None:
        """What is left of the subscription in the database is what has to be."""
        chat_id = self._chat_of.get(number)
        move = self._world.book.move_of(subscription.granted_as or subscription.chat_id)
        if subscription.leaving_at is not None:
            is_right = chat_id is None or subscription.left_at is None
        elif self._is_retired(subscription):
            has_dead = any(owner == number for owner, _ in self._dead)
            is_right = (chat_id is not None) == has_dead
        elif move is None:
            is_right = chat_id == subscription.granted_as
        elif subscription.granted_at is not None and subscription.granted_at < move.at:
            is_right = chat_id == move.new
        else:
            is_right = chat_id in (move.old, move.new)
        if not is_right:
            self._violation(f"{subscription}: stands for the chat {chat_id}")

    def _count_duplicates(self, key: Key, receipts: list[Receipt]) -> None:
        accepted = [receipt for receipt in receipts if receipt.accepted]
        timeouts = self._logged.timeouts[key]
        for first, again in itertools.pairwise(accepted):
            if any(first.at <= at <= again.at for at in self._revivals.get(key, [])):
                self._result.duplicates["revived"] += 1
            elif any(first.at <= end <= again.at for end in self._ends):
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
            if send.status in (401, 422) and sent[send.text]:
                self._violation(f"{send}: refused, and sent all the same")

    # -- logs and database ------------------------------------------------------------------

    def _compare_logs(self) -> None:
        for key, outcomes in self._logged.outcomes.items():
            deaths, last = outcomes[:-1], outcomes[-1]
            # A kill may have kept the line of a death that was revived.
            is_whole = len(deaths) <= len(self._revivals.get(key, [])) and {*deaths} <= {"dead"}
            if not is_whole or (last == "dropped" and not self._has_left(key)):
                self._violation(f"{key}: logged {outcomes}")
        self._check_unlogged()
        adopted = len(self._world.stack.services["poller"].events("new_update_ids"))
        if adopted > self._world.book.restarts:
            self._violation(f"{adopted} sequences adopted, {self._world.book.restarts} begun")
        for service in self._world.stack.services.values():
            for line in service.lines:
                if any(sign in line.text for sign in ("Traceback", "traceback=", "Warning:")):
                    self._violation(f"{service.name}: {line.text}")
                if MARK in line.text or TOKEN in line.text or self._has_key(line.text):
                    self._violation(f"{service.name}: a secret in {line.text}")
                if not parse_event(line.text):
                    self._violation(f"{service.name}: not an event: {line.text}")

    def _has_key(self, text: str) -> bool:
        return any(key.text in text for key in self._world.book.keys)

    def _has_left(self, key: Key) -> bool:
        subscriptions = self._world.book.subscriptions
        return any(s.id == key[0] and s.leaving_at is not None for s in subscriptions)

    def _check_unlogged(self) -> None:
        """Each acceptance by a living subscription has its line, unless a kill took it."""
        for subscription in self._world.book.subscriptions:
            if subscription.id is None or subscription.leaving_at is not None:
                continue
            if subscription.same_as is not None:
                continue
            for receipt in self._receipts(subscription):
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
            if self._logged.outcomes.get(row[:2], ["dead"])[-1] != "dead":
                self._violation(f"dead, but logged otherwise: {row}")
        return {row[:2] for row in rows}

    def _violation(self, text: str) -> None:
        self._world.diary.violation(text)
