"""A batch of changes as SQL: one message to the server, which is one transaction, with the fence (see there) in it.

Every statement is idempotent: a batch that may have taken effect already can be repeated, once it is certain that
nothing of the first time is still under way. Only a message's row is never written over, so that no other's is:
`is_done` looks up before if a batch's rows are there.

Several messages, or large ones, are copied, which takes the server half the time that an `INSERT` takes:

```text
a few        fence; statements
several      COPY; fence; statements              the rows' data follows
very many    BEGIN; COPY | COPY | … | COPY; fence; statements; COMMIT
```

The server waits for a copy's data as long as the client's machine answers, whatever `statement_timeout` is. So the
copies come first: until all data is there the transaction has no lock on the fence, and a take-over does not wait for a
master that is frozen in between. When it thaws, the fence is behind what it copied and lets nothing of it commit. All
that such a master keeps from others is the ids of its rows, which no later master uses (see `store`).
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.errors import LockNotHeld
from pybroker.store.jdbc.changes import Changes, SubscriptionKey
from pybroker.store.jdbc.postgres import (
    STATEMENT_SECONDS,
    Copy,
    DatabaseConnection,
    quoted_bytes,
    server_timeout,
    statement_seconds,
)
from pybroker.store.jdbc.xid import SENT_PREFIX

TEXT_BYTES_MAX = 32 << 20
"""One message to the server has at most about that much; a batch of more is sent in several."""

COPY_ROWS_MIN, COPY_BYTES_MIN = 4, 128 << 10
"""So many messages in a batch, or so many bytes, are copied. For fewer, to ask for the data takes what a copy saves."""

_SUBSCRIPTION = "(%s,%s,%s)"
_SUBSCRIPTION_COLUMNS = ("container", "client_id", "sub_name")
_TERMS = ("pybroker_no_local", "pybroker_owners")
"""The tables with terms of durable subscriptions for which ActiveMQ's has no columns."""

_COLUMNS = "activemq_msgs (id, container, msgid_prod, msgid_seq, expiration, msg, priority, xid)"
_INSERT = f"INSERT INTO {_COLUMNS} VALUES "  # noqa: S608
_COPY = f"COPY {_COLUMNS} FROM STDIN (FORMAT binary)".encode()
_COPY_BEGIN, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_ID = struct.Struct(">hiq")
_NUMBERS = struct.Struct(">iqiqi")
_PRIORITY = struct.Struct(">iq")
_pack_size = INT.pack
_FIELD_COUNT, _BIGINT_SIZE, _NULL = 8, 8, _pack_size(-1)


def statements(connection: DatabaseConnection, check: bytes, changes: Changes) -> list[bytes | Copy]:
    """Return the messages that a batch is: one as a rule, with the fence's `check` before all but copies.

    Raises:
        StoreUnavailable: a value cannot be written in SQL.
    """
    writer = StatementWriter(connection)
    writer.allow(None if changes.is_long else changes.byte_count)
    with connection.translated():
        if is_copied := len(changes.inserted) >= COPY_ROWS_MIN or changes.byte_count >= COPY_BYTES_MIN:
            _copy(writer, changes)
        writer.add(check)
        if changes.cleared or changes.dropped:
            _clear(writer, changes)
        if changes.deleted or changes.apart_deleted:
            _delete(writer, changes)
        if not is_copied:
            writer.texts(_INSERT, _messages(writer, changes))
        if changes.renumbered or changes.marked:
            _change(writer, changes)
        if changes.subscriptions or changes.apart:
            _write_subscriptions(writer, changes)
        _write_notes(writer, changes)
    return writer.messages()


def is_done(connection: DatabaseConnection, changes: Changes) -> bool:
    """Return True if a batch has taken effect, or need not be repeated.

    Call it behind a fence, when nothing of that batch is under way.

    Raises:
        StoreUnavailable: the database fails.
        LockNotHeld: another broker's messages are where this one's belong.
    """
    expected = {
        sequence: (row.container, row.producer_id, row.producer_sequence) for sequence, row in changes.inserted.items()
    }
    wanted = [*changes.inserted, *changes.renumbered]
    sql = "SELECT id, container, msgid_prod, msgid_seq FROM activemq_msgs WHERE id = ANY(%s)"
    rows = connection.rows(sql, (wanted,)) if wanted else []
    for sequence, *found in rows:
        if tuple(found) != expected.get(sequence, tuple(found)):
            raise LockNotHeld(f"{connection.name}: another broker has written a message under the id {sequence}")
    if rows and len(rows) != len(wanted):
        raise LockNotHeld(f"{connection.name}: of the last transaction a part is there: another broker was at it")
    return bool(rows)


class StatementWriter:
    """Gathers statements, one of which has to be the fence's check.

    Raises:
        StoreUnavailable: the server would read strings otherwise than they are written.
    """

    def __init__(self, connection: DatabaseConnection) -> None:
        connection.require_reading()
        self._connection = connection
        self._done: list[tuple[list[bytes], bytes | None]] = []
        self._open: list[bytes] = []
        self._data: bytes | None = None
        self._size = 0

    def allow(self, byte_count: int | None) -> None:
        """Let the server take as long as a batch of that size may; None: as long as it takes."""
        seconds = statement_seconds(byte_count or 0)
        if byte_count is None or seconds > STATEMENT_SECONDS:
            self.add(b"SET LOCAL statement_timeout = %d" % (0 if byte_count is None else server_timeout(seconds)))

    def add(self, sql: bytes) -> None:
        """Add a statement."""
        if self._size > TEXT_BYTES_MAX:
            self._end_message()
        self._open.append(sql)
        self._size += len(sql)

    def copy(self, sql: bytes, data: bytes) -> None:
        """Add a statement that copies data, one to a message."""
        if self._data is not None:
            self._end_message()
        self._open.append(sql)
        self._data = data

    def _end_message(self) -> None:
        self._done.append((self._open, self._data))
        self._open, self._data, self._size = [], None, 0

    def rows(self, before: str, template: str, rows: Iterable[Sequence[Any]], after: str = "") -> None:
        """Add statements about rows: one, unless it would be very long."""
        literal = self._connection.literal
        self.texts(before, (literal(template, row) for row in rows), after)

    def delete(self, table: str, columns: Sequence[str], keys: Iterable[Sequence[Any]]) -> None:
        """Add statements that delete the rows with these values in these columns.

        A join with a list of values, since PostgreSQL's parser nests `(a, b) IN (…)` one level deeper for each row, and
        refuses some 10,000 of them: "stack depth limit exceeded".
        """
        names = ", ".join(columns)
        is_same = " AND ".join(f"t.{name} = v.{name}" for name in columns)
        template = f"({','.join(['%s'] * len(columns))})"
        before = f"DELETE FROM {table} t USING (VALUES "  # noqa: S608
        self.rows(before, template, keys, f") AS v ({names}) WHERE {is_same}")

    def quote(self, text: str | None) -> bytes:
        """Return a text as SQL."""
        return self._connection.literal("%s", (text,))

    def texts(self, before: str, texts: Iterable[bytes], after: str = "") -> None:
        """Add statements about rows that are SQL already."""
        chunk: list[bytes] = []
        size = 0
        for text in texts:
            chunk.append(text)
            size += len(text)
            if size > TEXT_BYTES_MAX:
                self._add_rows(before, chunk, after)
                chunk, size = [], 0
        if chunk:
            self._add_rows(before, chunk, after)

    def _add_rows(self, before: str, chunk: list[bytes], after: str) -> None:
        self.add(b"%b%b%b" % (before.encode(), b",".join(chunk), after.encode()))

    def messages(self) -> list[bytes | Copy]:
        """Return what to send."""
        if self._done:
            self._done[0][0].insert(0, b"BEGIN")
            self._open.append(b"COMMIT")
        texts = [(b";".join(texts), data) for texts, data in (*self._done, (self._open, self._data))]
        return [text if data is None else Copy(text, data) for text, data in texts]


def _clear(writer: StatementWriter, changes: Changes) -> None:
    """Delete destinations and subscriptions."""
    writer.rows(
        "DELETE FROM activemq_msgs m USING (VALUES ",
        "(%s,%s)",
        changes.cleared.items(),
        ") AS v (container, through) WHERE m.container = v.container AND m.id <= v.through"
        f" AND (m.xid IS NULL OR m.xid NOT LIKE '{SENT_PREFIX}%')",
    )
    for table in ("activemq_acks", "pybroker_acked", *_TERMS):
        writer.delete(table, ("container",), ((container,) for container in changes.cleared))
    for table in ("activemq_acks", "pybroker_acked", *_TERMS):
        _delete_subscriptions(writer, table, changes.dropped)


def _delete_subscriptions(writer: StatementWriter, table: str, keys: Iterable[SubscriptionKey]) -> None:
    writer.delete(table, _SUBSCRIPTION_COLUMNS, keys)


def _delete(writer: StatementWriter, changes: Changes) -> None:
    """Delete messages, and acknowledgements ahead of cursors."""
    if changes.deleted:
        ids = b",".join([b"%d" % sequence for sequence in changes.deleted])
        writer.add(b"DELETE FROM activemq_msgs WHERE id = ANY('{%b}'::bigint[])" % ids)
    apart = ((*key.subscription, key.sequence, key.xid) for key in changes.apart_deleted)
    writer.delete("pybroker_acked", (*_SUBSCRIPTION_COLUMNS, "id", "xid"), apart)


def _change(writer: StatementWriter, changes: Changes) -> None:
    """Change messages that transactions hold."""
    writer.rows(
        "UPDATE activemq_msgs m SET id = v.new, xid = NULL FROM (VALUES ",
        "(%s,%s)",
        ((new, old) for new, (old, _) in changes.renumbered.items()),
        ") AS v (new, old) WHERE m.id = v.old",
    )
    writer.rows(
        "UPDATE activemq_msgs m SET xid = v.xid FROM (VALUES ",
        "(%s,%s::varchar)",
        changes.marked.items(),
        ") AS v (id, xid) WHERE m.id = v.id",
    )


def _messages(writer: StatementWriter, changes: Changes) -> Iterator[bytes]:
    """Yield messages' rows: what the driver would write, at a fifth of the time."""
    quoted: dict[str | None, bytes] = {}
    for sequence, (container, producer, number, expiration, data, priority, xid) in changes.inserted.items():
        for text in (container, producer, xid):
            if text not in quoted:
                quoted[text] = writer.quote(text)
        yield b"(%d,%b,%b,%d,%d,%b,%d,%b)" % (
            sequence,
            quoted[container],
            quoted[producer],
            number,
            expiration,
            quoted_bytes(data),
            priority,
            quoted[xid],
        )


def _copy(writer: StatementWriter, changes: Changes) -> None:
    """Copy messages' rows: see `Copy`."""
    fields: dict[str | None, bytes] = {None: _NULL}
    chunk: list[bytes] = [_COPY_BEGIN]
    size = 0
    for sequence, (container, producer, number, expiration, data, priority, xid) in changes.inserted.items():
        for text in (container, producer, xid):
            if text is not None and text not in fields:
                encoded = text.encode()
                fields[text] = _pack_size(len(encoded)) + encoded
        chunk += (
            _ID.pack(_FIELD_COUNT, _BIGINT_SIZE, sequence),
            fields[container],
            fields[producer],
            _NUMBERS.pack(_BIGINT_SIZE, number, _BIGINT_SIZE, expiration, len(data)),
            data,
            _PRIORITY.pack(_BIGINT_SIZE, priority),
            fields[xid],
        )
        size += len(data)
        if size > TEXT_BYTES_MAX:
            writer.copy(_COPY, b"".join([*chunk, _COPY_END]))
            chunk, size = [_COPY_BEGIN], 0
    if len(chunk) > 1:
        writer.copy(_COPY, b"".join([*chunk, _COPY_END]))


def _write_subscriptions(writer: StatementWriter, changes: Changes) -> None:
    """Write durable subscriptions: whole, or only their positions."""
    whole = {key: rows for key, rows in changes.subscriptions.items() if rows.description is not None}
    for table in ("activemq_acks", *_TERMS):
        _delete_subscriptions(writer, table, whole)
    writer.rows(
        "INSERT INTO activemq_acks"
        " (container, client_id, sub_name, sub_dest, selector, last_acked_id, priority, xid) VALUES ",
        "(%s,%s,%s,%s,%s,%s,%s,%s)",
        (
            (*key, *rows.description[:2], *lane)
            for key, rows in whole.items()
            if rows.description is not None
            for lane in rows.lanes
        ),
    )
    writer.rows(
        "INSERT INTO pybroker_no_local VALUES ",
        _SUBSCRIPTION,
        (key for key, rows in whole.items() if rows.description is not None and rows.description[2]),
    )
    writer.rows(
        "INSERT INTO pybroker_owners VALUES ",
        "(%s,%s,%s,%s)",
        (
            (*key, rows.description[3])
            for key, rows in whole.items()
            if rows.description is not None and rows.description[3] is not None
        ),
    )
    writer.rows(
        "UPDATE activemq_acks a SET last_acked_id = v.id, xid = v.xid FROM (VALUES ",
        "(%s,%s,%s,%s,%s,%s::varchar)",
        ((*key, *lane) for key, rows in changes.subscriptions.items() if key not in whole for lane in rows.lanes),
        ") AS v (container, client_id, sub_name, id, priority, xid) WHERE a.container = v.container"
        " AND a.client_id = v.client_id AND a.sub_name = v.sub_name AND a.priority = v.priority",
    )
    writer.rows(
        "INSERT INTO pybroker_acked (container, client_id, sub_name, id, xid, message_id) VALUES ",
        "(%s,%s,%s,%s,%s,%s)",
        ((*key.subscription, key.sequence, key.xid, message_id) for key, message_id in changes.apart.items()),
        " ON CONFLICT DO NOTHING",
    )


def _write_notes(writer: StatementWriter, changes: Changes) -> None:
    """Write what else there is to know."""
    if changes.declared:
        # ActiveMQ's row for a virtual topic's consumer queue: a subscription that is its own client.
        _delete_subscriptions(writer, "activemq_acks", (SubscriptionKey(each, each, each) for each in changes.declared))
        writer.rows(
            "INSERT INTO activemq_acks (container, sub_dest, client_id, sub_name, last_acked_id, priority) VALUES ",
            "(%s,%s,%s,%s,0,11)",
            ((each,) * 4 for each, is_declared in changes.declared.items() if is_declared),
        )
    _write_producers(writer, changes)
    if changes.prepared:
        writer.delete("pybroker_prepared", ("xid",), ((xid,) for xid in changes.prepared))
        writer.rows(
            "INSERT INTO pybroker_prepared VALUES ",
            "(%s,%s,%s)",
            ((xid, *row) for xid, row in changes.prepared.items() if row is not None),
        )
    if changes.delivered is not None:
        writer.rows(
            "UPDATE pybroker_epoch SET stopped_count = (SELECT count(*) FROM activemq_msgs),"
            " stopped_id = (SELECT coalesce(max(id), 0) FROM activemq_msgs), delivered = ",
            "%s",
            [(changes.delivered,)],
        )


def _write_producers(writer: StatementWriter, changes: Changes) -> None:
    """Add to the log of producers' sequence numbers, or begin a new log: a row for all of a batch.

    No row per producer that is changed again and again: see `fence` for what many versions of a row cost.
    """
    if changes.starts_producer_log:
        writer.add(b"DELETE FROM pybroker_producers WHERE id < %d" % changes.producers_id)
    if changes.producers:
        row = (changes.producers_id, json.dumps(changes.producers))
        writer.rows("INSERT INTO pybroker_producers VALUES ", "(%s,%s)", [row], " ON CONFLICT DO NOTHING")
