"""The command line of `pybroker handback`; `handback_report` does the work."""

import sys
from pathlib import Path
from typing import Final

import click

from pybroker.broker.app import argv
from pybroker.broker.app import config as settings
from pybroker.broker.domain.errors import BrokerError, ConfigError

EXIT_FAILED: Final = 2

_DEFAULT_VERSION: Final = "5.17"
"""The ActiveMQ that pybroker is tested with."""

_EXAMPLES: Final = """
\b
Examples:
  pybroker handback /mnt/shared                                 what there is to do, and the lines of activemq.xml
  pybroker handback /mnt/shared --activemq-version 5.18 --json  for a script; the exit code says if it is ready
  pybroker handback /mnt/shared --in-use                        the same, while its members serve clients
  pybroker handback /mnt/shared --jobs-to /var/lib/activemq/data/localhost/scheduler --yes
                                                                move scheduled messages to where ActiveMQ looks
  pybroker handback /mnt/shared --move-to /mnt/pybroker-files --yes
                                                                move away what ActiveMQ does not know
"""


@click.command(epilog=_EXAMPLES)
@click.argument("directory", metavar="[STORE]", required=False)
@click.option("--store", help="The store, instead of the argument.  [default: that of the settings]")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="TOML file with the members' settings.")
@click.option("--scheduler-store", type=click.Path(), help="Their directory of scheduled messages, if it was set.")
@click.option("--activemq-version", default=_DEFAULT_VERSION, show_default=True, help="The ActiveMQ to open it.")
@click.option("--user", help="The user that it runs as.  [default: activemq, if there is one]")
@click.option("--accept", multiple=True, metavar="KIND", help="Let findings of this kind not count; repeatable.")
@click.option("--in-use", is_flag=True, help="Look at a store that members use, as it is now; not with --yes.")
@click.option("--jobs-to", type=click.Path(path_type=Path), help="Move scheduled messages to this new directory.")
@click.option("--move-to", type=click.Path(path_type=Path), help="Move to this new directory what ActiveMQ ignores.")
@click.option("--yes", is_flag=True, help="Do it. Without it nothing is changed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def handback(
    *,
    directory: str | None,
    store: str | None,
    config_file: Path | None,
    scheduler_store: str | None,
    activemq_version: str,
    user: str | None,
    accept: tuple[str, ...],
    in_use: bool,
    jobs_to: Path | None,
    move_to: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Look for what would keep an ActiveMQ from taking a stopped store over, and print the lines of its activemq.xml.

    STORE is a data directory, or a database, as for `pybroker start`. All its members must be stopped, except for a
    look ahead, with --in-use. Nothing is changed without --yes.

    Exit code 0: ActiveMQ can be started; 1: there is something to do first; 2: the store is in use or cannot be read,
    or an argument cannot be used.
    """
    argv.hide_passwords()
    config = settings.load(config_file, {"store": directory or store, "scheduler_store": scheduler_store})
    from pybroker.broker.app.handback_report import HandbackOptions, report_on, show

    options = HandbackOptions(
        activemq_version=activemq_version,
        user=user,
        accepted=accept,
        is_in_use=in_use,
        jobs_to=jobs_to,
        move_to=move_to,
        yes=yes,
    )
    try:
        report = report_on(config, options)
    except ConfigError:
        raise
    except BrokerError as error:
        click.echo(f"pybroker: {error}", err=True)
        sys.exit(EXIT_FAILED)
    sys.exit(show(report, as_json=as_json))
