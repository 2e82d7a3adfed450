"""The command line: `start`, `status`, `doctor`, and the commands that other modules declare.

They are those for operators (`operator_cli`, `operator_change_cli`), clients, journals, users and analyses.
"""

import gc
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pybroker import __version__
from pybroker.broker.app import argv, logs, output, process
from pybroker.broker.app import config as settings
from pybroker.broker.app.activemq_configuration import ActivemqXml, activemq_file_options, opened, require_store
from pybroker.broker.app.adopt_cli import adopt
from pybroker.broker.app.analyze import analyze
from pybroker.broker.app.client_cli import browse, consume, produce
from pybroker.broker.app.handback_cli import handback
from pybroker.broker.app.journal_cli import journal
from pybroker.broker.app.listeners import PORTS
from pybroker.broker.app.operator_change_cli import COMMANDS as CHANGES
from pybroker.broker.app.operator_cli import COMMANDS as LOOKS
from pybroker.broker.app.operator_network_cli import network
from pybroker.broker.app.promote_cli import promote
from pybroker.broker.app.replica_cli import replica
from pybroker.broker.app.setting import path
from pybroker.broker.app.user_cli import user
from pybroker.broker.app.variables import unknown_variables
from pybroker.broker.domain.errors import BrokerError, ConfigError
from pybroker.units import format_duration, format_size

_log = logging.getLogger(__name__)

_EXIT_FAILED = 1
_EXIT_USAGE = 2

_START_EXAMPLES = """
\b
Examples:
  pybroker start                                    one broker, for clients on this machine; its store is ./data
  pybroker start --store /mnt/shared --bind 0.0.0.0 --users-file users.toml
                                                    run the same on two machines: one serves, one waits
  pybroker start --store postgresql://broker@db/mq --bind 0.0.0.0 --users-file users.toml
                                                    the same, with a database in place of the directory
  pybroker start --store memory: --stomp 0          a broker for tests, on any free port
  pybroker start --config pybroker.toml --sync periodic --journal-file-max 64mb
  pybroker start --activemq-xml conf/activemq.xml   what an ActiveMQ is configured to do, with its users and its store

Without --bind, listeners take connections from this machine only. With it, clients of other machines have to log in as
one of the users of --users-file (see `pybroker user`); `--anonymous everywhere` lets all of them in. What a user may do
is up to --rules-file.

Settings are read from the TOML file, then the environment (PYBROKER_STORE, …), then flags; the later wins.
"""


_DOCTOR_EXAMPLES = """
\b
Examples:
  pybroker doctor --config /etc/pybroker.toml       before a member goes live, on each machine
  pybroker doctor --store /mnt/shared --json        by cron; the exit code says how bad it is
"""


def main() -> None:
    """Run the command line; every expected failure is one line and a non-zero exit code."""
    closed = process.open_standard_streams()
    output.report_failures()
    try:
        commands(prog_name="pybroker", standalone_mode=False, obj=closed)
    except ConfigError as error:
        _fail(str(error), _EXIT_USAGE)
    except BrokerError as error:
        _fail(str(error), _EXIT_FAILED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        sys.stderr.close()
        sys.exit(0)


def _fail(message: str, code: int) -> None:
    logs.record_end(message)
    click.echo(f"pybroker: {message}", err=True)
    sys.exit(code)


class _Sections(click.Group):
    """The commands, in the sections of the help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        listed = [name for names in _SECTIONS.values() for name in names]
        assert sorted(listed) == self.list_commands(ctx), "each command is in one section"
        for title, names in _SECTIONS.items():
            limit = formatter.width - 6 - max(map(len, listed))
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit)) for name in names])


@click.group(cls=_Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="pybroker")
def commands() -> None:
    """A message broker in pure Python: a drop-in member of an ActiveMQ Classic master/slave installation."""


# ---------------------------------------------------------------- start


def _settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add one flag per setting to a command, in the order of their declarations."""
    for name, field in reversed(settings.SETTINGS.items()):
        if settings.is_table(name):
            continue
        default = shown(name, field.default)
        if isinstance(field.default, bool):
            flags = f"{settings.flag(name)}/--no-{name.replace('_', '-')}"
            option = click.option(flags, name, default=None, help=f"{field.description}  [default: {default}]")
        else:
            kind = click.Path() if field.read is path else click.STRING  # a shell completes names of files
            option = click.option(
                settings.flag(name), name, type=kind, help=f"{field.description}  [default: {default}]"
            )
        command = option(command)
    return command


def shown(name: str, value: object) -> str:
    """Return a default in the form in which it is written."""
    if value is None:
        return "off" if name in (*PORTS, "health", "management") else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_duration(value)
    if isinstance(value, int) and settings.is_size(name):
        return format_size(value)
    return str(value)


@commands.command(epilog=_START_EXAMPLES)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with settings.")
@activemq_file_options
@_settings_options
def start(*, config_file: Path | None, activemq: ActivemqXml | None, **flags: Any) -> None:
    """Run a broker in the foreground: master if there is none, else standby until the master is gone."""
    process.ignore_signals()
    argv.hide_passwords()
    with opened(activemq) as found:
        config = settings.load(config_file, flags, base=(found.values, found.origins))
        require_store(activemq, config.given)
        as_json = config.log_format == "json"
        logs.configure(config.log_level, connections=config.log_connections, as_json=as_json, file=config.log_file)
        found.log()
        for hint in unknown_variables():  # not an error: Kubernetes sets such variables for a service of this name
            _log.warning("an environment variable has no effect: %s", hint)
        gc.disable()  # loading makes no garbage, and collections would take a tenth of the time
        from pybroker.broker.app.serve import serve

        gc.freeze()
        gc.enable()
        serve(config)


# ---------------------------------------------------------------- status


@commands.command()
@click.option("--store", required=True, envvar="PYBROKER_STORE", help="Data directory or database of the members.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--wait",
    "wait_for",
    metavar="in-sync[=SECONDS]",
    help="Wait, 60 seconds by default, until another store has all that this replicated store confirms.",
)
def status(store: str, as_json: bool, wait_for: str | None) -> None:
    """Show the master and the standbys, and since when.

    Exit code 0: a master serves; 2: the store cannot be used; 3: the lock is held but no member serves yet; 4: there is
    no master; 5: a master serves, and a standby could not, for one of the reasons that it shows. With --json, `ha` has
    the whole state of high availability.
    """
    from pybroker.broker.app import database_status, ha_state
    from pybroker.broker.app import status as store_status
    from pybroker.broker.app.stores import is_database

    if is_database(store):
        argv.hide_passwords()
        database = database_status.read(store)
        state = database.as_json() | {"ha": ha_state.of_database(database)}
        _show(state, database_status.describe(database), database.exit, as_json=as_json)
    else:
        found = store_status.read(store) if wait_for is None else store_status.wait(store, wait_for)
        state = found.as_json() | {"ha": ha_state.of_directory(found)}
        _show(state, store_status.describe(found), found.exit, as_json=as_json)


def _show(found: dict[str, Any], described: list[str], code: int, *, as_json: bool) -> None:
    click.echo(json.dumps(found) if as_json else "\n".join(described))
    sys.exit(code)


@commands.command(epilog=_DOCTOR_EXAMPLES)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with settings.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@activemq_file_options
@_settings_options
def doctor(*, config_file: Path | None, activemq: ActivemqXml | None, as_json: bool, **flags: Any) -> None:
    """Look for what would stop a member from starting, serving or taking over, and say what to do.

    Takes the settings of `pybroker start`. It may run beside members, and changes nothing: in the store's directory it
    makes a file and removes it again. Exit code 0: nothing worse than advice; 3: warnings; 4: errors.
    """
    from pybroker.broker.app import doctor_cli
    from pybroker.broker.app.doctor import judge
    from pybroker.broker.app.examination import examine

    argv.hide_passwords()
    with opened(activemq) as found:
        config = settings.load(config_file, flags, base=(found.values, found.origins))
        require_store(activemq, config.given)
        sys.exit(doctor_cli.show(judge(examine(config)), as_json=as_json))


for command in (
    *LOOKS,
    network,
    *CHANGES,
    produce,
    consume,
    browse,
    analyze,
    journal,
    user,
    replica,
    promote,
    adopt,
    handback,
):
    commands.add_command(command)

_SECTIONS = {
    "Members": ("start", "status", "doctor", "replica", "promote", "user"),
    "State, over the HTTP API of management": [*[str(each.name) for each in LOOKS], "network"],
    "Changes, over the HTTP API of management": [str(each.name) for each in CHANGES],
    "Clients": ("produce", "consume", "browse"),
    "Journals": ("journal", "analyze"),
    "ActiveMQ": ("adopt", "handback"),
}
"""The commands in the sections of the help."""

if __name__ == "__main__":
    logging.captureWarnings(True)
    main()
