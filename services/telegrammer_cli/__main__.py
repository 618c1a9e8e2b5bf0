"""`telegrammer`: the commands in their order, and how each of them ends."""

import io
import sys
from typing import Final, NoReturn

import click

from telegrammer import __version__, logs
from telegrammer.errors import ExitError, StorageUnavailable
from telegrammer.options import run_command, setting_options
from telegrammer_cli import check, config, database, deliveries, keys, sandbox, status
from telegrammer_cli.commands import Commands, hide_settings
from telegrammer_cli.output import complain, give_up_standard_output

_HELP: Final = """The operator's command of Telegrammer, a gateway around one Telegram bot.

Every command works beside the running processes. `telegrammer COMMAND --help` tells more.
"""

_EPILOG: Final = """\b
Examples:
  telegrammer add-key billing             make a key; it is shown once
  telegrammer status                      is everything running?
  telegrammer list-failed-deliveries --json
  telegrammer --db /var/lib/telegrammer/telegrammer.db check

\b
Exit statuses:
  0   done
  1   failed; nothing of that id or name; status: unavailable; check: an error found
  2   wrong usage
  78  wrong configuration, incompatible database

\b
Settings:
  Every setting is an option of every command, before or after its name, and an
  environment variable TELEGRAMMER_...; `telegrammer config --help` lists them all.

\b
--add-key NAME, --list-keys, --delete-key NAME, --list-failed-deliveries,
--retry-delivery ID and --delete-delivery ID are accepted in place of the commands.
"""

commands = Commands(
    {
        "Keys": (keys.add_key, keys.list_keys, keys.delete_key),
        "Failed deliveries": (
            deliveries.list_failed_deliveries,
            deliveries.retry_delivery,
            deliveries.delete_delivery,
        ),
        "Looking after it": (status.status, check.check, config.config, database.skip_update),
        "Database": (database.backup, database.migrate),
        "Trying it out": (sandbox.sandbox,),
    },
    _HELP,
    _EPILOG,
)
setting_options(commands)
click.version_option(__version__, prog_name="telegrammer")(commands)
hide_settings(commands)


def main() -> NoReturn:
    """Run the command and exit; what was foreseen ends with one line on standard error."""
    logs.set_up("cli", "text", "info", [])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # none where it was closed before we began
            stream.reconfigure(errors="backslashreplace")  # a terminal may not know every letter
    log = logs.Log("cli")
    try:
        run_command(commands, "telegrammer")
    except ExitError as error:
        complain(f"Error: {error}")
        sys.exit(error.status)
    except StorageUnavailable as error:
        complain(f"Error: {error}")
        sys.exit(1)
    except OSError as error:  # a full disk behind standard output; a closed pipe is click's
        give_up_standard_output()
        complain(f"Error: {error}")
        sys.exit(1)
    except Exception:
        log.exception("failed")
        sys.exit(1)
    finally:
        logs.finish()


if __name__ == "__main__":
    main()
