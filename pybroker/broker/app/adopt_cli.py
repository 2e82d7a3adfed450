"""`pybroker adopt`: shows what an ActiveMQ's installation becomes, and writes it when asked to."""

import json
import sys
from pathlib import Path

import click

from pybroker.broker.app import argv
from pybroker.broker.app.activemq_configuration import ActivemqXml, activemq_options

_EXAMPLES = """
\b
Examples:
  pybroker adopt /opt/activemq                      what is carried over, what differs, pybroker.toml; dry
  pybroker adopt /opt/activemq --out /etc/pybroker  the same, and write pybroker.toml, users, rules and certificates
  pybroker adopt /opt/activemq --check --json       in a pipeline; the exit code says how much differs

The members of a pair get the same settings from the same file. `pybroker start --activemq-xml` runs the file as it is,
without writing anything. docs/migrate-from-activemq.md has the whole way, and the way back.
"""


@click.command(epilog=_EXAMPLES)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write pybroker.toml, and the files that it names, into this directory.",
)
@click.option("--check", is_flag=True, help="Say by the exit code how much differs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@activemq_options
def adopt(*, directory: Path, out: Path | None, check: bool, as_json: bool, activemq: ActivemqXml) -> None:
    """Look at an ActiveMQ's installation, and show the settings that it becomes.

    DIRECTORY is the installation, such as /opt/activemq, or its activemq.xml. Its configuration, start script, store,
    certificates, users and service are read, and nothing is changed.

    With --check the exit code is 0: nothing differs; 3: it starts, and something differs; 4: it does not start from
    this configuration, unless each place is named with --accept.
    """
    from pybroker.broker.app import adoption

    argv.hide_passwords()
    found = adoption.adopt(directory, activemq, out)
    if out is not None and not found.refused:
        found.write(out)
    if as_json:
        shown = json.dumps(found.as_json(), ensure_ascii=False)
    else:
        shown = "\n".join([*adoption.report(found), "", *found.toml()])
    # A name of a file may have bytes that are no UTF-8; \udc80 is an escape of JSON, too.
    click.echo(shown.encode("utf-8", "backslashreplace").decode())
    if out is not None and found.refused:
        found.write(out)  # raises, below the report that names the reasons
    sys.exit(int(found.exit) if check else 0)
