"""One event a line, never a secret."""

import contextlib
import hashlib
import io
import json
import logging
import select
from collections.abc import Iterator

import pytest

from support.log_lines import log_put_back
from support.processes import parse_event
from telegrammer import logs
from telegrammer.logs import Log

TOKEN = "123456789:AAH-thirty_five_characters_of_secret"
PROXY = 'http://user:pa"ss\\word@proxy.example:3128'
KEY = "0123456789abcdef" * 4


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    with log_put_back():
        yield


@pytest.fixture(params=["text", "json"])
def log_format(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fail(text: str) -> None:
    raise ValueError(text)


def set_up(log_format: str = "text", level: str = "info", *secrets: str) -> None:
    logs.set_up("poller", log_format, level, list(secrets))


def test_an_event_has_time_level_component_name_and_fields(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(log_format)
    Log("poller").info("polled", updates=3, url="https://a.example/b", note="two words", none=None)

    (line,) = capsys.readouterr().err.splitlines()
    event = parse_event(line)
    assert event.pop("time").endswith("Z")
    nothing = "None" if log_format == "json" else "-"
    assert event == {
        "level": "info",
        "component": "poller",
        "event": "polled",
        "updates": "3",
        "url": "https://a.example/b",
        "note": "two words",
        "none": nothing,
    }


def test_json_keeps_types(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("json")
    Log("api").info("x", count=3, share=0.5, flag=True, nothing=None)

    members = json.loads(capsys.readouterr().err)
    values = [members[name] for name in ("count", "share", "flag", "nothing")]
    assert values == [3, 0.5, True, None]


@pytest.mark.parametrize("text", ["a\nlevel=error event=forged", "\x1b[2J", 'say "hi"', "", "ü"])
def test_whatever_a_field_holds_the_event_stays_one_line(
    log_format: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(log_format)
    Log("api").info("x", text=text)

    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert "\x1b" not in written
    assert parse_event(written.strip())["text"] == text


@pytest.mark.parametrize(
    "secret",
    [TOKEN, PROXY, KEY, KEY.upper(), hashlib.sha256(KEY.encode()).hexdigest(), "9:short"],
)
def test_a_secret_is_written_nowhere(
    log_format: str, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(log_format, "debug", PROXY, "9:short")
    log = Log("api")
    log.error("x", text=f"before {secret} after", url=f"https://api.example/bot{secret}/getMe")
    logging.getLogger("urllib3").warning("retrying %s", secret)
    try:
        fail(f"{secret}\n{secret}")
    except ValueError:
        log.exception("failed", bare=secret)
        logging.getLogger("gunicorn").exception("failed")

    written = capsys.readouterr().err
    assert written.count("[redacted]") >= 8
    assert secret not in written
    assert json.dumps(secret)[1:-1] not in written


def test_a_traceback_is_kept_in_one_line(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(log_format)
    try:
        fail("odd")
    except ValueError:
        Log("api").exception("failed")

    event = parse_event(capsys.readouterr().err.strip())
    assert event["level"] == "error"
    assert "ValueError: odd" in event["traceback"]


def test_lines_kept_together_are_written_at_the_end_of_the_block_even_a_failed_one(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up(log_format)
    log = Log("dispatcher")
    with contextlib.suppress(ValueError), log.together():
        log.info("a")
        log.debug("not this")
        log.info("b")
        before = capsys.readouterr().err
        fail("odd")
    log.info("c")

    assert before == ""
    events = [parse_event(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["a", "b", "c"]


def test_lines_kept_together_go_out_in_pieces_that_a_shared_pipe_keeps_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A write of up to PIPE_BUF bytes is never torn by another process's (POSIX, ``write``)."""
    set_up()
    pieces: list[str] = []

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Pipe())
    log = Log("dispatcher")
    with log.together():
        for job in range(200):
            log.info("delivered", job=job, reason="http_200")

    assert 2 < len(pieces) < 20
    assert all(len(piece) <= select.PIPE_BUF and piece.endswith("\n") for piece in pieces)
    jobs = [parse_event(line)["job"] for line in "".join(pieces).splitlines()]
    assert jobs == [str(job) for job in range(200)]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("message", "argument"),
    [
        ("%d done", "one"),
        ("%(a)s", {"b": 1}),
        ("%c", -1),
        ("%s", Unprintable()),
        (Unprintable(), 1),
    ],
)
def test_a_library_whose_message_cannot_be_made_is_not_harmed(
    message: object, argument: object, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up()
    logging.getLogger("urllib3").warning(message, argument)

    (line,) = capsys.readouterr().err.splitlines()
    assert parse_event(line)["message"] == "(cannot be shown)"


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("text", "warning")
    log = Log("api")
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")

    events = [parse_event(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["c", "d"]


def test_libraries_are_heard_from_warning_on_as_library_lines(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below that urllib3 writes URLs, and so tokens."""
    set_up(log_format, "debug")
    logging.getLogger("urllib3.connectionpool").debug("GET /path")
    logging.getLogger("urllib3.connectionpool").info("to %s", "https://example.com/path")
    logging.getLogger("urllib3.connectionpool").warning("pool is %s", "full")

    (line,) = capsys.readouterr().err.splitlines()
    event = parse_event(line)
    assert (event["event"], event["logger"]) == ("library", "urllib3.connectionpool")
    assert (event["component"], event["message"]) == ("poller", "pool is full")


def test_setting_up_again_does_not_write_twice(capsys: pytest.CaptureFixture[str]) -> None:
    set_up("text")
    set_up("json")
    Log("api").info("once")

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["event"] == "once"
