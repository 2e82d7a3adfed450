"""The commands for operators that change something, over the REST API of management."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from pybroker.broker.app.operator_access import OperatorAccess
from pybroker.broker.app.operator_cli import operator
from pybroker.broker.app.operator_names import destination_of, queue_name

if TYPE_CHECKING:
    from pybroker.broker.app.operator_changes import Manner
    from pybroker.broker.domain.destination import Destination
    from pybroker.management_client.client import ManagementClient

_yes = click.option("--yes", "is_confirmed", is_flag=True, help="Do not ask: for scripts.")
_dry_run = click.option("--dry-run", "is_dry_run", is_flag=True, help="Say what would be done, and change nothing.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the names of the API.")
_selector = click.option("--selector", help="Only messages that match this SQL-92 condition.")
_ids = click.option("--id", "message_ids", multiple=True, metavar="MESSAGE_ID", help="Only this message; repeatable.")
_maximum = click.option("--maximum", type=click.IntRange(min=1), help="So many messages at most, the oldest first.")


def _with(*options: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options to a command, in their order."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_careful = _with(_yes, _dry_run, _json)
_selecting = _with(_selector, _ids, _maximum, _careful)


# ---------------------------------------------------------------- messages


@operator("purge", "pybroker purge ActiveMQ.DLQ", "pybroker purge ORDERS --yes --url http://a:8161,http://b:8161")
@click.argument("queue")
@_careful
def purge(access: OperatorAccess, queue: str, **manner: Any) -> None:
    """Remove all messages that wait in a queue. Those that consumers have stay."""
    _operate(access, "purge", "purged", queue_name(queue), {}, manner)


@operator("remove", "pybroker remove ORDERS --selector \"region = 'eu'\"", "pybroker remove ORDERS --id ID:a-1:1:1:1:7")
@click.argument("queue")
@_selecting
def remove(access: OperatorAccess, queue: str, **given: Any) -> None:
    """Remove messages that wait in a queue, by --selector or --id."""
    if not (given["selector"] or "").strip() and not given["message_ids"]:
        raise click.UsageError("Name the messages by --selector or --id; `pybroker purge` removes all.")
    _operate(access, "remove", "removed", queue_name(queue), _selection(given), given)


@operator(
    "move",
    "pybroker move ORDERS ORDERS.OLD --selector 'JMSTimestamp < 1795000000000'",
    "pybroker move ORDERS topic://REPLAY --maximum 1000 --yes",
)
@click.argument("queue")
@click.argument("target")
@_selecting
def move(access: OperatorAccess, queue: str, target: str, **given: Any) -> None:
    """Move messages that wait in a queue to another destination, each in one transaction."""
    _transfer(access, "move", "moved", queue, target, given)


@operator("copy", "pybroker copy ORDERS ORDERS.TEST --maximum 10")
@click.argument("queue")
@click.argument("target")
@_selecting
def copy(access: OperatorAccess, queue: str, target: str, **given: Any) -> None:
    """Copy messages that wait in a queue to another destination."""
    _transfer(access, "copy", "copied", queue, target, given)


@operator("retry", "pybroker retry ActiveMQ.DLQ", "pybroker retry ActiveMQ.DLQ --selector \"JMSType = 'order'\" --yes")
@click.argument("queue")
@_selecting
def retry(access: OperatorAccess, queue: str, **given: Any) -> None:
    """Move messages of a dead letter queue back to where they came from."""
    where = " back to where they came from"
    _operate(access, "retry", "moved", queue_name(queue), _selection(given), given, where=where)


def _transfer(access: OperatorAccess, verb: str, done: str, queue: str, target: str, given: Mapping[str, Any]) -> None:
    where = str(destination_of(target, "TARGET"))
    _operate(
        access,
        verb,
        done,
        queue_name(queue),
        {**_selection(given), "target": where},
        given,
        where=f" to {where}",
    )


def _selection(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the API that select messages."""
    fields = {
        "selector": given["selector"],
        "message_ids": list(given["message_ids"]) or None,
        "maximum": given["maximum"],
    }
    return {name: value for name, value in fields.items() if value is not None}


def _operate(
    access: OperatorAccess,
    verb: str,
    done: str,
    queue: str,
    body: Mapping[str, Any],
    given: Mapping[str, Any],
    *,
    where: str = "",
) -> None:
    from pybroker.broker.app.operator_changes import MessageOperation, operate

    operate(access.client(), MessageOperation(verb, done, queue, body, where), _manner(given))


def _manner(given: Mapping[str, Any]) -> "Manner":
    from pybroker.broker.app.operator_changes import Manner

    return Manner(given.get("is_confirmed", True), given.get("is_dry_run", False), given["as_json"])


# ---------------------------------------------------------------- destinations


def _declare_pause(verb: str, done: str, help_text: str) -> click.Command:
    def run(access: OperatorAccess, queue: str, as_json: bool) -> None:
        from pybroker.broker.app.operator_changes import made

        name = queue_name(queue)
        answer = access.client().change("POST", "queues", name, verb, body={})
        made(answer, f"{done} {name}", _manner({"as_json": as_json}))

    run.__doc__ = help_text
    return operator(verb, f"pybroker {verb} ORDERS")(_with(click.argument("queue"), _json)(run))


pause = _declare_pause(
    "pause",
    "paused",
    """Pause a queue: it takes messages, and delivers none until `pybroker resume`, or another member is master.""",
)
resume = _declare_pause("resume", "resumed", "Have a paused queue deliver again.")


@operator("create", "pybroker create ORDERS", "pybroker create topic://PRICES")
@click.argument("destination")
@_json
def create(access: OperatorAccess, destination: str, as_json: bool) -> None:
    """Create a queue or topic, unless there is one. Needs the role admin."""
    from pybroker.broker.app.operator_changes import made

    found = destination_of(destination, "DESTINATION")
    answer = access.client().change("POST", _kind(found), body={"name": found.name})
    text = f"created {found}" if answer["created"] else f"there is {found} already"
    made(answer, text, _manner({"as_json": as_json}))


@operator("delete", "pybroker delete ORDERS.OLD", "pybroker delete topic://PRICES --yes")
@click.argument("destination")
@_careful
def delete(access: OperatorAccess, destination: str, **given: Any) -> None:
    """Delete a queue or topic with its messages, unless it has consumers. Needs the role admin."""
    from pybroker.broker.app.operator_changes import Plan, is_wanted, made
    from pybroker.counted import counted

    found = destination_of(destination, "DESTINATION")
    client, manner = access.client(), _manner(given)
    if manner.asks:
        row = client.get(_kind(found), found.name)
        if not is_wanted(Plan(f"delete {found} with {counted(row['size'], 'message')}", row), manner):
            return
    answer = client.change("DELETE", _kind(found), found.name)
    made(answer, f"deleted {found}", manner)


def _kind(destination: "Destination") -> str:
    return "queues" if destination.is_queue else "topics"


# ---------------------------------------------------------------- clients, jobs and transactions


@operator("cut-off", "pybroker cut-off ID:app1-41233-1795363154809-1:1")
@click.argument("connection_id")
@_careful
def cut_off(access: OperatorAccess, connection_id: str, **given: Any) -> None:
    """Close a connection. Its client may connect again. Needs the role admin."""

    def act(row: Mapping[str, Any]) -> str:
        return f"cut off {row['client_id']}, user {row['user']}, from {row['peer']}"

    _end(access, "connections", connection_id, act, f"cut off {connection_id}", given)


@operator("unsubscribe", "pybroker unsubscribe app1:prices")
@click.argument("key")
@_careful
def unsubscribe(access: OperatorAccess, key: str, **given: Any) -> None:
    """Delete a durable subscription with its messages, unless it has a consumer. KEY is CLIENT_ID:NAME."""
    from pybroker.counted import counted

    def act(row: Mapping[str, Any]) -> str:
        return f"delete the subscription {row['key']} to {row['destination']} with {counted(row['size'], 'message')}"

    _end(access, "subscriptions", key, act, f"deleted the subscription {key}", given)


@operator("unschedule", "pybroker unschedule ID:host-41233-1795-1:1:1:1:7")
@click.argument("job_id")
@click.option("--due", "next_time_ms", type=click.IntRange(min=0), metavar="MS", help="Of several, the one due then.")
@_careful
def unschedule(access: OperatorAccess, job_id: str, next_time_ms: int | None, **given: Any) -> None:
    """Remove scheduled messages by their id, which `pybroker jobs` shows."""

    def act(row: Mapping[str, Any]) -> str:
        return f"remove the scheduled message {job_id} to {row['destination']}"

    _end(access, "jobs", job_id, act, f"removed {job_id}", given, query={"next_time_ms": next_time_ms})


def _end(
    access: OperatorAccess,
    kind: str,
    key: str,
    act: Callable[[Mapping[str, Any]], str],
    done: str,
    given: Mapping[str, Any],
    *,
    query: Mapping[str, Any] | None = None,
) -> None:
    """Delete what a list has, after a question that shows it."""
    from pybroker.broker.app.operator_changes import Plan, is_wanted, made
    from pybroker.broker.app.operator_text import plain

    client, manner = access.client(), _manner(given)
    if manner.asks:
        row = _found(client, kind, key)
        if not is_wanted(Plan(plain(act(row)), row), manner):
            return
    made(client.change("DELETE", kind, key, query=query), plain(done), manner)


def _found(client: "ManagementClient", kind: str, key: str) -> Mapping[str, Any]:
    """Return the row of a list.

    Raises:
        RequestRefused: there is none.
    """
    from pybroker.broker.app.operator_lists import LISTS, ListRequest, fetch_list
    from pybroker.management_client.errors import RequestRefused

    for row in fetch_list(client, kind, ListRequest()).items:
        if row[LISTS[kind].key] == key:
            return row
    raise RequestRefused(404, f"there is no {key!r} among the {kind}")


def _declare_outcome(verb: str, words: str, done: str, help_text: str) -> click.Command:
    def run(access: OperatorAccess, branch: str, **given: Any) -> None:
        from pybroker.broker.app.operator_changes import Plan, is_wanted, made
        from pybroker.broker.app.operator_text import plain

        client, manner = access.client(), _manner(given)
        if manner.asks:
            row = _found(client, "transactions", branch)
            counts = f"{row['sent']:,} sent and {row['acknowledged']:,} acknowledged"
            plan = Plan(f"{words} {plain(branch)} of user {plain(row['user'])}, messages: {counts}", row)
            if not is_wanted(plan, manner):
                return
        made(client.change("POST", "transactions", branch, verb, body={}), f"{done} {plain(branch)}", manner)

    run.__doc__ = help_text
    return operator(verb, f"pybroker {verb} XID:[1,globalId=5f,branchId=01]")(
        _with(click.argument("branch"), _careful)(run)
    )


commit = _declare_outcome(
    "commit",
    "commit",
    "committed",
    """Commit an XA transaction in doubt, which `pybroker transactions` shows.

    Its transaction manager decides the same later, or finds that it was decided otherwise: ask it first.
    """,
)
rollback = _declare_outcome(
    "rollback",
    "roll back",
    "rolled back",
    """Roll an XA transaction in doubt back, which `pybroker transactions` shows.

    Its transaction manager decides the same later, or finds that it was decided otherwise: ask it first.
    """,
)


# ---------------------------------------------------------------- the pair


@operator("stepdown", "pybroker stepdown --url http://a:8161,http://b:8161 --yes")
@click.option("--force", "is_forced", is_flag=True, help="Even if no standby is ready to take over.")
@_careful
def stepdown(access: OperatorAccess, is_forced: bool, **given: Any) -> None:
    """Have the master give its lock to a standby, for maintenance. Its clients fail over. Needs the role admin."""
    from pybroker.broker.app.operator_changes import Plan, is_wanted, made

    client, manner = access.client(), _manner(given)
    client.get("overview")  # of the master, which is waited for
    master = client.master().url
    row = {"master": master, "force": is_forced}
    if is_wanted(Plan(f"have {master} step down", row), manner):
        answer = client.change("POST", "stepdown", body={"force": True} if is_forced else {})
        made(answer, f"{master} steps down: a standby becomes the master", manner)


@operator("switchover", "pybroker switchover --to b --url http://a:8161,http://b:8161 --yes")
@click.option("--to", metavar="MEMBER", default="", help="The member that takes over; any in sync by default.")
@_careful
def switchover(access: OperatorAccess, to: str, **given: Any) -> None:
    """Have the master of a replicated cluster hand over, once the next one has everything. Needs the role admin."""
    from pybroker.broker.app.operator_changes import Plan, is_wanted, made

    client, manner = access.client(), _manner(given)
    client.get("overview")  # of the master, which is waited for
    master, chosen = client.master().url, to or "another member"
    if is_wanted(Plan(f"have {master} hand over to {chosen}", {"master": master, "to": to}), manner):
        answer = client.change("POST", "stepdown", body={"to": to} if to else {})
        made(answer, f"{master} hands over: {chosen} becomes the master", manner)


COMMANDS: Final = (
    purge,
    remove,
    move,
    copy,
    retry,
    pause,
    resume,
    create,
    delete,
    cut_off,
    unsubscribe,
    unschedule,
    commit,
    rollback,
    stepdown,
    switchover,
)
"""The commands, in the order of the help."""
