"""``python -m telegrammer_demo``: wiring, and nothing else."""

import contextlib
import signal
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click

from telegrammer_demo import place, receiver, stage, story

# Ctrl-C, `kill`, a closed terminal.
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command("demo", context_settings={"max_content_width": 100})
@click.argument("conf", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--once", is_flag=True, help="Stop when everything was shown.")
def main(conf: Path, once: bool) -> None:
    """Show the gateway at work: CONF is the supervisord.conf that starts it.

    What it needs lies in the folder .demo and goes when it stops.
    """
    for number in _STOPPING:
        signal.signal(number, _interrupt)
    click.secho("Telegrammer: one bot, many programs. A demo on this machine alone.\n", bold=True)
    try:
        _show(conf, once)
    except KeyboardInterrupt:
        click.echo("Stopped; nothing is left running.")


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)  # once: what follows is stopping in order
    click.echo("\nStopping ...")
    raise KeyboardInterrupt


def _show(conf: Path, once: bool) -> None:
    root = Path(".demo")
    with place.folder_of_own(root) as folder:
        with receiver.listening() as inbox, contextlib.ExitStack() as held:
            with place.one_at_a_time(root):
                running = held.enter_context(stage.running(folder, conf))
                key = story.start(running)
            story.tell(running, inbox, key)
            if not once:
                story.show_next(running, key)
                _show_arrivals(inbox)
        place.empty(folder)


def _show_arrivals(inbox: receiver.Receiver) -> NoReturn:
    while True:
        story.show(inbox.arrivals.get())


if __name__ == "__main__":
    main(prog_name="demo")
