"""A message store that is a KahaDB directory: the port `MessageStore`, made of the rooms next door.

```text
recover   replay (reads only) -> claim the next data file -> read what is left -> drop ActiveMQ's index
          -> seal the predecessor's last data file -> write into the new one
add …     encode -> append to the open batch -> apply to the state            (no I/O, no waiting)
          unless it is held for a moment: it may be consumed first, and then is never written (see `holding`)
cleanup   decide on the state -> once all of it is durable: remove, or compact, file after file, in the writer's thread
close     cleanup -> write what is left, and a remark about the clean stop
```

What makes it safe to take over from anybody, a killed ActiveMQ as well as a frozen pybroker:

* **A new data file.** The highest id plus one, created exclusively. Nothing is ever appended to a predecessor's file:
  its tail may be torn, and an ordinary record in a compacted file is lost to ActiveMQ's recovery. It is created before
  the end of the journal is read: a predecessor that is still alive then has no number to go on with, so what the heir
  reads is a beginning of what it wrote. Where it was quicker, the heir reads on, and takes the number after.
* **A sealed last file.** The file that the predecessor wrote last is replaced by a copy that ends at the logical end
  the replay has seen, once it was compared with that. That cuts off a torn tail, and also the predecessor, should it
  still be alive: what it writes from now on goes into a file without a name, and no later recovery finds it. Files in
  which nothing is, of masters that came no further than to claim a number, are sealed likewise.
* **Transactions decided or kept.** What was not prepared is rolled back in the journal, local transactions and XA
  branches alike. What was stays in doubt, through any number of lives, until its coordinator decides.
* **No index.** ActiveMQ's `db.data` describes the journal as it was; after any file was cut or removed it would refuse
  to start, so the index goes first. ActiveMQ rebuilds it from the journal.

A clean stop ends the journal with one `Trace` record, which ActiveMQ ignores. It names the messages that consumers have
seen, so that the next master marks just those as redelivered; without the record any message may have been.

Source: ActiveMQ 5.17, `KahaDBStore`, `MessageDatabase`.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as with_changes
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path

from pybroker import __version__
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.objects import decode_subscription_info, encode_subscription_info
from pybroker.broker.domain.ports import Backlog, Page, PreparedTransaction, Recovery, Sent, Settled
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.store import regular
from pybroker.store.holding import HoldingRoom
from pybroker.store.journal.appender import JournalSettings, SyncStrategy, explained
from pybroker.store.journal.bodies import READ_AHEAD_BYTES, BodyReader
from pybroker.store.journal.checkpoint import follower as resume
from pybroker.store.journal.checkpoint import snapshot
from pybroker.store.journal.collector import DAMAGED_DIRECTORY, GarbageCollector
from pybroker.store.journal.commands import (
    Command,
    Commit,
    Prepare,
    RemoveDestination,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    encode,
    encode_add_record,
    encode_remove_record,
)
from pybroker.store.journal.contents import FILE_SHIFT, OFFSET_SHIFT, SIZE_SHIFT, Added, Removed, Transaction, pack
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.format import Location, encode_record
from pybroker.store.journal.identity import keep_identity
from pybroker.store.journal.indexed import Messages
from pybroker.store.journal.indexer import GROWN_BYTES_MIN, Indexer
from pybroker.store.journal.kept import encode_kept
from pybroker.store.journal.limit import StoreLimit
from pybroker.store.journal.listing import Listing
from pybroker.store.journal.marks import TimeMarks
from pybroker.store.journal.reader import Damage, data_files
from pybroker.store.journal.replay import Progress, ReplayResult, flaw
from pybroker.store.journal.reserve import Reserve
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.takeover import claim_next, make_directory, seal
from pybroker.store.journal.writer import JournalWriter
from pybroker.store.pages import page_count
from pybroker.store.producers import UNSAID
from pybroker.store.runtime import StoreRuntime

INDEX_FILES = ("db.data", "db.redo", "db.free")
INDEX_HEADER_BYTES = 4096
"""Of ActiveMQ's page file: two copies of a properties text."""

_MASK_31 = 2**31 - 1
_RECORD_REST_BYTES = 256
"""What a record has beside its message: destination and id, mostly. More costs a second read, and nothing else."""

SETTLE_SECONDS = 0.01
"""Between two slices of the index, of some two milliseconds each: a million messages are settled in three seconds."""

CHECKPOINT = "pybroker index"
CLEAN_STOP = "pybroker clean stop "

DELIVERED_MAX = 20_000
"""Ids a clean stop names, at some 60 bytes each. Beyond, it is cheaper to call every pending message delivered."""

logger = logging.getLogger(__name__)


class JournalStore:
    """Implements `MessageStore` on a KahaDB directory. Whoever opens it holds the directory's lock.

    Args:
        directory: ActiveMQ's `kahadb` directory, or an empty or missing one.
        runtime: the world around.
        settings: how to write.
        prioritized: record that queues dispatch by priority; must agree with ActiveMQ's `prioritizedMessages` policy.
        files: the directory's file operations, another object in tests of failures.
        progress: told how far a recovery has come.
        follower: has read the journal as far as it went while another master wrote it; None: begin with the index.
        wants_index: asked at a clean stop, see `Indexer`.
        index_bytes_min: how much more journal makes another index worth writing.
        identity: the broker's name, and an id for a store that has none; None: the recovery says no id.
        may_create: begin a new journal in a directory that has none.
    """

    def __init__(
        self,
        directory: Path,
        *,
        runtime: StoreRuntime,
        settings: JournalSettings | None = None,
        prioritized: bool = False,
        files: JournalFiles | None = None,
        progress: Progress | None = None,
        follower: Follower | None = None,
        wants_index: Callable[[], bool] = lambda: True,
        index_bytes_min: int = GROWN_BYTES_MIN,
        identity: BrokerIdentity | None = None,
        may_create: bool = True,
    ) -> None:
        self.directory = directory
        self.damages: Sequence[Damage] = ()
        """What the recovery could not use, apart from a torn tail: lost, and logged record by record."""
        self._epoch = 0
        """Of this promotion: the number of the data file it began. It only grows, whoever was master."""
        self._runtime = runtime
        self._settings = settings or JournalSettings()
        self._prioritized = prioritized
        self._files = files or JournalFiles(directory)
        self._limit = StoreLimit(self._files, self._settings.store_bytes_max)
        self._progress = progress
        self._follower = follower
        self._identity = identity
        self._may_create = may_create
        self._state = StoreState()
        self._settling: Iterator[None] | None = None
        self._listing = Listing()
        self._is_open = False
        self._indexer = Indexer(
            directory,
            file_bytes_max=self._settings.file_bytes_max,
            runtime=runtime,
            has_room=self._has_room_for_index,
            is_wanted=wants_index,
            grown_bytes_min=index_bytes_min,
        )
        self._collector: GarbageCollector | None = None
        self._writer = self._new_writer(1)
        self._room: HoldingRoom | None = None

    # ------------------------------------------------------------ opening

    def recover(self) -> Recovery:
        """Read the journal, take the directory over, and return the contents. Blocks.

        Nothing is changed on disk before all of the journal was read, but for an empty data file, which stays when
        something goes wrong.

        Raises:
            StoreUnavailable: the directory cannot be read or written, another process creates files in it, or there is
                no journal where there must be one.
            JournalCorrupt: the directory holds something else than a KahaDB journal.
            LockNotHeld: the lock was lost on the way.
        """
        try:
            make_directory(self.directory, may_create=self._may_create)
            try:
                result = self._catch_up()
                recovery = self._read_contents(result)
                self._report(result)
                self._writer.fence()
                self._drop_index()
                if self._identity is not None:
                    recovery.broker_id = keep_identity(self._files, self._identity, self._writer.fence)
            except BaseException:
                self._writer.close_claim()
                raise
            self._seal(result)
            self._begin(result)
        except OSError as error:
            raise explained(error, self.directory) from error
        return recovery

    def _catch_up(self) -> ReplayResult:
        """Read what is left of the journal behind what a follower has read, or an index covers."""
        follower = self._follower or resume(self.directory)
        self._follower = None
        begun, before = time.perf_counter(), follower.record_count
        follower.catch_up(self._progress)
        read_on = partial(follower.catch_up, self._progress)
        self._epoch = claim_next(self._files, self._claim, check=self._runtime.fence, read_on=read_on)
        result = follower.finish(self._progress, below=self._epoch)
        if follower.location.file_id:
            milliseconds = (time.perf_counter() - begun) * 1000
            read = follower.record_count - before
            logger.info("%s: caught up %s records in %.1f ms", self.directory, f"{read:,}", milliseconds)
        self._state = follower.state
        self._listing = follower.listing
        self._indexer.note(follower.resumed_at, follower.finished_files if follower.resumed_at.file_id else {})
        return result

    def lend_reserve(self) -> bool:
        """Give the reserve to another store on this disk; False when there is none to give. Blocks, in any thread.

        Nothing persistent is accepted until there is room for it again.
        """
        return self._writer.lend_reserve()

    def _claim(self, file_id: int) -> None:
        """Claim a number for the first data file of this master."""
        self._writer.close_claim()  # of an earlier try
        self._writer = self._new_writer(file_id)
        Reserve(self._files, self._settings.reserve_bytes).spend_on(self._writer.claim)

    def _read_contents(self, result: ReplayResult) -> Recovery:
        """Return what the state amounts to. No body is read, but of what transactions in doubt have sent."""
        state = self._state
        with BodyReader(self.directory) as reader:
            recovery = Recovery(
                queues={queue: self._queue_in_order(queue) for queue in state.queues()},
                backlogs=self._read_backlogs(),
                prepared=[
                    self._read_prepared(transaction_id, transaction, reader)
                    for transaction_id, transaction in state.prepared.items()
                    if isinstance(transaction_id, XATransactionId)  # which all are
                ],
                delivered=frozenset() if self._activemq_stopped_cleanly() else _delivered(result),
            )
            self.damages = [*result.damages, *reader.damages]
        return recovery

    def _read_backlogs(self) -> list[Backlog]:
        """Return the durable subscriptions' backlogs."""
        backlogs: list[Backlog] = []
        for topic, _, subscription in self._state.subscriptions():
            messages, pending = self._state.destinations[topic].messages, subscription.pending
            message_ids = self._in_order(messages)
            if len(pending) < len(message_ids):
                message_ids = list(filter(pending.__contains__, message_ids))
            info = with_changes(decode_subscription_info(subscription.info), destination=topic)
            backlogs.append(Backlog(subscription=info, message_ids=message_ids))
        return backlogs

    def _queue_in_order(self, queue: Destination) -> list[str]:
        """Return a queue's message ids in dispatch order; a standby may have listed them before."""
        messages = self._state.destinations[queue].messages
        return self._in_order(messages) if self._prioritized else self._listing.take(queue, messages)

    def _in_order(self, messages: Messages) -> list[str]:
        """Return message ids in dispatch order. By age it takes some milliseconds for a million."""
        if not self._prioritized:
            return list(messages)
        classes: tuple[list[str], ...] = ([], [], [])
        for message_id, packed in messages.items():
            classes[packed & 3].append(message_id)
        return [*chain(*classes)]

    def _read_prepared(
        self, transaction_id: XATransactionId, transaction: Transaction, reader: BodyReader
    ) -> PreparedTransaction:
        """Return a transaction in doubt, with the messages it is about to add."""
        added = [
            (each.destination, each.message_id, each.entry)
            for each in transaction.operations
            if isinstance(each, Added)
        ]
        removed = [each for each in transaction.operations if isinstance(each, Removed)]
        return PreparedTransaction(
            transaction_id=transaction_id,
            sent=[
                Sent(destination, message_id, next(reader.bodies([entry]), None) if destination.is_topic else None)
                for destination, message_id, entry in added
            ],
            acknowledged=[
                Settled(destination, message_id, subscription_key)
                for destination, message_id, subscription_key, _ in removed
                if self._state.is_pending(destination, message_id, subscription_key)
            ],
        )

    def _report(self, result: ReplayResult) -> None:
        records = sum(result.records.values())
        logger.info("%s: %d journal records up to db-%d.log", self.directory, records, result.last_file_id)
        for tail in result.torn_tails:
            logger.info("%s: the last write was torn, nothing in it was acknowledged: %s", self.directory, tail)
        for damage in self.damages:
            logger.error("%s: damaged: %s", self.directory, damage)

    def _activemq_stopped_cleanly(self) -> bool:
        """Tell whether an ActiveMQ was the last master, and stopped in order: then it marks nothing as redelivered.

        Only an ActiveMQ leaves an index, whose first page says so in plain text.
        """
        try:
            with open(self.directory / "db.data", "rb", opener=regular.opener) as index:
                return b"cleanShutdown=true" in index.read(INDEX_HEADER_BYTES)
        except FileNotFoundError:
            return False

    def _drop_index(self) -> None:
        self._files.remove(*(self.directory / name for name in INDEX_FILES), *self._files.unfinished())

    def _seal(self, result: ReplayResult) -> None:
        """Cut the files that predecessors may write at their logical ends, and the predecessors off from them."""
        torn = {tail.file_id for tail in result.torn_tails}
        reserve = Reserve(self._files, self._settings.reserve_bytes)
        for file_id, end in result.open_ends.items():
            if end and file_id not in torn and _stopped_cleanly(result):
                continue
            if file_id in torn:
                self._keep_torn(self._files.path(file_id))
            self._writer.fence()
            seal(self._files, file_id, end, reserve, flaw=partial(flaw, chain=result.chains.get(file_id, 0)))

    def _keep_torn(self, path: Path) -> None:
        """Keep a file whose end is to be cut off: what looks like a torn write may be damage to a whole one."""
        target = self.directory / DAMAGED_DIRECTORY
        try:
            self._files.keep(path, target)
        except OSError as error:  # no room, or a file system without hard links
            logger.warning("%s: its torn end is cut off, and the file as it was could not be kept: %s", path, error)
        else:
            logger.info("%s: its torn end is cut off; the file as it was is in %s", path, target)

    def _begin(self, result: ReplayResult) -> None:
        """Begin a new data file with what ends the predecessor's affairs, and a remark about who goes on."""
        commands: list[Command] = [Rollback(transaction) for transaction in result.unfinished]
        commands.append(Trace(f"pybroker {__version__} started {self._now()}, epoch {self._epoch}"))
        locations = self._writer.start([encode_record(encode(command)) for command in commands])
        for command, location in zip(commands, locations, strict=True):
            self._state.apply(command, location)
        self._collector = GarbageCollector(
            self._state,
            self._writer,
            self._files,
            file_ids=data_files(self.directory),
            settings=self._settings,
            check=self._writer.fence,
            post=self._runtime.post,
            append=self._append,
            damaged={damage.file_id for damage in self.damages},
        )
        if self._runtime.call_later is not None and self._settings.sync is SyncStrategy.ALWAYS:
            self._room = HoldingRoom(
                write=self._write,
                when_written=self._writer.when_durable,
                tell=self._writer.tell,
                runtime=self._runtime,
                write_seconds=lambda: self._writer.write_seconds,
            )
        self._is_open = True

    def _new_writer(self, file_id: int) -> JournalWriter:
        return JournalWriter(
            self._files,
            file_id=file_id,
            settings=self._settings,
            runtime=self._runtime,
            on_shortage=self._make_room,
            marks=TimeMarks(self._runtime.clock),
        )

    # ------------------------------------------------------------ messages

    def read(self, destination: Destination, message_ids: Sequence[str]) -> list[Message]:
        """Return durable messages, in this order. Blocks for a read of the disk, as a rule.

        What cannot be read back is left out, noted in `damages` and logged. It stays in the journal, where a repaired
        file or a restored copy makes it readable for the next master.

        Raises:
            StoreUnavailable: a data file cannot be opened.
        """
        contents = self._state.destinations.get(destination)
        held = {} if contents is None else contents.messages
        places = [
            (message_id, packed >> FILE_SHIFT, packed >> OFFSET_SHIFT & _MASK_31, packed >> SIZE_SHIFT & _MASK_31)
            for message_id, packed in zip(message_ids, map(held.get, message_ids), strict=True)
            if packed is not None
        ]
        if len(places) < len(message_ids):
            missing = [message_id for message_id in message_ids if message_id not in held]
            logger.error("%s: %s is to have %s, which the journal has not", self.directory, destination, missing)
        # One read for all, where they follow one another: their records are a little longer than the messages.
        span = sum([place[3] for place in places]) + _RECORD_REST_BYTES * len(places)
        with BodyReader(self.directory, read_ahead=min(span, READ_AHEAD_BYTES)) as reader:
            messages = list(reader.page(places))
        for damage in reader.damages:
            self.damages = [*self.damages, damage]
            logger.error("%s: damaged: %s. A message on %s is not delivered.", self.directory, damage, destination)
        return messages

    def read_page(self, destination: Destination, message_ids: Sequence[str], bytes_max: int) -> Page:
        """Return messages as `read` does, from the first id on until they take `bytes_max` bytes or more.

        Raises:
            StoreUnavailable: a data file cannot be opened.
        """
        contents = self._state.destinations.get(destination)
        held = {} if contents is None else contents.messages
        count = page_count((held.get(each, 0) >> SIZE_SHIFT & _MASK_31 for each in message_ids), bytes_max)
        return Page(self.read(destination, message_ids[:count]), count)

    @property
    def is_on_disk(self) -> bool:
        """True: what is durable can be read back."""
        return True

    @property
    def keeps_uncommitted(self) -> bool:
        """True: a transaction's messages are in the journal before its commit."""
        return True

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        """Append a persistent message, unless it is there already, or no durable subscription is there to want it.

        A message is there already when a failover client sends again what it got no answer for. Whether anybody wants a
        topic's message is asked when it is sent, also in a transaction, as ActiveMQ does.

        Returns:
            False if the message is there already.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        destination = message.destination
        contents = self._state.destinations.get(destination)
        if contents is None:
            if destination.is_topic:
                return True
        elif message.message_id in contents.messages:
            return False
        elif contents.is_topic and not contents.subscriptions:
            return True
        room = self._room
        if room is not None:
            if room.is_open and transaction is None and not destination.is_topic:
                return self._hold(room, message)
            room.flush()
            room.passed(message.message_id)
        self._write(message, transaction)
        return True

    def _hold(self, room: HoldingRoom, message: Message) -> bool:
        """Keep a message that is not stored from the journal for a moment, unless it is held already: then False."""
        if (message.destination, message.message_id) in room:
            return False
        room.add(message)
        self._state.sequences.note(message.message_id, UNSAID)
        return True

    def _write(self, message: Message, transaction: TransactionId | None = None) -> None:
        location = self._writer.append(encode_add_record(message, transaction, priority_supported=self._prioritized))
        packed = pack(location, len(message.data), message.priority, self._prioritized)
        self._state.add(message.destination, message.message_id, packed, transaction)

    def remove(
        self,
        destination: Destination,
        message_id: str,
        transaction: TransactionId | None = None,
        *,
        consumed_by: str | None = "",
    ) -> None:
        """Append that a queue's message is gone; nothing happens when it is not there.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        room = self._room
        if room is not None:
            if consumed_by is not None and transaction is None:
                if room.consume(destination, message_id, consumed_by):
                    return
                room.consumed(message_id)
            else:
                room.flush()
        if self._state.contains(destination, message_id):
            location = self._writer.append(encode_remove_record(destination, message_id, transaction))
            self._state.remove(destination, message_id, None, location.file_id, transaction)

    def acknowledge(
        self,
        topic: Destination,
        subscription_key: str,
        message_id: str,
        transaction: TransactionId | None = None,
        *,
        consumed_by: str | None = "",
    ) -> None:
        """Append that a durable subscription is done with a message; nothing happens when it has it not pending.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        contents = self._state.destinations.get(topic)
        subscription = None if contents is None else contents.subscriptions.get(subscription_key)
        if subscription is not None and message_id in subscription.pending:
            self._flush_room()
            location = self._writer.append(encode_remove_record(topic, message_id, transaction, subscription_key))
            self._state.remove(topic, message_id, subscription_key, location.file_id, transaction)

    # ------------------------------------------------------------ everything else

    def subscribe(self, subscription: DurableSubscription, *, retroactive: bool = False) -> Sequence[str]:
        """Append a durable subscription; a new one that is retroactive gets what the topic holds.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        contents = self._state.destinations.get(subscription.destination)
        gets = contents if retroactive and contents and subscription.key not in contents.subscriptions else None
        info = encode_subscription_info(subscription)
        self._append(Subscribe(subscription.destination, subscription.key, info, retroactive=gets is not None))
        return () if gets is None else self._in_order(gets.messages)

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """Append the end of a durable subscription and of its backlog; nothing happens when there is none.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        contents = self._state.destinations.get(topic)
        if contents is not None and subscription_key in contents.subscriptions:
            self._append(Unsubscribe(topic, subscription_key))

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 for one that is not remembered.

        It counts what is or was in this store, from its commit on if there was one. A topic's message that no durable
        subscription wanted is not stored, and does not count.
        """
        return self._state.sequences.last(producer_id)

    def prepare(self, transaction: XATransactionId) -> None:
        """Append that a transaction is prepared; nothing happens when it did nothing that lasts.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if transaction in self._state.inflight:
            self._append(Prepare(transaction))

    def commit(self, transaction: TransactionId) -> None:
        """Append the commit; nothing happens when the transaction did nothing that lasts.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if self._is_unfinished(transaction):
            self._append(Commit(transaction))

    def rollback(self, transaction: TransactionId) -> None:
        """Append the roll-back; nothing happens when the transaction did nothing that lasts.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if self._is_unfinished(transaction):
            self._append(Rollback(transaction))

    def remove_destination(self, destination: Destination) -> None:
        """Append that a destination and all it holds is gone; nothing happens when it never held anything.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        self._flush_room()
        if destination in self._state.destinations:
            self._append(RemoveDestination(destination))

    def keep(self, destination: Destination) -> None:
        """Append that a queue exists also while it is empty; nothing happens when that is known.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if destination.type is DestinationType.QUEUE and destination not in self._state.kept:
            self._append(encode_kept((destination,)))

    def forget_empty(self, destination: Destination) -> None:
        """Free what is remembered of a destination that holds nothing, and is not kept."""
        self._state.forget_empty(destination)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all that was appended so far is written and, if the strategy says so, synced."""
        if self._room is None or not self._room.when_safe(callback, durable=True):
            self._writer.when_durable(callback)

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Call back once all messages added so far are durable, or were consumed."""
        if self._room is None or not self._room.when_safe(callback):
            self._writer.when_durable(callback)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not known to be written."""
        return self._writer.unwritten_bytes + (0 if self._room is None else self._room.byte_count)

    @property
    def epoch(self) -> int:
        """The number of the data file that this take-over began; 0 before."""
        return self._epoch

    @property
    def is_full(self) -> bool:
        """True while the disk has no room for more than what makes room, or the journal takes as much as it may."""
        return self._writer.is_full or (self._settings.store_bytes_max > 0 and self._is_limit_reached())

    def _is_limit_reached(self) -> bool:
        writer, collector = self._writer, self._collector
        changes = 0 if collector is None else collector.change_count
        return self._limit.is_reached(writer.file_id, writer.end, changes)

    def _append(self, command: Command) -> None:
        """Encode, append, apply: what every change is."""
        self._flush_room()
        self._state.apply(command, self._writer.append(encode_record(encode(command))))

    def _flush_room(self) -> None:
        """Append all that is held: nothing else may pass it."""
        if self._room is not None:
            self._room.flush()

    def _is_unfinished(self, transaction: TransactionId) -> bool:
        return transaction in self._state.inflight or transaction in self._state.prepared

    # ------------------------------------------------------------ cleaning up and closing

    def cleanup(self) -> None:
        """Remove (or archive) data files that are needed no more, once all that was appended so far is durable.

        Decides at once, and acts in the writer's thread. Cheap enough to be called every few seconds. Where nothing
        could be removed for a while, files that hold little but acknowledgements are compacted, a few at a time.
        """
        if self._collector is not None:
            self._collector.collect()
        if self._is_open and self._settling is None:
            self._settling = self._state.settling()
            self._settle()
        if self._is_open and self._indexer.is_due(Location(self._writer.file_id, 0), self._runtime.clock()):
            self.checkpoint()

    def _settle(self) -> None:
        """Settle some of what the index has brought, and have the rest follow; without a loop all of it."""
        assert self._settling is not None, "begun by the first cleanup"
        for _ in self._settling if self._is_open else ():
            if (call_later := self._runtime.call_later) is not None:
                call_later(SETTLE_SECONDS, self._settle)
                return

    def checkpoint(self) -> None:
        """Have an index written in the background, once all that was appended so far is durable."""
        taken = snapshot(self._state, self._append_apart(Trace(CHECKPOINT)))
        self.when_durable(partial(self._indexer.begin, taken))

    def _has_room_for_index(self, byte_count: int) -> bool:
        """Tell whether the disk can spare so much for an index. Asked in the index's thread.

        Behind it must stay as much as the reserve and a batch take, or it would be the index that fills the disk.
        """
        spare = self._settings.reserve_bytes + self._settings.batch_bytes_max
        return not self._writer.is_full and self._files.free_bytes() >= byte_count + spare

    def _append_apart(self, remark: Trace) -> Location:
        """Append a remark as a batch of its own, and return where that begins."""
        self._flush_room()
        self._writer.end_batch()
        self._writer.append(encode_record(encode(remark)))
        return self._writer.batch

    def _make_room(self) -> None:
        """Remove what can be, now: the longer the acknowledgements that allow it wait, the less fit on the reserve."""
        if self._is_open and self._collector is not None:
            self._collector.remove()

    @property
    def is_cleaning(self) -> bool:
        """True while the writer's thread has files to remove or to compact."""
        return self._collector is not None and self._collector.is_busy

    def close(self, delivered: Iterable[str] = ()) -> None:
        """Clean up, write what is left, note which messages consumers have seen, and let go. Blocks.

        Raises:
            StoreError: not everything could be written.
            LockNotHeld: the lock was lost before.
        """
        if self._is_open:
            self._is_open = False
            if self._collector is not None:
                self._collector.remove()
            self._flush_room()
            if self._collector is not None:
                self._collector.keep_remarks()
            end = self._append_apart(Trace(_clean_stop(delivered)))  # behind the index, so that a start reads it
            self._writer.close()
            self._indexer.end(end, lambda: snapshot(self._state, end))

    def abandon(self) -> None:
        """Let go at once, as if killed: for a master that lost its lock. Writes nothing more, acknowledges nothing."""
        self._is_open = False
        self._writer.abandon()

    def _now(self) -> str:
        return datetime.fromtimestamp(self._runtime.clock() / 1000, UTC).isoformat(timespec="milliseconds")


def _clean_stop(delivered: Iterable[str]) -> str:
    """Return the remark of a clean stop; it calls everything delivered when there is too much to name."""
    named: set[str] = set()
    for message_id in delivered:
        named.add(message_id)
        if len(named) > DELIVERED_MAX:
            break
    return CLEAN_STOP + json.dumps({"delivered": sorted(named) if len(named) <= DELIVERED_MAX else None})


def _stopped_cleanly(result: ReplayResult) -> bool:
    return bool(result.closing) and result.closing[-1].startswith(CLEAN_STOP)


def _delivered(result: ReplayResult) -> frozenset[str] | None:
    """Return what the last master said about deliveries; of a journal without records nothing can have been."""
    if not result.last_file_id:
        return frozenset()
    if not _stopped_cleanly(result):
        return None
    try:
        remark: dict[str, list[str] | None] = json.loads(result.closing[-1].removeprefix(CLEAN_STOP))
        named = remark["delivered"]
        return None if named is None else frozenset(named)
    except (ValueError, KeyError, TypeError):
        # Not our words after all. Calling everything delivered is always true enough.
        return None
