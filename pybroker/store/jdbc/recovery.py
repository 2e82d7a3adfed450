"""Opening the tables: take them over, and read what they hold, ids only.

The epoch is raised before anything is read: from there on a former master can change nothing. Then all tables are read
as of one moment. A topic's messages that no durable subscription waits for are not kept: ActiveMQ deletes such ones
every few minutes at best, and no member depends on them. Our own tables are trusted only as far as ActiveMQ's bear it
out, since an ActiveMQ may have been the master in between:

* an acknowledgement ahead of the cursor counts while that very message, id and number, is still there; * one that waits
for a transaction's outcome, while the subscription's row names a transaction that is prepared here; * a transaction
that ActiveMQ's tables named and name no more, was decided by an ActiveMQ.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.recovery import PreparedAck
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.identity import agreed
from pybroker.store.jdbc.changes import ApartKey, SubscriptionKey
from pybroker.store.jdbc.contents import (
    PRIORITIES,
    PRIORITY_BITS,
    Doubt,
    JdbcContents,
    JdbcSubscription,
    Lane,
    Sent,
    pack,
)
from pybroker.store.jdbc.postgres import DatabaseConnection
from pybroker.store.jdbc.state import JdbcState
from pybroker.store.jdbc.xid import MalformedXid, Mark, MarkKind, decode, key_of

KEPT_PRIORITY = 11
"""Of the row that ActiveMQ leaves for a virtual topic's consumer queue, so that the queue is there after a restart."""

_ACKS = (
    "SELECT container, client_id, sub_name, sub_dest, selector, last_acked_id, priority, xid"
    " FROM activemq_acks ORDER BY container, client_id, sub_name, priority"
)
_MESSAGES = "SELECT id, container, msgid_prod, msgid_seq, priority, xid FROM activemq_msgs ORDER BY id"
_PRODUCERS = "SELECT id, sequences FROM pybroker_producers ORDER BY id"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """Result of a take-over.

    Attributes:
        epoch: the new one.
        delivered: the record of the last clean stop; None: there is none.
        count: how many messages there were then.
        last_id: and the highest id.
        broker_id: of the broker that the tables belong to; empty when that was not requested.
    """

    epoch: int
    delivered: str | None
    count: int
    last_id: int
    broker_id: str


def take_over(connection: DatabaseConnection, identity: BrokerIdentity | None) -> Takeover:
    """Raise the epoch, which ends the former master's right to write. Blocks while a transaction of his is under way.

    Args:
        connection: to the database.
        identity: the broker's name, and an id for tables that have none; None: leave that alone.

    Raises:
        StoreUnavailable: the database fails.
    """
    rows = connection.rows(
        "BEGIN; SET LOCAL statement_timeout = '30s';"  # the server ends the former master's transaction before
        "SELECT epoch, delivered, stopped_count, stopped_id FROM pybroker_epoch WHERE id = 1 FOR UPDATE",
        seconds=31,
    )
    if not rows:
        hint = "stop all brokers and drop the table: the next start creates it again"
        raise StoreUnavailable(f"{connection.name}: pybroker_epoch is empty", path=connection.name, hint=hint)
    broker_id = "" if identity is None else _keep_identity(connection, identity)
    connection.execute(
        "UPDATE pybroker_epoch SET epoch = epoch + 1, attempt = 0, job_attempt = 0, delivered = NULL; COMMIT"
    )
    ((epoch, delivered, count, last_id),) = rows
    return Takeover(epoch=epoch + 1, delivered=delivered, count=count, last_id=last_id, broker_id=broker_id)


def _keep_identity(connection: DatabaseConnection, given: BrokerIdentity) -> str:
    """Return the broker's id, and store it if it is new, in the transaction that raises the epoch."""
    rows = connection.rows("SELECT broker_id, broker_name FROM pybroker_broker WHERE id = 1")
    found = BrokerIdentity(*rows[0]) if rows else None
    identity = agreed(found, given, connection.name)
    if identity != found:
        connection.rows(
            "INSERT INTO pybroker_broker VALUES (1, %s, %s)"
            " ON CONFLICT (id) DO UPDATE SET broker_name = excluded.broker_name RETURNING id",
            identity,
        )
    return identity.broker_id


@dataclass(slots=True)
class _Held:
    """A subscription's acknowledgements ahead of its cursors, from our tables.

    Attributes:
        messages: message ids by sequence id.
        acknowledged: sequence ids without a transaction.
        prepared: those that wait for one.
        marks: per priority, the mark of a transaction in its row of ActiveMQ's table.
    """

    messages: dict[int, str] = field(default_factory=dict[int, str])
    acknowledged: set[int] = field(default_factory=set[int])
    prepared: dict[XATransactionId, set[int]] = field(default_factory=dict[XATransactionId, set[int]])
    marks: dict[int, Mark] = field(default_factory=dict[int, Mark])


class Loader:
    """Reads the tables into an empty state.

    Attributes:
        damages: rows that make no sense, in words. They stay as they are.
        message_count: how many messages the table has, of whatever kind.
        message_last_id: the highest id among them.
    """

    def __init__(self, connection: DatabaseConnection, state: JdbcState) -> None:
        self.damages: list[str] = []
        self.message_count = 0
        self.message_last_id = 0
        self._connection = connection
        self._state = state
        self._destinations: dict[str, Destination] = {}
        self._held: dict[SubscriptionKey, _Held] = {}
        self._unused: set[ApartKey] = set()
        self._doubts: dict[XATransactionId, Doubt] = {}

    def load(self) -> None:
        """Read everything. Blocks.

        Raises:
            StoreUnavailable: the database fails.
        """
        with self._connection.snapshot():
            self._load_subscriptions()
            self._load_apart()
            self._load_positions()
            for rows in self._connection.stream(_MESSAGES):
                self._load_messages(rows)
            for rows in self._connection.stream(_PRODUCERS):
                self._load_producers(rows)
        self._state.restored()
        for key in self._unused:
            self._state.changes.delete_apart(key)
        self._restore_doubts()
        self._state.changes.is_long = True  # what an ActiveMQ has left to be deleted may be much

    # ------------------------------------------------------------ subscriptions

    def _load_subscriptions(self) -> None:
        no_local = set(self._connection.rows("SELECT container, client_id, sub_name FROM pybroker_no_local"))
        owners = self._connection.rows("SELECT container, client_id, sub_name, user_name FROM pybroker_owners")
        users = {SubscriptionKey(*key): user for *key, user in owners}
        grouped: dict[SubscriptionKey, list[Sequence[Any]]] = {}
        for rows in self._connection.stream(_ACKS):
            for container, client_id, name, *rest in rows:
                grouped.setdefault(SubscriptionKey(container, client_id, name), []).append(rest)
        for key, lanes in grouped.items():
            destination = self._destination(key.container)
            if destination is None:
                self._damaged(f"activemq_acks has a row for {key.container!r}, which is no queue or topic")
            elif lanes[0][3] == KEPT_PRIORITY:
                self._contents(destination).is_declared = True
            elif destination.is_queue:
                self._damaged(f"activemq_acks has a durable subscription to {destination}, which is a queue")
            else:
                self._load_subscription(destination, key, lanes, no_local=key in no_local, user=users.get(key))

    def _load_subscription(
        self,
        topic: Destination,
        key: SubscriptionKey,
        rows: Sequence[Sequence[Any]],
        *,
        no_local: bool,
        user: str | None,
    ) -> None:
        """Add a subscription with its lanes; of the lanes that lack, nothing ahead of the hindmost cursor was seen."""
        subscribed, selector = rows[0][:2]
        info = DurableSubscription(
            client_id=key.client_id,
            name=key.name,
            destination=topic,
            subscribed_destination=self._destination(subscribed or "") or topic,
            selector=selector or None,
            no_local=no_local,
            user=user,
        )
        held = self._held[key] = _Held()
        cursors: dict[int, int] = {}
        for _, _, cursor, priority, xid in rows:
            cursors[priority] = cursor if cursor is not None else -1
            mark = None if xid is None else self._mark(xid, f"activemq_acks, {key}")
            if mark is not None:
                held.marks[priority] = mark
        self._state.last_id = max(self._state.last_id, *cursors.values())
        if len(cursors) == 1:
            lanes = [Lane(priority, cursor) for priority, cursor in cursors.items()]
        else:
            lanes = [Lane(priority, cursors.get(priority, min(cursors.values()))) for priority in PRIORITIES]
        self._contents(topic).subscriptions[info.key] = JdbcSubscription(info, lanes)
        if len(cursors) not in (1, len(PRIORITIES)):
            self._state.rewrite(topic, info.key)

    def _load_apart(self) -> None:
        sql = "SELECT container, client_id, sub_name, id, xid, message_id FROM pybroker_acked"
        for rows in self._connection.stream(sql):
            for *row, sequence, xid, message_id in rows:
                key = SubscriptionKey(*row)
                self._unused.add(ApartKey(key, sequence, xid))
                held = self._held.get(key)
                if held is None:
                    continue  # an ActiveMQ has ended the subscription
                held.messages[sequence] = message_id
                if xid:
                    mark = self._mark(xid, f"pybroker_acked, {key}")
                    if mark is not None:
                        held.prepared.setdefault(mark.transaction, set[int]()).add(sequence)
                else:
                    held.acknowledged.add(sequence)
        for held in self._held.values():
            if not any(mark.transaction in held.prepared for mark in held.marks.values()):
                held.prepared.clear()  # an ActiveMQ has decided them

    # ------------------------------------------------------------ messages

    def _load_messages(self, rows: Iterable[Sequence[Any]]) -> None:
        state = self._state
        for sequence, container, producer_id, number, priority, xid in rows:
            self.message_count += 1
            self.message_last_id = state_last = sequence
            state.last_id = max(state.last_id, state_last)
            destination = self._destinations.get(container) or self._destination(container)
            if destination is None or producer_id is None or number is None:
                self._damaged(f"activemq_msgs, id {sequence}: no queue or topic, or no message id")
                continue
            message_id = f"{producer_id}:{number}"
            packed = pack(sequence, min(max(priority or 0, 0), PRIORITIES[-1]))
            if xid is not None and self._load_doubt(destination, message_id, packed, xid):
                continue
            state.sequences.record(message_id)
            contents = self._contents(destination)
            if message_id in contents.messages:
                self._damaged(f"activemq_msgs, id {sequence}: {message_id} is there twice in {destination}")
            elif destination.is_queue:
                contents.messages[message_id] = packed
            else:
                self._load_topic_message(destination, contents, message_id, packed)

    def _load_doubt(self, destination: Destination, message_id: str, packed: int, xid: str) -> bool:
        """Record a message of a transaction; return True if it is hidden before the commit."""
        mark = self._mark(xid, f"activemq_msgs, id {packed >> PRIORITY_BITS}")
        if mark is None:
            return True
        doubt = self._doubt(mark.transaction)
        if mark.kind is MarkKind.SENT:
            doubt.sent.append(Sent(destination, message_id, packed))
        else:
            doubt.hold(PreparedAck(destination, message_id), packed)
        return mark.kind is MarkKind.SENT

    def _load_topic_message(self, topic: Destination, contents: JdbcContents, message_id: str, packed: int) -> None:
        """Add a message for those durable subscriptions that still have to get it."""
        sequence = packed >> PRIORITY_BITS
        waiting = 0
        apart: list[tuple[Lane, SubscriptionKey]] = []
        for key, subscription in contents.subscriptions.items():
            lane = subscription.lane(packed)
            if sequence <= lane.cursor:
                continue
            row = SubscriptionKey(contents.container, subscription.info.client_id, subscription.info.name)
            held = self._held[row]
            is_known = held.messages.get(sequence) == message_id
            if is_known and sequence in held.acknowledged:
                apart.append((lane, row))
                continue
            lane.add(sequence)
            waiting += 1
            self._load_prepared_acks(PreparedAck(topic, message_id, key), packed, lane, row, is_known=is_known)
        if not waiting:
            self._state.changes.delete(sequence)
            return
        contents.messages[message_id] = packed
        contents.waiting[sequence] = waiting
        for lane, row in apart:
            lane.add_apart(sequence, message_id)
            self._unused.discard(ApartKey(row, sequence, ""))

    def _load_prepared_acks(
        self, settled: PreparedAck, packed: int, lane: Lane, row: SubscriptionKey, *, is_known: bool
    ) -> None:
        """Record the transactions that acknowledge a message for a durable subscription."""
        sequence = packed >> PRIORITY_BITS
        held = self._held[row]
        for transaction, sequences in held.prepared.items() if is_known else ():
            if sequence in sequences:
                lane.doubts.setdefault(transaction, {})[sequence] = settled.message_id
                self._doubt(transaction).hold(settled, packed)
                self._unused.discard(ApartKey(row, sequence, key_of(transaction)))
        mark = held.marks.get(lane.priority)
        if mark is not None and mark.transaction not in held.prepared and sequence <= mark.sequence:
            # An ActiveMQ's: it acknowledges all up to there.
            lane.doubts.setdefault(mark.transaction, {})[sequence] = settled.message_id
            self._doubt(mark.transaction).hold(settled, packed)
            key = ApartKey(row, sequence, key_of(mark.transaction))
            self._unused.discard(key)
            self._state.changes.add_apart(key, settled.message_id)
            self._state.rewrite(settled.destination, settled.subscription_key or "")

    # ------------------------------------------------------------ transactions in doubt

    def _load_producers(self, rows: Iterable[Sequence[Any]]) -> None:
        for number, text in rows:
            try:
                self._state.restore_producers(number, json.loads(text))
            except (ValueError, AttributeError) as error:
                self._damaged(f"pybroker_producers, id {number}: {error}")

    def _load_positions(self) -> None:
        """Meet the transactions in doubt in the order of their preparation."""
        self._positions: dict[XATransactionId, tuple[int, bool]] = {}
        sql = "SELECT xid, position, marked FROM pybroker_prepared ORDER BY position"
        for xid, position, marked in self._connection.rows(sql):
            mark = self._mark(xid, "pybroker_prepared")
            if mark is not None:
                self._positions[mark.transaction] = (position, marked)

    def _restore_doubts(self) -> None:
        """Hand over those that are not decided; behind those whose order is known the others come as they are found."""
        state = self._state
        for row in self._held.values():  # one that acknowledges nothing that is still there is in doubt all the same
            for mark in row.marks.values():
                self._doubt(mark.transaction)
        last = max((position for position, _ in self._positions.values()), default=0)
        for transaction, (position, is_marked) in self._positions.items():
            doubt = self._doubts.pop(transaction, None)
            if doubt is None and is_marked:
                state.changes.prepared[key_of(transaction)] = None
                state.changes.count()
            else:
                doubt = doubt or Doubt(position)
                doubt.position, doubt.is_marked = position, is_marked
                state.restore_doubt(transaction, doubt)
        for position, (transaction, doubt) in enumerate(self._doubts.items(), last + 1):
            doubt.position, doubt.is_marked = position, True
            state.restore_doubt(transaction, doubt)
            state.changes.prepared[key_of(transaction)] = (position, True)
            state.changes.count()
        self._order_lanes()

    def _order_lanes(self) -> None:
        """Have each lane's transactions in the order of preparation."""
        positions = {transaction: doubt.position for transaction, doubt in self._state.doubts.items()}
        for contents in self._state.contents.values():
            for subscription in contents.subscriptions.values():
                for lane in subscription.lanes:
                    if len(lane.doubts) > 1:
                        lane.doubts = dict(sorted(lane.doubts.items(), key=lambda item: positions[item[0]]))

    def _doubt(self, transaction: XATransactionId) -> Doubt:
        return self._doubts.setdefault(transaction, Doubt(0))

    # ------------------------------------------------------------ rows

    def _contents(self, destination: Destination) -> JdbcContents:
        contents = self._state.contents.get(destination)
        if contents is None:
            contents = self._state.contents[destination] = JdbcContents(str(destination))
        return contents

    def _destination(self, container: str) -> Destination | None:
        """Return the destination of a qualified name; None for another text."""
        scheme, separator, name = container.partition("://")
        kind = {"queue": DestinationType.QUEUE, "topic": DestinationType.TOPIC}.get(scheme)
        if kind is None or not separator or not name:
            return None
        return self._destinations.setdefault(container, Destination(kind, name))

    def _mark(self, xid: str, where: str) -> Mark | None:
        try:
            return decode(xid)
        except MalformedXid as error:
            self._damaged(f"{where}: the transaction's id makes no sense: {error}")
            return None

    def _damaged(self, text: str) -> None:
        self.damages.append(text)
        logger.error("%s: damaged: %s", self._connection.name, text)


def delivered_note(delivered: Iterable[str], ids_max: int) -> str:
    """Return a clean stop's record of the messages that consumers have seen; if these are many, it covers all."""
    named = sorted(set(delivered))
    return json.dumps(named if len(named) <= ids_max else None)


def read_delivered(found: Takeover, loader: Loader) -> frozenset[str] | None:
    """Return the last clean stop's record, unless another broker has changed the messages since."""
    if found.delivered is None or (found.count, found.last_id) != (loader.message_count, loader.message_last_id):
        return None
    try:
        named: list[str] | None = json.loads(found.delivered)
        return None if named is None else frozenset(named)
    except (ValueError, TypeError):
        return None  # not our words; to call everything delivered is always true enough
