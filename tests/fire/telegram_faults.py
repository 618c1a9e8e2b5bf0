"""Every way in which the Bot API fails that is known, for getUpdates and for sendMessage."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from telegrammer_sandbox.faults import Fault

SEND_TIMEOUT: Final = 3.0
"""The gateway's total time for sendMessage in the campaign, in seconds."""

Outcome = tuple[int, str]

_SAMPLES: Final = Path(__file__).parents[1] / "samples" / "errors"
_BROKEN: Final = frozenset({(502, "UPSTREAM_ERROR"), (502, "UPSTREAM_UNAVAILABLE")})
_UNUSABLE: Final = frozenset({(502, "UPSTREAM_ERROR")})
_LATE: Final = frozenset({(504, "UPSTREAM_TIMEOUT")})
_GOOD: Final = frozenset({(200, "")})


@dataclass(frozen=True)
class Kind:
    """How one call fails: ``fault`` without its method, and what a caller of /send is told.

    ``repeats`` says that a poller may meet it for as long as it lasts.
    """

    fault: Mapping[str, object]
    told: frozenset[Outcome]
    repeats: bool = True


def _samples() -> dict[str, Kind]:
    return {path.stem: _sample(json.loads(path.read_text("ascii"))) for path in _files()}


def _files() -> list[Path]:
    return sorted(_SAMPLES.glob("*.json"))


def _sample(sample: dict[str, object]) -> Kind:
    status, body = sample["http_status"], str(sample["body"])
    fault = {"status": status, "body": body, "headers": sample["headers"]}
    return Kind(fault, frozenset({_told(status, body)}))


def _told(status: object, body: str) -> Outcome:
    """Return the row of the contract's table: core, section 3, "POST /send"."""
    try:
        envelope = json.loads(body)
    except ValueError:
        return 502, "UPSTREAM_ERROR"
    code = envelope.get("error_code", status) if isinstance(envelope, dict) else 0
    if code == 429:
        return 429, "TELEGRAM_RATE_LIMITED"
    if code in (400, 403) and envelope.get("ok") is False:
        return 422, "TELEGRAM_REJECTED"
    return 502, "UPSTREAM_ERROR"


# What is held is let go when anything that is held is.
_OTHERS: Final = {
    "held": Kind({"hold": True}, _LATE | _GOOD, repeats=False),
    "late": Kind({"delay": SEND_TIMEOUT + 1}, _LATE, repeats=False),
    "slow": Kind({"delay": 0.3}, _GOOD),
    "dripping": Kind({"drip": 0.2}, _LATE, repeats=False),
    "cut": Kind({"cut": 20}, _BROKEN),
    "cut at once": Kind({"cut": 0}, _BROKEN),
    "closed": Kind({"close": True, "run": False}, _BROKEN),
    "closed after it was done": Kind({"close": True}, _BROKEN),
    "dropped": Kind({"drop": True}, _GOOD),
    "empty 200": Kind({"status": 200, "body": ""}, _UNUSABLE),
    "html 200": Kind({"status": 200, "body": "<html>hello</html>"}, _UNUSABLE),
    "no envelope": Kind({"status": 200, "body": "[]"}, _UNUSABLE),
    "ok is no boolean": Kind({"status": 200, "body": '{"ok":1,"result":[]}'}, _UNUSABLE),
    "no result": Kind({"status": 200, "body": '{"ok":true}'}, _UNUSABLE),
    "result is null": Kind({"status": 200, "body": '{"ok":true,"result":null}'}, _UNUSABLE),
    "false under 200": Kind(
        {"status": 200, "body": '{"ok":false,"error_code":400,"description":"no"}'},
        frozenset({(422, "TELEGRAM_REJECTED")}),
    ),
    "true under 500": Kind({"status": 500, "body": '{"ok":true,"result":{}}'}, _UNUSABLE),
    "not gzip": Kind({"headers": {"Content-Encoding": "gzip"}}, _BROKEN),
    "redirect": Kind({"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, _UNUSABLE),
    "switching": Kind({"status": 599, "body": "x" * 70_000}, _UNUSABLE),
    "deep": Kind({"status": 200, "body": '{"ok":true,"result":' + "[" * 99_999}, _UNUSABLE),
    "too large": Kind({"status": 200, "body": "x" * (17 << 20)}, _UNUSABLE),
}

SEND_FAULTS: Final[Mapping[str, Kind]] = {**_samples(), **_OTHERS}

# "late" would be a poll that is just a little slow: the poller waits longer than that.
POLL_FAULTS: Final[Mapping[str, Kind]] = SEND_FAULTS


def poll_fault(name: str) -> Fault:
    kind = POLL_FAULTS[name]
    return _fault("getUpdates", kind, times=None if kind.repeats else 1)


def send_fault(name: str) -> Fault:
    return _fault("sendMessage", SEND_FAULTS[name], times=1)


def replay(update_id: int, chat_id: int, text: str) -> Fault:
    """Let getUpdates answer once with a message that it gave before."""
    chat = {"id": chat_id, "type": "private" if chat_id > 0 else "supergroup"}
    message = {"message_id": 1, "date": 1, "chat": chat, "text": text}
    body = {"ok": True, "result": [{"update_id": update_id, "message": message}]}
    kind = Kind({"status": 200, "body": json.dumps(body)}, _GOOD)
    return _fault("getUpdates", kind, times=1)


def _fault(method: str, kind: Kind, times: int | None) -> Fault:
    build: Callable[..., Fault] = Fault
    return build(method=method, times=times, **kind.fault)
