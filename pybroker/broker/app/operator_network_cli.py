"""`pybroker network`: connectors and bridges to other brokers, and the end and begin of one connector."""

import sys
from typing import TYPE_CHECKING

import click

from pybroker.broker.app.operator_access import OperatorAccess
from pybroker.broker.app.operator_cli import operator

if TYPE_CHECKING:
    from pybroker.management_client.client import ManagementClient

_DONE = {"stop": "stopped", "start": "started"}


@operator(
    "network",
    "pybroker network --url http://a:8161,http://b:8161",
    "pybroker network --store /mnt/shared --json",
    "pybroker network stop to-berlin",
)
@click.argument("action", type=click.Choice(list(_DONE)), required=False)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the names of the API.")
def network(access: OperatorAccess, action: str | None, name: str | None, as_json: bool) -> None:
    """List the bridges to and from other brokers, what they consume for these, and messages that are stranded here.

    With `stop` or `start` and the name of a network connector, end its bridges, or open them again. They stay ended
    until `start`, or until another member is master. Needs the role operator.

    Messages are stranded if they have come over a bridge and their queue has no consumer here: they do not go back to a
    broker that they have passed.
    """
    if action is None:
        _show(access.client(), as_json=as_json)
    elif name is None:
        raise click.UsageError(f"Name the network connector: pybroker network {action} NAME.")
    else:
        _switch(access.client(), action, name, as_json=as_json)


def _switch(client: "ManagementClient", action: str, name: str, *, as_json: bool) -> None:
    from pybroker.broker.app.operator_changes import Manner, made
    from pybroker.broker.app.operator_text import plain

    answer = client.change("POST", "network", "connectors", name, action, body={})
    text = _DONE[action] if answer["changed"] else f"was {_DONE[action]} before"
    made(answer, f"{plain(name)}: {text}", Manner(True, False, as_json))


def _show(client: "ManagementClient", *, as_json: bool) -> None:
    import json

    from pybroker.broker.app.operator_lists import now_ms
    from pybroker.broker.app.operator_network import described, fetch

    found = fetch(client)
    lines = [json.dumps(found)] if as_json else described(found, now_ms())
    for line in lines:
        sys.stdout.write(line + "\n")
