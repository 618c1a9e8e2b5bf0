"""What the processes say about themselves."""

import sys
import time
from dataclasses import dataclass
from typing import Final

from telegrammer.health import Health, examine
from telegrammer.settings import Settings
from telegrammer.store.components import Component, Components
from telegrammer.store.inbox import Inbox
from telegrammer.store.queue import Queue
from telegrammer_cli.commands import command, json_option
from telegrammer_cli.opening import open_existing
from telegrammer_cli.output import print_json, print_table, say, utc

# What only an operator can mend, by the poller's reason; the log said it once.
_REMEDIES: Final = {
    "token_refused": "Telegram refuses the token: set the right one, restart API and poller",
    "webhook_set": "the bot has a webhook: end it (Bot API, deleteWebhook), restart the poller",
    "other_poller": "another program polls this bot: stop it, then restart the poller",
    "bad_answer": "what answers is not the Bot API (look at TELEGRAMMER_BOT_API_URL and the proxy),"
    " or an update cannot be read at all",
    "queue_full": "look at `telegrammer list-failed-deliveries`, or raise TELEGRAMMER_MAX_JOBS",
    "replayed_updates": "update ids below those already seen are taken for old ones",
}


@dataclass(frozen=True)
class Snapshot:
    """What the database says at ``now``."""

    health: Health
    rows: dict[str, Component]
    bot_id: int | None
    cursor: int
    now: int

    @property
    def malformed(self) -> int | None:
        poller = self.rows.get("poller")
        return poller.update_id if poller else None


@command("status")
@json_option
def status(settings: Settings, as_json: bool) -> None:
    """Tell how the processes are doing. Exit status 1: the gateway is unavailable.

    It asks the database alone, so it works whether they run or not, and without a key.

    \b
    JSON: as GET /health answers it: "ok", "status", "components", "queue"; beside it
    "bot_id" and "next_update_id" (null before the first poll), and in each component
    that has a row "pid", "since" and "heartbeat_at"; times are Unix seconds.
    "update_id" in the poller names the malformed update that holds it back.
    """
    snapshot = _read(settings)
    if as_json:
        print_json(_members(snapshot))
    else:
        _print(snapshot)
    sys.exit(0 if snapshot.health.ok else 1)


def _read(settings: Settings) -> Snapshot:
    now = time.time()
    with open_existing(settings.db) as database:
        queue = Queue(database)
        rows = Components(database).all()
        return Snapshot(
            health=examine(rows, queue.counts(), settings.max_jobs, now),
            rows=rows,
            bot_id=queue.bot_id(),
            cursor=Inbox(database).cursor(),
            now=int(now),
        )


def _members(snapshot: Snapshot) -> dict[str, object]:
    components = {
        name: {**member, **_process(snapshot.rows.get(name))}
        for name, member in snapshot.health.components.items()
    }
    return {
        "ok": snapshot.health.ok,
        "status": snapshot.health.status.value,
        "components": components,
        "queue": snapshot.health.queue,
        "bot_id": snapshot.bot_id,
        "next_update_id": snapshot.cursor or None,
    }


def _process(row: Component | None) -> dict[str, int]:
    if row is None:
        return {}
    return {"pid": row.pid, "since": row.since, "heartbeat_at": row.heartbeat}


def _print(snapshot: Snapshot) -> None:
    say(f"Status:  {snapshot.health.status.value}")
    say(f"Bot:     {snapshot.bot_id or 'none yet'}, next update {snapshot.cursor or 'unknown'}")
    queue = snapshot.health.queue
    say(
        f"Queue:   {queue['pending']} pending, {queue['in_flight']} in flight,"
        f" {queue['dead']} failed, of at most {queue['limit']}"
    )
    say("")
    header = ("PROCESS", "STATE", "REASON", "SINCE (UTC)", "PID", "HEARTBEAT", "FAILURES")
    print_table(
        (*header, "LAST SUCCESS (UTC)"),
        [_row(name, snapshot) for name in snapshot.health.components],
    )
    if remedy := _REMEDIES.get(str(snapshot.health.components["poller"].get("reason"))):
        say("")
        say(f"The poller: {remedy}")
    if snapshot.malformed is not None:
        say("")
        say(
            f"Update {snapshot.malformed} is malformed and holds the poller back; to pass over"
            f" it, keeping its bytes: telegrammer skip-update {snapshot.malformed}"
        )


def _row(name: str, snapshot: Snapshot) -> tuple[str | int | None, ...]:
    member, row = snapshot.health.components[name], snapshot.rows.get(name)
    said = (name, member["state"], member.get("reason"))
    if row is None:
        return (*said, None, None, None, None, None)
    return (
        *said,
        utc(row.since),
        row.pid,
        f"{snapshot.now - row.heartbeat} s ago",
        row.consecutive_failures,
        utc(row.last_success_at),
    )
