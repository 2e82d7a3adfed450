"""The contents of the tables and the changes not yet written: every operation of the port, without the database. Pure.

An operation changes `contents` at once and records in `changes` its effect on the tables; `take` hands them over as the
next batch. Sequence ids are given here, as ActiveMQ does: the highest in the tables, plus one for each message,
whatever its destination; a take-over leaves some out (see `store`). A transaction's messages get theirs at its commit,
so that they are ordered by it.

A producer's last sequence number is in the rows of its messages as long as they exist. So the log of producers need not
tell it before one of those is deleted, in the same batch, and a batch that only adds messages writes to one table.
"""

from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import InvalidDestination, ResourceLimit
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.objects import with_size_prefix
from pybroker.broker.domain.recovery import PreparedAck
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.store.jdbc.changes import ApartKey, Changes, LaneRow, MessageRow, SubscriptionKey, SubscriptionRows
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
from pybroker.store.jdbc.limits import TextLimits, check_size
from pybroker.store.jdbc.stamp import stamped
from pybroker.store.jdbc.xid import Mark, MarkKind, encode, key_of
from pybroker.store.producers import NOT_JOURNALLED, ProducerSequences

SEQUENCE_MAX = 2**63 - 1
PRODUCERS_ROWS_MAX = 1000
"""Entries of the log of producers, before a new log is begun."""

STORED = NOT_JOURNALLED + 1
"""Form of a producer's sequence number that is in the tables, or will be with the next batch."""

FITTING_MAX = 1024
"""Producers' ids that are remembered to fit, so that not each message's is measured."""

Operation = Message | PreparedAck


class JdbcState:
    """Contents and changes of the tables.

    Args:
        prioritized: write each message's priority into its row, instead of 0.
        lane_per_priority: give a new durable subscription a row per priority.
        limits: of the tables' texts.
    """

    def __init__(
        self, *, prioritized: bool = False, lane_per_priority: bool = False, limits: TextLimits | None = None
    ) -> None:
        self.contents: dict[Destination, JdbcContents] = {}
        self.sequences = ProducerSequences()
        self.last_id = 0
        self.doubts: dict[XATransactionId, Doubt] = {}
        self.changes = Changes()
        self._prioritized = prioritized
        self._lane_per_priority = lane_per_priority
        self._limits = limits or TextLimits()
        self._transactions: dict[TransactionId, list[Operation]] = {}
        self._dirty: dict[tuple[Destination, str], bool] = {}
        self._prepared_count = 0
        self._fitting: set[str] = set()
        """Producers whose ids are known to fit into the tables."""
        self._unlogged: dict[str, int] = {}
        """The highest number of each producer that is in rows of messages and not in the log of producers."""
        self._producers_id = 0
        self._producers_rows = 0

    # ------------------------------------------------------------ messages

    def add(self, message: Message, transaction: TransactionId | None) -> bool:
        """Add a message, unless it is there already (then False), or is a topic's without a durable subscription.

        Raises:
            RequestError: it, its destination or its id does not fit into the tables.
        """
        destination = message.destination
        contents = self.contents.get(destination)
        if contents is not None and message.message_id in contents.messages:
            return False
        if destination.is_topic and (contents is None or not contents.subscriptions):
            return True
        self._check(message)
        if contents is None:
            self._meet(destination)
        if transaction is None:
            self._add(message)
        else:
            self._transactions.setdefault(transaction, []).append(message)
        return True

    def expect(self, message: Message) -> bool:
        """Add a queue's message that is held (see `write_elision`); return False if it is stored already.

        Raises:
            RequestError: its destination or its id does not fit into the tables.
        """
        contents = self.contents.get(message.destination)
        if contents is None:
            self._meet(message.destination)
        elif message.message_id in contents.messages:
            return False
        self._check(message)
        self.sequences.record(message.message_id, NOT_JOURNALLED)
        return True

    def record_consumed(self, message_id: str) -> None:
        """Write the sequence number of a message that was consumed while it was held."""
        self._record_sequence(message_id)
        self._log_sequence(message_id)

    def remove(self, destination: Destination, message_id: str, transaction: TransactionId | None) -> None:
        """Remove a queue's message; nothing happens when it is not there."""
        if message_id in self._messages(destination):
            self._settle(PreparedAck(destination, message_id), transaction)

    def acknowledge(
        self, topic: Destination, subscription_key: str, message_id: str, transaction: TransactionId | None
    ) -> None:
        """Take a message out of a durable subscription's backlog; nothing happens when it is not there."""
        if self._is_pending(PreparedAck(topic, message_id, subscription_key)):
            self._settle(PreparedAck(topic, message_id, subscription_key), transaction)

    def sequence(self, destination: Destination, message_id: str) -> int | None:
        """Return a message's sequence id; None for one that is not there."""
        packed = self._messages(destination).get(message_id)
        return None if packed is None else packed >> PRIORITY_BITS

    # ------------------------------------------------------------ subscriptions and destinations

    def subscribe(self, subscription: DurableSubscription, *, retroactive: bool = False) -> dict[str, int]:
        """Add a durable subscription, or change one; a new one that is retroactive gets what the topic holds.

        Returns:
            The packed ids of what it so gets, by message id.

        Raises:
            RequestError: a text does not fit into the tables.
        """
        for column, what, text in (
            ("client_id", "client id", subscription.client_id),
            ("sub_name", "subscription's name", subscription.name),
            ("selector", "selector", subscription.selector or ""),
            ("sub_dest", "subscribed destination", str(subscription.subscribed_destination)),
        ):
            self._limits.check(column, text, what, ResourceLimit)
        topic, key = subscription.destination, subscription.key
        texts = (str(topic), subscription.client_id, subscription.name)
        self._limits.check_index("durable subscription's topic, client id and name", ResourceLimit, *texts)
        contents = self.contents.get(topic) or self._meet(topic)
        known = contents.subscriptions.get(key)
        if known is None:
            priorities = PRIORITIES if self._lane_per_priority else (0,)
            gets = contents.messages if retroactive else {}
            before = min((packed >> PRIORITY_BITS for packed in gets.values()), default=self.last_id + 1) - 1
            lanes = [Lane(priority, before) for priority in priorities]
            known = contents.subscriptions[key] = JdbcSubscription(subscription, lanes)
            for packed in gets.values():
                known.lane(packed).add(packed >> PRIORITY_BITS)
                contents.waiting[packed >> PRIORITY_BITS] += 1
        else:
            gets = {}
            known.info = subscription
        self._dirty[topic, key] = True
        self.changes.count()
        return gets

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """Drop a durable subscription and its backlog; with the last one the topic goes."""
        contents = self.contents.get(topic)
        if contents is None or subscription_key not in contents.subscriptions:
            return
        if len(contents.subscriptions) == 1:
            self.remove_destination(topic)
            return
        subscription = contents.subscriptions.pop(subscription_key)
        self._dirty.pop((topic, subscription_key), None)
        apart_count = sum(len(lane.apart) for lane in subscription.lanes)
        self.changes.drop(_key(contents, subscription), apart_count)
        for message_id, packed in [item for item in contents.messages.items() if subscription.has_pending(item[1])]:
            self._wanted_less(contents, message_id, packed)

    def declare(self, queue: Destination) -> None:
        """Record that a queue exists also while it is empty.

        Raises:
            RequestError: its name does not fit into the tables.
        """
        if queue.type is DestinationType.QUEUE:
            container = str(queue)
            self._limits.check_index("queue's name", InvalidDestination, container, container, container)
            contents = self.contents.get(queue) or self._meet(queue)
            if not contents.is_declared:
                contents.is_declared = True
                self.changes.declared[contents.container] = True
                self.changes.count()

    def forget_empty(self, destination: Destination) -> None:
        """Forget a destination without messages and subscriptions that is not declared. The tables do not change."""
        contents = self.contents.get(destination)
        if contents is not None and not (contents.messages or contents.subscriptions or contents.is_declared):
            del self.contents[destination]

    def remove_destination(self, destination: Destination) -> None:
        """Drop a destination and all it holds."""
        contents = self.contents.pop(destination, None)
        if contents is not None:
            self._log_all()
            self.changes.clear(contents.container, self.last_id)
            for key in contents.subscriptions:
                self._dirty.pop((destination, key), None)

    # ------------------------------------------------------------ transactions

    def prepare(self, transaction: XATransactionId) -> None:
        """Let a transaction wait for its outcome, in the tables; nothing happens when it did nothing that lasts.

        Raises:
            RequestError: its ids do not fit into the tables.
        """
        if transaction not in self._transactions:
            return
        sent_xid, settled_xid = encode(Mark(transaction, MarkKind.SENT)), key_of(transaction)
        self._limits.check("xid", sent_xid, "transaction's id", ResourceLimit)
        self._prepared_count += 1
        doubt = self.doubts[transaction] = Doubt(self._prepared_count)
        for operation in self._transactions.pop(transaction):
            if isinstance(operation, Message):
                data = stamped(operation.data, transaction)
                packed = self._insert(operation, data, sent_xid)
                doubt.sent.append(Sent(operation.destination, operation.message_id, packed))
            elif self._is_pending(operation):
                self._hold(transaction, doubt, operation, settled_xid)
        doubt.is_marked = self._is_marked(transaction, doubt)
        self.changes.prepared[settled_xid] = (doubt.position, doubt.is_marked)
        self.changes.count()

    def commit(self, transaction: TransactionId) -> None:
        """Let a transaction's operations take effect."""
        for operation in self._transactions.pop(transaction, ()):
            if isinstance(operation, Message):
                self._add(operation)
            else:
                self._settle(operation, None)
        if isinstance(transaction, XATransactionId) and transaction in self.doubts:
            doubt = self.doubts.pop(transaction)
            for sent in doubt.sent:
                self._appear(sent)
            for settled, packed in doubt.settled:
                if self._let_go(transaction, settled, packed):
                    self._settle(settled, None)
            self._decided(transaction)

    def rollback(self, transaction: TransactionId) -> None:
        """Forget a transaction's operations."""
        self._transactions.pop(transaction, None)
        if isinstance(transaction, XATransactionId) and transaction in self.doubts:
            doubt = self.doubts.pop(transaction)
            for sent in doubt.sent:
                self.changes.delete(sent.packed >> PRIORITY_BITS)
            for settled, packed in doubt.settled:
                if self._let_go(transaction, settled, packed) and settled.subscription_key is None:
                    self.changes.mark(packed >> PRIORITY_BITS, None)
            self._decided(transaction)

    # ------------------------------------------------------------ batches

    @property
    def open_bytes(self) -> int:
        """Number of bytes to write."""
        return self.changes.byte_count

    def take(self) -> Changes:
        """Return the open batch, and begin the next one."""
        changes, self.changes = self.changes, Changes()
        for (topic, key), is_whole in self._dirty.items():
            contents = self.contents[topic]
            subscription = contents.subscriptions[key]
            changes.subscriptions[_key(contents, subscription)] = _rows(subscription, is_whole=is_whole)
        self._dirty.clear()
        if changes.producers or changes.starts_producer_log:
            self._producers_id += 1
            self._producers_rows += 1
            changes.producers_id = self._producers_id
        for transaction, doubt in self.doubts.items():
            is_marked = self._is_marked(transaction, doubt)
            if is_marked is not doubt.is_marked:
                doubt.is_marked = is_marked
                changes.prepared[key_of(transaction)] = (doubt.position, is_marked)
        return changes

    def log_producers(self) -> None:
        """Write sequence numbers that the log lacks; call it while write elision holds no message.

        Once their log is long a new one is begun, with those that are remembered here.
        """
        for producer_id, number in self.sequences.recorded_in((NOT_JOURNALLED,)).items():
            self._record_sequence(f"{producer_id}:{number}")
        self._log_all()
        if self._producers_rows > PRODUCERS_ROWS_MAX:
            self._producers_rows = 0
            self.changes.starts_producer_log = True
            self.changes.producers = {producer_id: known[0] for producer_id, known in self.sequences.items()}
            self.changes.count()

    def restore_producers(self, number: int, sequences: dict[str, int]) -> None:
        """Note producers' sequence numbers as a row of the tables has them."""
        self.sequences.restore(sequences, STORED)
        self._producers_id = number
        self._producers_rows += 1

    def restored(self) -> None:
        """Record that all messages and producers are restored; messages may have been deleted in that time."""
        self._unlogged = self.sequences.recorded_in((NOT_JOURNALLED,))
        if self.changes.deleted:
            self._log_all()

    def rewrite(self, topic: Destination, subscription_key: str) -> None:
        """Have a durable subscription written whole."""
        self._dirty[topic, subscription_key] = True
        self.changes.count()

    def restore_doubt(self, transaction: XATransactionId, doubt: Doubt) -> None:
        """Note a transaction that the tables hold; to be called in the order of the preparation."""
        self.doubts[transaction] = doubt
        self._prepared_count = max(self._prepared_count, doubt.position)

    # ------------------------------------------------------------ doing it

    def _add(self, message: Message) -> None:
        """Store a message, unless it is there, or no durable subscription is left for it."""
        self._record_sequence(message.message_id)
        destination = message.destination
        contents = self.contents.get(destination)
        if destination.is_topic and (contents is None or not contents.subscriptions):
            self._log_sequence(message.message_id)
            return
        if contents is None:
            contents = self._meet(destination)
        if message.message_id not in contents.messages:
            self._arrive(contents, message.message_id, self._insert(message, message.data, None))

    def _insert(self, message: Message, data: bytes, xid: str | None) -> int:
        """Have a message's row written, under a new id; return that, packed."""
        self.last_id += 1
        producer_id, _, sequence = message.message_id.rpartition(":")
        packed = pack(self.last_id, message.priority if self._prioritized else 0)
        row = MessageRow(
            str(message.destination),
            producer_id,
            int(sequence),
            message.expiration,
            with_size_prefix(data),
            message.priority if self._prioritized else 0,
            xid,
        )
        self.changes.insert(self.last_id, row)
        return packed

    def _arrive(self, contents: JdbcContents, message_id: str, packed: int) -> None:
        """Note that a message is there; on a topic, for every durable subscription."""
        contents.messages[message_id] = packed
        if contents.subscriptions:
            for subscription in contents.subscriptions.values():
                subscription.lane(packed).add(packed >> PRIORITY_BITS)
            contents.waiting[packed >> PRIORITY_BITS] = len(contents.subscriptions)

    def _appear(self, sent: Sent) -> None:
        """Commit a message that a transaction in doubt has sent: it is the newest now."""
        self._record_sequence(sent.message_id)
        old = sent.packed >> PRIORITY_BITS
        destination = sent.destination
        contents = self.contents.get(destination)
        if contents is None and destination.is_queue:
            contents = self._meet(destination)
        if (
            contents is None
            or sent.message_id in contents.messages
            or (destination.is_topic and not contents.subscriptions)
        ):
            self._log_sequence(sent.message_id)
            self.changes.delete(old)
            return
        self.last_id += 1
        self.changes.renumber(old, self.last_id, contents.container)
        priority = sent.packed - (old << PRIORITY_BITS)
        self._arrive(contents, sent.message_id, pack(self.last_id, priority))

    def _settle(self, settled: PreparedAck, transaction: TransactionId | None) -> None:
        """Let a message go, now or at the commit; nothing happens when it is gone."""
        if transaction is not None:
            self._transactions.setdefault(transaction, []).append(settled)
            return
        contents = self.contents.get(settled.destination)
        packed = None if contents is None else contents.messages.get(settled.message_id)
        if contents is None or packed is None:
            return
        if settled.subscription_key is None:
            del contents.messages[settled.message_id]
            self._log_sequence(settled.message_id)
            self.changes.delete(packed >> PRIORITY_BITS)
        elif self._is_pending(settled):
            self._advance(contents, settled, packed)

    def _advance(self, contents: JdbcContents, settled: PreparedAck, packed: int) -> None:
        """Acknowledge for a durable subscription."""
        key = settled.subscription_key or ""
        subscription = contents.subscriptions[key]
        lane, sequence = subscription.lane(packed), packed >> PRIORITY_BITS
        row = _key(contents, subscription)
        for transaction in [each for each, held in lane.doubts.items() if sequence in held]:
            self._unhold(lane, transaction, sequence, row)
        passed = lane.settle(sequence, settled.message_id)
        if sequence in lane.apart:
            self.changes.add_apart(ApartKey(row, sequence, ""), settled.message_id)
        for each in passed:
            self.changes.delete_apart(ApartKey(row, each, ""))
        self._touch(settled.destination, key)
        self._wanted_less(contents, settled.message_id, packed)

    def _wanted_less(self, contents: JdbcContents, message_id: str, packed: int) -> None:
        """Count one durable subscription less for a message; delete it with the last one."""
        sequence = packed >> PRIORITY_BITS
        contents.waiting[sequence] -= 1
        if contents.waiting[sequence]:
            return
        del contents.waiting[sequence], contents.messages[message_id]
        self._log_sequence(message_id)
        self.changes.delete(sequence)
        for subscription in contents.subscriptions.values():
            if subscription.lane(packed).forget(sequence):
                self.changes.delete_apart(ApartKey(_key(contents, subscription), sequence, ""))

    def _hold(self, transaction: XATransactionId, doubt: Doubt, settled: PreparedAck, xid: str) -> None:
        """Have a message wait for a transaction's outcome."""
        contents = self.contents[settled.destination]
        packed = contents.messages[settled.message_id]
        sequence = packed >> PRIORITY_BITS
        doubt.hold(settled, packed)
        if settled.subscription_key is None:
            self.changes.mark(sequence, xid)
            return
        subscription = contents.subscriptions[settled.subscription_key]
        subscription.lane(packed).doubts.setdefault(transaction, {})[sequence] = settled.message_id
        self.changes.add_apart(ApartKey(_key(contents, subscription), sequence, xid), settled.message_id)
        self._touch(settled.destination, settled.subscription_key)

    def _let_go(self, transaction: XATransactionId, settled: PreparedAck, packed: int) -> bool:
        """End a message's wait for an outcome; False when it is gone by another way."""
        contents = self.contents.get(settled.destination)
        if contents is None or contents.messages.get(settled.message_id) != packed:
            return False
        if settled.subscription_key is None:
            return True
        subscription = contents.subscriptions.get(settled.subscription_key)
        if subscription is None:
            return False
        lane, sequence = subscription.lane(packed), packed >> PRIORITY_BITS
        if sequence not in lane.doubts.get(transaction, {}):
            return False
        self._unhold(lane, transaction, sequence, _key(contents, subscription))
        self._touch(settled.destination, settled.subscription_key)
        return True

    def _unhold(self, lane: Lane, transaction: XATransactionId, sequence: int, row: SubscriptionKey) -> None:
        held = lane.doubts[transaction]
        del held[sequence]
        if not held:
            del lane.doubts[transaction]
        self.changes.delete_apart(ApartKey(row, sequence, key_of(transaction)))

    def _decided(self, transaction: XATransactionId) -> None:
        self.changes.prepared[key_of(transaction)] = None
        self.changes.count()

    # ------------------------------------------------------------ asking

    def is_pending(self, settled: PreparedAck, packed: int) -> bool:
        """Return True if this very message is stored, and pending if a durable subscription is named."""
        return self._messages(settled.destination).get(settled.message_id) == packed and self._is_pending(settled)

    def _is_pending(self, settled: PreparedAck) -> bool:
        contents = self.contents.get(settled.destination)
        packed = None if contents is None else contents.messages.get(settled.message_id)
        if contents is None or packed is None:
            return False
        if settled.subscription_key is None:
            return True
        subscription = contents.subscriptions.get(settled.subscription_key)
        return subscription is not None and subscription.has_pending(packed)

    def _is_marked(self, transaction: XATransactionId, doubt: Doubt) -> bool:
        """Return True if ActiveMQ's tables name a transaction: a subscription's row can name one.

        Asked for each batch, so it looks at subscriptions instead of their messages, and at each lost message once.
        """
        if doubt.sent or any(self._is_latest(transaction, *each) for each in doubt.subscriptions):
            return True
        while doubt.queued and not self.is_pending(*doubt.queued[-1]):
            doubt.queued.pop()
        return bool(doubt.queued)

    def _is_latest(self, transaction: XATransactionId, topic: Destination, key: str) -> bool:
        """Return True if a durable subscription's row names a transaction: the one that was prepared last."""
        contents = self.contents.get(topic)
        subscription = None if contents is None else contents.subscriptions.get(key)
        lanes = () if subscription is None else subscription.lanes
        return any(lane.doubts and next(reversed(lane.doubts)) == transaction for lane in lanes)

    def _messages(self, destination: Destination) -> dict[str, int]:
        contents = self.contents.get(destination)
        return {} if contents is None else contents.messages

    def _touch(self, topic: Destination, key: str) -> None:
        self._dirty.setdefault((topic, key), False)
        self.changes.count()

    def _record_sequence(self, message_id: str) -> None:
        """Record a producer's sequence number, which the message's row has as long as it exists."""
        self.sequences.record(message_id, STORED)
        producer_id, _, text = message_id.rpartition(":")
        number = int(text)
        known = self._unlogged.get(producer_id)
        if known is None or number > known:
            self._unlogged[producer_id] = number

    def _log_sequence(self, message_id: str) -> None:
        """Write a producer's sequence number to the log, because no row of the message will have it."""
        if self._unlogged:
            producer_id = message_id.rpartition(":")[0]
            number = self._unlogged.pop(producer_id, None)
            if number is not None:
                self._log(producer_id, number)

    def _log_all(self) -> None:
        for producer_id, number in self._unlogged.items():
            self._log(producer_id, number)
        self._unlogged.clear()

    def _log(self, producer_id: str, number: int) -> None:
        producers = self.changes.producers
        known = producers.get(producer_id)
        if known is None:
            self.changes.count()
        if known is None or number > known:
            producers[producer_id] = number

    def _meet(self, destination: Destination) -> JdbcContents:
        """Add an unknown destination."""
        container = str(destination)
        self._limits.check("container", container, "destination's name", InvalidDestination)
        self._limits.check_index("destination's name", InvalidDestination, container)
        contents = self.contents[destination] = JdbcContents(container)
        return contents

    def _check(self, message: Message) -> None:
        """Make sure that a message and its id fit into the tables."""
        check_size(message.data)
        producer_id, _, sequence = message.message_id.rpartition(":")
        if producer_id not in self._fitting:
            self._limits.check("msgid_prod", producer_id, "producer's id", ResourceLimit)
            self._limits.check_index("producer's id", ResourceLimit, producer_id)
            if len(self._fitting) >= FITTING_MAX:
                self._fitting.clear()
            self._fitting.add(producer_id)
        try:
            number = int(sequence)
        except ValueError:
            number = SEQUENCE_MAX + 1
        if abs(number) > SEQUENCE_MAX or str(number) != sequence:
            raise ResourceLimit("the message's id does not end in a sequence number")


def _key(contents: JdbcContents, subscription: JdbcSubscription) -> SubscriptionKey:
    return SubscriptionKey(contents.container, subscription.info.client_id, subscription.info.name)


def _rows(subscription: JdbcSubscription, *, is_whole: bool) -> SubscriptionRows:
    """Return a durable subscription as it is to be written."""
    info = subscription.info
    lanes = tuple(LaneRow(lane.cursor, lane.priority, _mark(lane)) for lane in subscription.lanes)
    description = (str(info.subscribed_destination), info.selector, info.no_local, info.user)
    return SubscriptionRows(lanes, description if is_whole else None)


def _mark(lane: Lane) -> str | None:
    """Return the `xid` of a durable subscription's row: the latest transaction in doubt, and where it would lead."""
    if not lane.doubts:
        return None
    transaction, held = next(reversed(lane.doubts.items()))
    return encode(Mark(transaction, MarkKind.ACKNOWLEDGED, lane.reach(held), lane.priority))
