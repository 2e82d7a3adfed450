"""A batch of changes as SQL: one message to the server, which is one transaction, with the fence in front.

The fence: every transaction reads the epoch with a lock that only a take-over does not share, and fails unless it is
its own. Whoever takes over raises the epoch, which waits for transactions under way and makes all later ones fail. So a
master that was frozen, or cut off, cannot write once there is another; and it need not find that out by any other way.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from pybroker.store.jdbc.changes import Changes, SubscriptionKey
from pybroker.store.jdbc.postgres import Connection
from pybroker.store.jdbc.xid import SENT_PREFIX

TEXT_BYTES_MAX = 32 << 20
"""One message to the server has at most about that much; a batch of more is sent in several."""

_FENCE = b"SELECT 1 / count(*) FROM (SELECT FROM pybroker_epoch WHERE id = 1 AND epoch = %d FOR SHARE) AS fence"
"""PostgreSQL has no other way to fail on purpose outside of a function than an arithmetic error."""
_SUBSCRIPTION = "(%s,%s,%s)"


def statements(connection: Connection, changes: Changes, epoch: int) -> list[bytes]:
    """Return the messages that a batch is: one as a rule. The first begins with the fence.

    Raises:
        StoreUnavailable: a value cannot be written in SQL.
    """
    writer = StatementWriter(connection, epoch)
    if changes.is_long:
        writer.add(b"SET LOCAL statement_timeout = 0")
    with connection.translated():
        _clear(writer, changes)
        _delete(writer, changes)
        _insert(writer, changes)
        _write_subscriptions(writer, changes)
        _write_notes(writer, changes)
    return writer.messages()


class StatementWriter:
    """Gathers statements, behind the fence."""

    def __init__(self, connection: Connection, epoch: int) -> None:
        self._connection = connection
        self._done: list[list[bytes]] = []
        self._open = [_FENCE % epoch]
        self._size = 0

    def add(self, sql: bytes) -> None:
        """Add a statement."""
        if self._size > TEXT_BYTES_MAX:
            self._done.append(self._open)
            self._open, self._size = [], 0
        self._open.append(sql)
        self._size += len(sql)

    def rows(self, before: str, template: str, rows: Iterable[Sequence[Any]], after: str = "") -> None:
        """Add statements about rows: one, unless it would be very long."""
        chunk: list[bytes] = []
        size = 0
        literal = self._connection.literal
        for row in rows:
            text = literal(template, row)
            chunk.append(text)
            size += len(text)
            if size > TEXT_BYTES_MAX:
                self._add_rows(before, chunk, after)
                chunk, size = [], 0
        if chunk:
            self._add_rows(before, chunk, after)

    def _add_rows(self, before: str, chunk: list[bytes], after: str) -> None:
        self.add(b"%b%b%b" % (before.encode(), b",".join(chunk), after.encode()))

    def messages(self) -> list[bytes]:
        """Return what to send."""
        texts = [b";".join(each) for each in (*self._done, self._open)]
        if len(texts) > 1:
            texts[0] = b"BEGIN;" + texts[0]
            texts[-1] += b";COMMIT"
        return texts


def _clear(writer: StatementWriter, changes: Changes) -> None:
    """Delete destinations and subscriptions."""
    writer.rows(
        "DELETE FROM activemq_msgs m USING (VALUES ",
        "(%s,%s)",
        changes.cleared.items(),
        ") AS v (container, through) WHERE m.container = v.container AND m.id <= v.through"
        f" AND (m.xid IS NULL OR m.xid NOT LIKE '{SENT_PREFIX}%')",
    )
    for table in ("activemq_acks", "pybroker_acked", "pybroker_no_local"):
        containers = ((container,) for container in changes.cleared)
        writer.rows(f"DELETE FROM {table} WHERE container IN (", "%s", containers, ")")  # noqa: S608
    for table in ("activemq_acks", "pybroker_acked", "pybroker_no_local"):
        _delete_subscriptions(writer, table, changes.dropped)


def _delete_subscriptions(writer: StatementWriter, table: str, keys: Iterable[SubscriptionKey]) -> None:
    before = f"DELETE FROM {table} WHERE (container, client_id, sub_name) IN ("  # noqa: S608
    writer.rows(before, _SUBSCRIPTION, keys, ")")


def _delete(writer: StatementWriter, changes: Changes) -> None:
    """Delete messages, and acknowledgements beyond cursors."""
    if changes.deleted:
        ids = b",".join([b"%d" % sequence for sequence in changes.deleted])
        writer.add(b"DELETE FROM activemq_msgs WHERE id = ANY('{%b}'::bigint[])" % ids)
    writer.rows(
        "DELETE FROM pybroker_acked WHERE (container, client_id, sub_name, id, xid) IN (",
        "(%s,%s,%s,%s,%s)",
        ((*key.subscription, key.sequence, key.xid) for key in changes.apart_deleted),
        ")",
    )


def _insert(writer: StatementWriter, changes: Changes) -> None:
    """Insert messages, and change those that transactions hold."""
    writer.rows(
        "INSERT INTO activemq_msgs (id, container, msgid_prod, msgid_seq, expiration, msg, priority, xid) VALUES ",
        "(%s,%s,%s,%s,%s,%s,%s,%s)",
        ((sequence, *row) for sequence, row in changes.inserted.items()),
    )
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


def _write_subscriptions(writer: StatementWriter, changes: Changes) -> None:
    """Write durable subscriptions: anew, or how far they are."""
    anew = {key: rows for key, rows in changes.subscriptions.items() if rows.description is not None}
    for table in ("activemq_acks", "pybroker_no_local"):
        _delete_subscriptions(writer, table, anew)
    writer.rows(
        "INSERT INTO activemq_acks"
        " (container, client_id, sub_name, sub_dest, selector, last_acked_id, priority, xid) VALUES ",
        "(%s,%s,%s,%s,%s,%s,%s,%s)",
        (
            (*key, *rows.description[:2], *lane)
            for key, rows in anew.items()
            if rows.description is not None
            for lane in rows.lanes
        ),
    )
    writer.rows(
        "INSERT INTO pybroker_no_local VALUES ",
        _SUBSCRIPTION,
        (key for key, rows in anew.items() if rows.description is not None and rows.description[2]),
    )
    writer.rows(
        "UPDATE activemq_acks a SET last_acked_id = v.id, xid = v.xid FROM (VALUES ",
        "(%s,%s,%s,%s,%s,%s::varchar)",
        ((*key, *lane) for key, rows in changes.subscriptions.items() if key not in anew for lane in rows.lanes),
        ") AS v (container, client_id, sub_name, id, priority, xid) WHERE a.container = v.container"
        " AND a.client_id = v.client_id AND a.sub_name = v.sub_name AND a.priority = v.priority",
    )
    writer.rows(
        "INSERT INTO pybroker_acked (container, client_id, sub_name, id, xid, message_id) VALUES ",
        "(%s,%s,%s,%s,%s,%s)",
        ((*key.subscription, key.sequence, key.xid, message_id) for key, message_id in changes.apart.items()),
    )


def _write_notes(writer: StatementWriter, changes: Changes) -> None:
    """Write what else there is to know."""
    # A kept queue is what ActiveMQ makes of a virtual topic's consumer queue: a subscription that is its own client.
    _delete_subscriptions(writer, "activemq_acks", (SubscriptionKey(each, each, each) for each in changes.kept))
    writer.rows(
        "INSERT INTO activemq_acks (container, sub_dest, client_id, sub_name, last_acked_id, priority) VALUES ",
        "(%s,%s,%s,%s,0,11)",
        ((each,) * 4 for each, is_kept in changes.kept.items() if is_kept),
    )
    writer.rows(
        "INSERT INTO pybroker_producers AS p VALUES ",
        "(%s,%s)",
        sorted(changes.producers.items()),
        " ON CONFLICT (producer_id) DO UPDATE SET sequence = greatest(p.sequence, excluded.sequence)",
    )
    if changes.remembered is not None:
        writer.rows(
            "DELETE FROM pybroker_producers WHERE producer_id <> ALL (", "%s::varchar[]", [(changes.remembered,)], ")"
        )
    over = ((xid,) for xid in changes.prepared)
    writer.rows("DELETE FROM pybroker_prepared WHERE xid IN (", "%s", over, ")")
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
