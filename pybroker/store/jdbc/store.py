"""A message store that is a PostgreSQL database with ActiveMQ's tables: the port `MessageStore`.

```text
recover   find or create the tables -> raise the epoch -> read ids and subscriptions -> tidy up
add …     change the state, record the change             (no I/O, no waiting)
          unless it is held for a moment: it may be consumed first, and then is never written (see `write_elision`)
          `- end of the turn: one transaction of all changes, in a separate thread
read      bodies by id, on a second connection, in a second thread
```

What is in memory are ids: some 250 bytes per pending message, whatever its size.

Source: ActiveMQ 5.17, `JDBCPersistenceAdapter`, `JDBCMessageStore`, `JDBCTopicMessageStore`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.objects import without_size_prefix
from pybroker.broker.domain.openwire.prefix_cache import PrefixCache
from pybroker.broker.domain.ports import Page, RemovalReason
from pybroker.broker.domain.recovery import PreparedSend, PreparedTransaction, Recovery, SubscriptionBacklog
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.store.group_commit import ABANDON_SECONDS, GroupCommit
from pybroker.store.jdbc.changes import Changes
from pybroker.store.jdbc.contents import PRIORITY_BITS, JdbcContents, Sent, by_class, pending
from pybroker.store.jdbc.fence import MESSAGES, Fence
from pybroker.store.jdbc.limits import read_limits
from pybroker.store.jdbc.postgres import STATEMENT_SECONDS, DatabaseConnection, describe, require_session
from pybroker.store.jdbc.reader import QUERY_SECONDS_MAX, READ_ALL, READ_SECONDS, JdbcBodyReader
from pybroker.store.jdbc.recovery import Loader, delivered_note, read_delivered, take_over
from pybroker.store.jdbc.schema import COLUMNS, OWN, ensure
from pybroker.store.jdbc.sink import COMMIT_POLICY, DatabaseSink, Tables
from pybroker.store.jdbc.stamp import unstamped
from pybroker.store.jdbc.state import JdbcState
from pybroker.store.jdbc.statements import is_done, statements
from pybroker.store.runtime import StoreRuntime
from pybroker.store.write_elision import WriteElisionBuffer

HOLD_SECONDS = 0.005
"""Shortest time that a message is held to be consumed: about as long as a busy database takes to commit it. What that
saves is worth a short delay: writing and deleting it costs the server, and this process, more than all the rest."""

IDS_PER_MASTER = 1 << 36
"""Sequence ids reserved for one mastership: enough for two months of sends, 134 million times. A former master that is
frozen in a copy holds the ids of its rows, which the tables do not show: inserting such a row waits for it."""

DELIVERED_MAX = 20_000
"""Ids a clean stop names. Beyond, it is cheaper to call every pending message delivered."""
SENT_PAGE_MESSAGES, SENT_PAGE_BYTES = 1000, 8 << 20
"""Page size for a transaction in doubt, which is read at a start."""
SENT_PAGE_SECONDS = 2 * QUERY_SECONDS_MAX
"""Deadline of one such page: as long as its reader may retry."""

_TABLES = Tables(statements, is_done)

logger = logging.getLogger(__name__)


class JdbcStore:
    """Implements `MessageStore` on a database. Its user holds the lock that guards it.

    Args:
        url: `postgresql://user@host:port/database`.
        runtime: the world around.
        prioritized: dispatch by priority; must agree with ActiveMQ's `prioritizedMessages` policy.
        may_create: create tables that are missing.
        grace: how many seconds a database may be away before the store stops; clients wait for so long.
        read_seconds: how long `read` may block.
        identity: the broker's name, and an id for a store that has none; None: the recovery returns no id.

    Raises:
        ConfigError: the URL makes no sense.
    """

    def __init__(
        self,
        url: str,
        *,
        runtime: StoreRuntime,
        prioritized: bool = False,
        may_create: bool = True,
        grace: float = 0.0,
        read_seconds: float = READ_SECONDS,
        identity: BrokerIdentity | None = None,
    ) -> None:
        self.name = describe(url)
        """Address of the database, without user and password."""
        self.damages: Sequence[str] = ()
        """Unusable rows, in words; they stay in the tables."""
        self.epoch = 0
        """Number of this promotion. It only grows from master to master."""
        self.on_readable: Callable[[], None] = _ignore
        """Called on the loop once messages can be read that could not in time: ask `read` again."""
        self._url = url
        self._runtime = runtime
        self._prioritized = prioritized
        self._may_create = may_create
        self._grace = grace
        self._read_seconds = read_seconds
        self._identity = identity
        self._server = ""
        self._state = JdbcState(prioritized=prioritized)
        self._writer: GroupCommit[Changes] | None = None
        self._elision: WriteElisionBuffer | None = None
        self._reader = self._new_reader()

    # ------------------------------------------------------------ opening

    def recover(self) -> Recovery:
        """Take the tables over, and return what they hold. Blocks.

        Raises:
            StoreUnavailable: the database cannot be reached, read or written, or its tables are others.
            LockNotHeld: the lock was lost on the way, or another broker has taken over.
        """
        connection = DatabaseConnection(self._url)
        self._server = connection.server
        try:
            require_session(connection, lambda: DatabaseConnection(self._url))
            return self._open(connection)
        except BaseException:
            connection.close()
            raise

    def _open(self, connection: DatabaseConnection) -> Recovery:
        lane_per_priority = ensure(connection, prioritized=self._prioritized, may_create=self._may_create)
        self._runtime.fence()
        found = take_over(connection, self._identity)
        self.epoch = found.epoch
        self._state = JdbcState(
            prioritized=self._prioritized,
            lane_per_priority=self._prioritized and lane_per_priority,
            limits=read_limits(connection, [*COLUMNS, *OWN]),
        )
        loader = Loader(connection, self._state)
        loader.load()
        self._state.last_id = max(self._state.last_id, (self.epoch - 1) * IDS_PER_MASTER)
        self.damages = loader.damages
        logger.info("%s: epoch %d, %d messages", self.name, self.epoch, loader.message_count)
        self._reader.read([0], seconds=STATEMENT_SECONDS)  # connects; ids begin with 1
        fence = Fence(MESSAGES, self.epoch)
        fence.prepare(connection)
        sink = DatabaseSink(connection, self._connect, fence, _TABLES, self._runtime, grace=self._grace)
        sink.write(self._state.take())
        self._writer = writer = GroupCommit(self._state, sink, COMMIT_POLICY, self._runtime)
        self._elision = self._new_elision_buffer(writer)
        recovery = Recovery(
            queues={
                queue: self._in_order(contents.messages.items())
                for queue, contents in self._state.contents.items()
                if queue.is_queue and (contents.messages or contents.is_declared)
            },
            backlogs=self._backlogs(),
            prepared=self._prepared(),
            delivered=read_delivered(found, loader),
            broker_id=found.broker_id,
        )
        writer.start()
        return recovery

    def _connect(self, seconds: float) -> DatabaseConnection:
        return DatabaseConnection(self._url, seconds=seconds, server=self._server)

    def _new_elision_buffer(self, writer: GroupCommit[Changes]) -> WriteElisionBuffer | None:
        if self._runtime.call_later is None:
            return None
        return WriteElisionBuffer(self, writer, self._runtime, hold_seconds=HOLD_SECONDS)

    def _new_reader(self) -> JdbcBodyReader:
        return JdbcBodyReader(
            lambda: DatabaseConnection(self._url, server=self._server), self._runtime, lambda: self.on_readable()
        )

    def _backlogs(self) -> list[SubscriptionBacklog]:
        return [
            SubscriptionBacklog(
                subscription=subscription.info,
                message_ids=self._in_order((each, contents.messages[each]) for each in pending(contents, subscription)),
            )
            for contents in self._state.contents.values()
            for subscription in contents.subscriptions.values()
        ]

    def _prepared(self) -> list[PreparedTransaction]:
        """Return the transactions in doubt, with the messages they are about to add."""
        return [
            PreparedTransaction(
                transaction_id=transaction,
                sent=self._read_sent(doubt.sent),
                acknowledged=[each for each, packed in doubt.settled if self._state.is_pending(each, packed)],
            )
            for transaction, doubt in self._state.doubts.items()
        ]

    def _read_sent(self, sent: Sequence[Sent]) -> list[PreparedSend]:
        """Return what a transaction in doubt has sent. Only topics' messages are read, page by page."""
        wanted = [(each.packed >> PRIORITY_BITS, each.message_id) for each in sent if each.destination.is_topic]
        found: dict[str, Message] = {}
        done = 0
        while done < len(wanted):
            page = wanted[done : done + SENT_PAGE_MESSAGES]
            messages, count = self._read(page, seconds=SENT_PAGE_SECONDS, bytes_max=SENT_PAGE_BYTES)
            found |= {message.message_id: message for message in messages}
            done += count
        return [
            PreparedSend(each.destination, each.message_id, found.get(each.message_id))
            for each in sent
            if each.destination.is_queue or each.message_id in found
        ]

    def _in_order(self, messages: Iterable[tuple[str, int]]) -> list[str]:
        """Return message ids in dispatch order; the messages come by age."""
        return by_class(messages) if self._prioritized else [message_id for message_id, _ in messages]

    # ------------------------------------------------------------ messages

    def read(self, destination: Destination, message_ids: Sequence[str]) -> list[Message]:
        """Return durable messages, in this order. Blocks for `read_seconds` at most.

        Messages that are missing or do not decode are left out, recorded in `damages` and logged.

        Raises:
            StoreUnavailable: the database does not answer, or has not yet: ask again, see `on_readable`.
        """
        return self.read_page(destination, message_ids, READ_ALL).messages

    def read_page(self, destination: Destination, message_ids: Sequence[str], bytes_max: int) -> Page:
        """Return messages as `read` does, from the first id on until they take `bytes_max` bytes or more.

        Raises:
            StoreUnavailable: the database does not answer, or has not yet: ask again, see `on_readable`.
        """
        contents = self._state.contents.get(destination, JdbcContents(""))
        wanted = [
            (packed >> PRIORITY_BITS, message_id)
            for message_id in message_ids
            if (packed := contents.messages.get(message_id)) is not None
        ]
        messages, count = self._read(wanted, contents.container, seconds=self._read_seconds, bytes_max=bytes_max)
        looked_at = len(message_ids) if count == len(wanted) else message_ids.index(wanted[count][1])
        for message_id in message_ids[:looked_at]:
            if message_id not in contents.messages:
                self._damaged(f"{destination} is to have {message_id}, which the store has not")
        return Page(messages, looked_at)

    def _read(
        self,
        wanted: Sequence[tuple[int, str]],
        container: str = "",
        *,
        seconds: float,
        bytes_max: int = READ_ALL,
    ) -> tuple[list[Message], int]:
        """Return messages by sequence id and message id, and how many of these were examined."""
        if not wanted:
            return [], 0
        sequences = [sequence for sequence, _ in wanted]
        bodies, count = self._reader.read_page(sequences, container, bytes_max=bytes_max, seconds=seconds)
        cache = PrefixCache()
        messages: list[Message] = []
        for sequence, message_id in wanted[:count]:
            try:
                messages.append(cache.route(unstamped(without_size_prefix(bodies[sequence])), message_id))
            except KeyError:
                self._damaged(
                    f"id {sequence}: there is no message {message_id} any more: it was deleted by someone else"
                )
            except (MalformedOpenWire, TypeError) as error:
                self._damaged(f"id {sequence}: the message {message_id} does not decode: {error}")
        return messages, count

    @property
    def supports_paging(self) -> bool:
        """True: durable messages can be read back."""
        return True

    @property
    def keeps_uncommitted(self) -> bool:
        """False: a transaction that is not prepared is written with its commit, and in memory until then."""
        return False

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        """Add a persistent message, unless it is there already, or no durable subscription is there to want it.

        Returns:
            False if the message is there already.

        Raises:
            RequestError: its destination or its id does not fit into the tables.
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        elision = self._elision
        if elision is not None and (is_new := elision.offer(message, transaction)) is not None:
            return is_new
        is_new = self._state.add(message, transaction)
        self._wake(writer)
        return is_new

    def expect(self, message: Message) -> bool:
        """Add a message that write elision holds; return False if it is stored already.

        Raises:
            RequestError: its destination or its id does not fit into the tables.
        """
        return self._state.expect(message)

    def write(self, message: Message) -> None:
        """Add a message that was held.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        self._state.add(message, None)
        self._wake(writer)

    def write_sequences(self, numbers: Mapping[str, int]) -> None:
        """Write the producers' sequence numbers of consumed messages that were never inserted.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        for producer_id, number in numbers.items():
            self._state.record_consumed(f"{producer_id}:{number}")
        self._wake(writer)

    def remove(
        self,
        destination: Destination,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Remove a queue's message; nothing happens when it is not there. One that is not written yet never will be.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        elision = self._elision
        if elision is not None and elision.elide(destination, message_id, transaction, reason, connection_id):
            return
        self._state.remove(destination, message_id, transaction)
        self._wake(writer)

    def acknowledge(
        self,
        topic: Destination,
        subscription_key: str,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Note that a durable subscription is done with a message; nothing happens when it has it not pending.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._opened()
        if self._elision is not None:
            self._elision.flush_before(transaction, reason, connection_id)
        self._state.acknowledge(topic, subscription_key, message_id, transaction)
        self._wake(writer)

    # ------------------------------------------------------------ everything else

    def subscribe(self, subscription: DurableSubscription, *, retroactive: bool = False) -> Sequence[str]:
        """Add a durable subscription, or change one; a new one that is retroactive gets what the topic holds.

        Raises:
            RequestError: a text does not fit into the tables.
            StoreUnavailable: the store has stopped.
        """
        writer = self._behind_all()
        gets = self._state.subscribe(subscription, retroactive=retroactive)
        self._wake(writer)
        return self._in_order(gets.items())

    def settling(self, topic: Destination) -> Iterator[int]:
        """Return no steps: nothing is left to do."""
        return iter(())

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """End a durable subscription and its backlog; nothing happens when there is none.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._behind_all()
        self._state.unsubscribe(topic, subscription_key)
        self._wake(writer)

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 for one that is not remembered."""
        return self._state.sequences.last(producer_id)

    def prepare(self, transaction: XATransactionId) -> None:
        """Prepare a transaction; nothing happens when it did nothing that lasts.

        Raises:
            RequestError: its ids do not fit into the tables.
            StoreUnavailable: the store has stopped.
        """
        writer = self._behind_all()
        self._state.prepare(transaction)
        self._wake(writer)

    def commit(self, transaction: TransactionId) -> None:
        """Commit a transaction; nothing happens when it did nothing that lasts.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._behind_all()
        self._state.commit(transaction)
        self._wake(writer)

    def commit_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Commit a transaction; no step is left, as all its rows belong to one batch.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        self.commit(transaction)
        return iter(())

    def rollback(self, transaction: TransactionId) -> None:
        """Roll a transaction back; nothing happens when it did nothing that lasts.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._behind_all()
        self._state.rollback(transaction)
        self._wake(writer)

    def rollback_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Roll a transaction back; no step is left.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        self.rollback(transaction)
        return iter(())

    def declare(self, destination: Destination) -> None:
        """Record that a queue exists also while it is empty.

        Raises:
            RequestError: its name does not fit into the tables.
            StoreUnavailable: the store has stopped.
        """
        writer = self._behind_all()
        self._state.declare(destination)
        self._wake(writer)

    def remove_destination(self, destination: Destination) -> None:
        """Remove a destination and all it holds; nothing happens when it never held anything.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        writer = self._behind_all()
        self._state.remove_destination(destination)
        self._wake(writer)

    def take_records_to_move(self, queue: Destination, count_max: int) -> Sequence[str]:
        """Return nothing: a row keeps no other row."""
        del queue, count_max
        return ()

    def forget_empty(self, destination: Destination) -> None:
        """Free the state of an empty destination that is not declared."""
        self._state.forget_empty(destination)

    def require_fence(self) -> None:
        """Have the next callbacks wait until the database was found to be this master's still."""
        if self._writer is not None:
            self._writer.require_fence()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all that was changed so far is committed."""
        if self._writer is not None and not (
            self._elision is not None and self._elision.when_safe(callback, durable=True)
        ):
            self._writer.when_durable(callback)

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once all messages added so far are committed, or were consumed."""
        if self._writer is not None and not (self._elision is not None and self._elision.when_safe(callback)):
            self._writer.when_durable(callback)

    @property
    def used_bytes(self) -> int:
        """Unknown: the disk is the database's."""
        return 0

    @property
    def unwritten_bytes(self) -> int:
        """Bytes changed and not known to be committed."""
        held = 0 if self._elision is None else self._elision.byte_count
        return held if self._writer is None else held + self._writer.unwritten_bytes

    @property
    def is_full(self) -> bool:
        """True while the database's disk is full: new messages must be refused; accepted ones wait for space."""
        return self._writer is not None and self._writer.is_full

    # ------------------------------------------------------------ cleaning up and closing

    def cleanup(self) -> None:
        """Write producers' numbers that no row has, and delete those that have not sent for long.

        Messages go when they are consumed.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if self._writer is not None:
            self._flush_elision()
            self._state.log_producers()
            self._wake(self._writer)

    def close(self, delivered: Iterable[str] = ()) -> None:
        """Commit the rest and the ids of messages that consumers have seen, and disconnect. Blocks.

        Raises:
            StoreError: not everything could be committed.
            LockNotHeld: the lock was lost before.
        """
        writer = self._writer
        if writer is None:
            return
        try:
            with suppress(StoreUnavailable):  # it has stopped, and raises its error when it is closed
                self._flush_elision()
            self._writer = self._elision = None
            self._state.log_producers()
            self._state.changes.delivered = delivered_note(delivered, DELIVERED_MAX)
            self._state.changes.count()
            self._wake(writer)
            writer.close()
        finally:
            self._close_reader()

    def abandon(self) -> None:
        """Stop at once, as if killed: for a master that lost its lock. Commits and acknowledges nothing more."""
        if self._writer is not None:
            self._writer.abandon()
        self._close_reader()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, self._new_reader()
        reader.close(ABANDON_SECONDS)

    def _wake(self, writer: GroupCommit[Changes]) -> None:
        """Have written what has changed, if anything has."""
        if self._state.changes.touched:
            writer.wake()

    def _opened(self) -> GroupCommit[Changes]:
        """Return the writer, which takes changes."""
        if self._writer is None:
            raise StoreUnavailable(f"{self.name}: the store is not open")
        self._writer.require_running()
        return self._writer

    def _behind_all(self) -> GroupCommit[Changes]:
        """Return the writer, after giving it all held messages: later records must not overtake them."""
        writer = self._opened()
        self._flush_elision()
        return writer

    def _flush_elision(self) -> None:
        if self._elision is not None:
            self._elision.flush()

    def _damaged(self, text: str) -> None:
        self.damages = [*self.damages, text]
        logger.error("%s: damaged: %s. The message is not delivered.", self.name, text)


def _ignore() -> None:
    """No second answer is needed."""
