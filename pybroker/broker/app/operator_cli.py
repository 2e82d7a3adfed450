"""The commands for operators that look: lists, messages and `top`, over the REST API of management.

They are carried out by modules that are imported when one runs.
"""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from pybroker.broker.app.operator_access import (
    EXIT_CODES,
    OperatorAccess,
    OperatorCommand,
    StoppedStore,
    report,
    with_access,
)
from pybroker.broker.app.operator_names import queue_name
from pybroker.broker.domain.errors import ConfigError
from pybroker.units import parse_duration

if TYPE_CHECKING:
    from pybroker.broker.app.operator_lists import ListAnswer, ListRequest
    from pybroker.broker.app.operator_messages import Browsed
    from pybroker.management_client.client import ManagementClient

_MESSAGES: Final = 50

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the names of the API.")
_sort = click.option("--sort", default="", metavar="COLUMN", help="Sort by a column of --json; -COLUMN: largest first.")
_name = click.option("--name", "part", default="", metavar="PART", help="Only those with this in their name.")
_limit = click.option("--limit", type=click.IntRange(min=1), help="So many rows at most.  [default: all]")
_filter = click.option(
    "--filter", "wanted", type=click.Choice(["empty", "nonempty", "noConsumer"]), help="Only such ones."
)
_layout = click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "dstat", "bstat"]),
    default="table",
    show_default=True,
    help="A table, or the text of ActiveMQ's command of that name, for scripts that read it.",
)


def operator(name: str, *examples: str) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a command, with examples and the exit codes at the end of its help."""
    epilog = "\n".join(("", "\b", "Examples:" if len(examples) > 1 else "Example:", *[f"  {e}" for e in examples]))

    def declare(function: Callable[..., None]) -> click.Command:
        return click.command(name, cls=OperatorCommand, epilog=f"{epilog}\n{EXIT_CODES}")(with_access(function))

    return declare


# ---------------------------------------------------------------- queues and topics


@operator(
    "queues",
    "pybroker queues --filter nonempty --sort -size --limit 20",
    "pybroker queues --url http://a:8161,http://b:8161 --json",
    "pybroker queues --format dstat                        as `activemq dstat queues`",
    "pybroker queues --store /mnt/shared                   from the journal if no member runs",
)
@_name
@_filter
@_sort
@_limit
@_layout
@_json
def queues(
    access: OperatorAccess, part: str, wanted: str | None, sort: str, limit: int | None, layout: str, as_json: bool
) -> None:
    """List the queues.

    With --store, and without a member that runs, the queues and their sizes are read from the journal.
    """
    from pybroker.broker.app.operator_lists import ListRequest, fetch_list

    asked = ListRequest(sort, part, wanted, limit)
    found = access.client_or_store()
    if isinstance(found, StoppedStore):
        _queues_of_journal(found, asked, layout, as_json=as_json)
        return
    _show("queues", fetch_list(found, "queues", asked), "json" if as_json else layout)


@operator("topics", "pybroker topics --sort -enqueue_rate --limit 20")
@_name
@_filter
@_sort
@_limit
@_layout
@_json
def topics(
    access: OperatorAccess, part: str, wanted: str | None, sort: str, limit: int | None, layout: str, as_json: bool
) -> None:
    """List the topics, without advisory topics."""
    from pybroker.broker.app.operator_lists import ListRequest, fetch_list

    answer = fetch_list(access.client(), "topics", ListRequest(sort, part, wanted, limit))
    _show("topics", answer, "json" if as_json else layout)


def _queues_of_journal(stopped: StoppedStore, asked: "ListRequest", layout: str, *, as_json: bool) -> None:
    from pybroker.broker.app.operator_journal import journal_of, queues_in
    from pybroker.broker.app.operator_text import TableColumn, number, plain, table

    if layout != "table":
        raise ConfigError("a journal has no counts of producers and consumers", setting="--format")
    _report_journal(stopped)
    with journal_of(stopped.store) as journal:
        answer = queues_in(journal, asked)
        if as_json:
            _show("queues", answer, "json")
        else:
            columns = (TableColumn("NAME", "name", plain), TableColumn("SIZE", "size", number, True))
            _put(table(columns, answer.items))
            _report_rest(answer)
        _exit_if_damaged(stopped, is_damaged=journal.is_damaged)


def _report_journal(stopped: StoppedStore) -> None:
    report(f"no member of {stopped.store} runs{stopped.locked_by}: this is read from its journal, which stays as it is")


def _exit_if_damaged(stopped: StoppedStore, *, is_damaged: bool) -> None:
    if is_damaged:
        sys.stdout.flush()
        report(f"the journal is damaged, and there may be more: see `pybroker journal check {stopped.store}`")
        sys.exit(1)


def _show(kind: str, answer: "ListAnswer", layout: str) -> None:
    from pybroker.broker.app.operator_lists import shown

    _put(shown(kind, answer, layout))
    if layout == "table":
        _report_rest(answer)


def _report_rest(answer: "ListAnswer") -> None:
    if answer.count > len(answer.items):
        sys.stdout.flush()
        report(f"{len(answer.items):,} of {answer.count:,} are shown: --limit shows more")


def _put(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(line + "\n")


# ---------------------------------------------------------------- other lists


def _declare_list(kind: str, help_text: str, *examples: str) -> click.Command:
    """Declare the command of a list."""

    def run(access: OperatorAccess, part: str, sort: str, limit: int | None, as_json: bool) -> None:
        from pybroker.broker.app.operator_lists import ListRequest, fetch_list

        answer = fetch_list(access.client(), kind, ListRequest(sort, part, None, limit))
        _show(kind, answer, "json" if as_json else "table")

    run.__doc__ = help_text
    declared: Callable[..., None] = run
    for option in reversed((_name, _sort, _limit, _json)):
        declared = option(declared)
    return operator(kind, *examples)(declared)


subscriptions = _declare_list(
    "subscriptions",
    """List the durable subscriptions, with or without a consumer.

    --name looks into the key, which is CLIENT_ID:NAME.
    """,
    "pybroker subscriptions --sort -size",
)
connections = _declare_list(
    "connections",
    """List the open connections.

    --name looks into the client id.
    """,
    "pybroker connections --name app1",
)
consumers = _declare_list(
    "consumers",
    """List the consumers of all connections.

    --name looks into the destination.
    """,
    "pybroker consumers --name ORDERS --sort -in_flight",
)
jobs = _declare_list(
    "jobs",
    """List the scheduled messages, the earliest first.

    --name looks into the destination.
    """,
    "pybroker jobs --limit 20",
)
transactions = _declare_list(
    "transactions", "List the XA transactions in doubt: prepared, and without an outcome.", "pybroker transactions"
)


# ---------------------------------------------------------------- messages


@operator(
    "messages",
    "pybroker messages ActiveMQ.DLQ --limit 20",
    "pybroker messages ORDERS --selector \"region = 'eu'\" --body full --json",
    "pybroker messages ORDERS --id ID:host-41233-1795-1:1:1:1:7",
)
@click.argument("queue")
@click.option("--subscription", "is_subscription", is_flag=True, help="QUEUE is the key of a durable subscription.")
@click.option("--selector", help="Only messages that match this SQL-92 condition.")
@click.option("--id", "message_id", help="Only this message, whole.")
@click.option("--after", type=click.IntRange(min=0), metavar="CURSOR", help="Begin behind the messages before.")
@click.option("--limit", type=click.IntRange(min=1), default=_MESSAGES, show_default=True, help="So many at most.")
@click.option("--body", type=click.Choice(["none", "preview", "full"]), default="preview", show_default=True)
@_json
def messages(
    access: OperatorAccess,
    queue: str,
    is_subscription: bool,
    selector: str | None,
    message_id: str | None,
    after: int | None,
    limit: int,
    body: str,
    as_json: bool,
) -> None:
    """Look at the messages of a queue, also at those that consumers have: state, age, headers and body.

    `pybroker browse` shows messages as a client does, in the form that `pybroker produce` sends again. With --store,
    and without a member that runs, messages are read from the journal.
    """
    from pybroker.broker.app.operator_journal import journal_of, messages_in
    from pybroker.broker.app.operator_messages import MessagesRequest, fetch_messages

    if message_id is not None and (is_subscription or selector is not None or after is not None):
        raise click.UsageError("--id names one message of a queue: leave out --subscription, --selector and --after.")
    if not is_subscription:
        queue = queue_name(queue)
    found = access.client_or_store()
    if message_id is not None:
        _show_message(found, queue, message_id, as_json=as_json)
        return
    asked = MessagesRequest(("subscriptions" if is_subscription else "queues", queue), selector, after, limit, body)
    if not isinstance(found, StoppedStore):
        _show_messages(fetch_messages(found, asked), as_json=as_json)
        return
    _report_journal(found)
    with journal_of(found.store) as journal:
        _show_messages(messages_in(journal, asked), as_json=as_json)
        _exit_if_damaged(found, is_damaged=journal.is_damaged)


def _show_messages(browsed: "Browsed", *, as_json: bool) -> None:
    import json

    from pybroker.broker.app.operator_lists import now_ms
    from pybroker.broker.app.operator_messages import described

    _put([json.dumps(browsed.as_json())] if as_json else described(browsed.messages, now_ms()))
    if browsed.cursor is not None and not as_json:
        sys.stdout.flush()
        report(f"there may be more: --after {browsed.cursor}, or a larger --limit")


def _show_message(found: "ManagementClient | StoppedStore", queue: str, message_id: str, *, as_json: bool) -> None:
    import json

    from pybroker.broker.app.operator_journal import journal_of, message_in
    from pybroker.broker.app.operator_messages import described_whole
    from pybroker.management_client.errors import RequestRefused

    if isinstance(found, StoppedStore):
        _report_journal(found)
        with journal_of(found.store) as journal:
            message = message_in(journal, queue, message_id)
        if message is None:
            raise RequestRefused(404, f"there is no message {message_id!r} in queue {queue!r}")
    else:
        message = found.get("queues", queue, "messages", message_id)
    _put([json.dumps(message)] if as_json else described_whole(message))


# ---------------------------------------------------------------- top


def _interval(_: click.Context, option: click.Parameter, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigError(str(error), setting=option.opts[0]) from error
    return max(0.5, seconds)


@operator("top", "pybroker top --url http://a:8161,http://b:8161", "pybroker top --sort -size --interval 5s")
@_name
@click.option(
    "--sort",
    default="-enqueue_rate",
    show_default=True,
    metavar="COLUMN",
    help="Sort by a column of `pybroker queues --json`; -COLUMN: largest first.",
)
@click.option(
    "--interval",
    callback=_interval,
    default="2s",
    show_default=True,
    metavar="DURATION",
    help="Time between two looks.",
)
@click.option("--once", is_flag=True, help="Print one screen and end, as without a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print one look as a JSON object, and end.")
def top(access: OperatorAccess, part: str, sort: str, interval: float, once: bool, as_json: bool) -> None:
    """Watch the pair and its queues on the terminal.

    Keys: q ends it; up, down, PgUp and PgDn move along the queues; left and right choose the column to sort by, and r
    reverses it. Colours are off if the environment has NO_COLOR.
    """
    from pybroker.broker.app.operator_top import print_json, run

    if as_json:
        print_json(access.client(is_quiet=True), name=part, sort=sort)
        return
    run(access.client(is_quiet=True), name=part, sort=sort, interval=interval, once=once)


COMMANDS: Final = (queues, topics, subscriptions, connections, consumers, messages, jobs, transactions, top)
"""The commands, in the order of the help."""
