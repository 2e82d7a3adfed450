"""Queues and messages of a store without a running member, read from its journal. Changes nothing and takes no lock.

They are what a new master would find: without non-persistent messages, and without counts since a start. Scheduled
messages are not in queues yet.
"""

import base64
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from pybroker.broker.app.operator_lists import ListAnswer, ListRequest
from pybroker.broker.app.operator_messages import Browsed, MessagesRequest
from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from pybroker.store.journal.tools.export import Export, LiveMessage


@contextmanager
def journal_of(store: str) -> "Generator[Export]":
    """Read the journal of a store; it stays open in the context.

    Raises:
        StoreUnavailable: there is none, or it cannot be read.
        JournalCorrupt: a newer version wrote it.
    """
    from pybroker.broker.app.layout import found_layout
    from pybroker.store.journal.tools.export import Export
    from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot

    where = found_layout(store).journal
    if not where.is_dir():
        hint = "name the data directory of a broker"
        raise StoreUnavailable(f"{store}: there is no KahaDB journal", path=store, hint=hint)
    with JournalSnapshot(where) as snapshot:
        yield Export(snapshot)


def queues_in(journal: "Export", asked: ListRequest) -> ListAnswer:
    """Return the queues, each with `kind`, `name` and `size`.

    Raises:
        ConfigError: a journal does not have what is asked for.
    """
    if asked.filter == "noConsumer":
        raise ConfigError("a journal knows no consumers", setting="--filter", hint="choose empty or nonempty")
    if asked.column not in ("", "name", "size"):
        raise ConfigError(f"a journal has no column {asked.column!r}", setting="--sort", hint="sort by name or size")
    rows: list[dict[str, Any]] = [
        {"kind": "queue", "name": destination.name, "size": size}
        for destination, size in journal.queue_sizes()
        if asked.name.casefold() in destination.name.casefold()
        and (asked.filter is None or (size == 0) == (asked.filter == "empty"))
    ]
    rows.sort(key=lambda row: row[asked.column or "name"], reverse=asked.order == "desc")
    return ListAnswer(rows[: asked.limit], len(rows))


def messages_in(journal: "Export", asked: MessagesRequest) -> Browsed:
    """Return messages of a queue; their positions count from 1 on.

    Raises:
        ConfigError: a journal does not have what is asked for.
    """
    if asked.selector is not None:
        raise ConfigError("it needs a running member", setting="--selector", hint="leave it out, or start a member")
    where, name = asked.where
    if where != "queues":
        raise ConfigError("it needs a running member", setting="--subscription", hint="or see pybroker journal export")
    after = asked.after or 0
    found = list(islice(_numbered(journal, queue(name)), after, after + asked.limit + 1))
    rows = [_row(number, message, asked.body) for number, message in found[: asked.limit]]
    return Browsed(rows, after + asked.limit if len(found) > asked.limit else None)


def message_in(journal: "Export", name: str, message_id: str) -> dict[str, Any] | None:
    """Return one message of a queue; None if it is not there."""
    for number, message in _numbered(journal, queue(name)):
        if message.message_id == message_id:
            return _row(number, message, "full")
    return None


def _numbered(journal: "Export", destination: Destination) -> "Iterator[tuple[int, LiveMessage]]":
    return enumerate(journal.messages(destination), 1)


def _row(number: int, message: "LiveMessage", body: str) -> dict[str, Any]:
    """Return a message as the API has it."""
    from pybroker.broker.domain.node_requests import BrowsedRow
    from pybroker.management.messages import message_json

    data = base64.b64encode(message.data).decode()
    row = message_json(BrowsedRow(message.message_id, number, "waiting", 0, None, len(message.data), data), body)
    return row | ({"error": message.problem} if message.problem else {})
