"""A message store that is a KahaDB directory: the port `MessageStore`, made of this package's modules.

```text
recover   read the journal, take the directory over (see `takeover`), return the contents (see `recovery`)
add …     encode -> append to the open batch -> apply to the state            (no I/O, no waiting)
          unless write elision holds it: a message consumed in that moment is never written (see `write_elision`)
cleanup   select files from the state -> once all is durable: remove or compact them, one by one, in the writer's thread
close     cleanup -> write the rest, and a record of the clean stop (see `clean_stop`)
```

A take-over rolls back in the journal all transactions that were not prepared, local ones and XA branches. Prepared ones
stay in doubt, through any number of masters, until their coordinator decides.

Source: ActiveMQ 5.17, `KahaDBStore`, `MessageDatabase`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pybroker import __version__
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import NotReadYet
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.objects import encode_subscription_info
from pybroker.broker.domain.ports import Page, RemovalReason
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.store.journal.activity import JournalActivity
from pybroker.store.journal.appender import PIECE_BYTES_MIN, JournalSettings, SyncStrategy
from pybroker.store.journal.bodies import READ_AHEAD_BYTES, BodyReader, Place
from pybroker.store.journal.clean_stop import INDEX_FILES, clean_stop
from pybroker.store.journal.collector import GarbageCollector
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
    encode_add_pieces,
    encode_add_record,
    encode_remove_record,
)
from pybroker.store.journal.contents import FILE_SHIFT, OFFSET_SHIFT, SIZE_SHIFT, in_order, pack
from pybroker.store.journal.declared_queues import encode_declared
from pybroker.store.journal.elsewhere import RecordsElsewhere
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.follower import Follower
from pybroker.store.journal.format import Location, encode_record
from pybroker.store.journal.identity import keep_identity
from pybroker.store.journal.large_bodies import LARGE_BODY_BYTES, LargeBodies
from pybroker.store.journal.marks import TimeMarks
from pybroker.store.journal.reader import Damage, data_files
from pybroker.store.journal.recovery import JournalReading
from pybroker.store.journal.replay import Progress
from pybroker.store.journal.replicated import ReplicatedJournal
from pybroker.store.journal.reserve import Reserve
from pybroker.store.journal.size import JournalSize
from pybroker.store.journal.snapshot_writer import GROWN_BYTES_MIN, SnapshotWriter
from pybroker.store.journal.state import StoreState, encode_sequences
from pybroker.store.journal.store_snapshot import follower as resume
from pybroker.store.journal.store_snapshot import snapshot
from pybroker.store.journal.takeover import TakeOver
from pybroker.store.journal.writer import JournalWriter
from pybroker.store.pages import page_count
from pybroker.store.producers import NOT_JOURNALLED
from pybroker.store.runtime import StoreRuntime
from pybroker.store.write_elision import WriteElisionBuffer

_MASK_31 = 2**31 - 1
_RECORD_REST_BYTES = 256
"""Estimated bytes of a record beside its message: mostly destination and id. A larger one costs a second read."""

MATERIALISE_SECONDS = 0.01
"""Between two slices of a snapshot, of some two milliseconds each: a million messages take three seconds."""

REMOVAL_SECONDS = 0.005
"""Between two pieces of a removed destination's messages, of about a millisecond each."""

SNAPSHOT_TRACE = "pybroker index"
logger = logging.getLogger(__name__)


class JournalStore:
    """Implements `MessageStore` on a KahaDB directory. The opening process holds the directory's lock.

    Args:
        directory: ActiveMQ's `kahadb` directory, or an empty or missing one.
        runtime: clock, threads and the lock's fence.
        settings: how batches are written and synced.
        prioritized: record that queues dispatch by priority; must agree with ActiveMQ's `prioritizedMessages` policy.
        files: the directory's file operations, another object in tests of failures.
        progress: receives the progress of a recovery.
        follower: has read the journal so far while another master wrote it; None: begin with the snapshot.
        wants_snapshot: called at a clean stop, see `SnapshotWriter`.
        snapshot_bytes_min: growth of the journal after which another snapshot is due.
        identity: the broker's name, and an id for a store that has none; with a replica, the id of the cluster. None:
            the recovery returns no id.
        may_create: begin a new journal in a directory that has none.
        replica: the journal's copies on other members; None: there are none.
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
        wants_snapshot: Callable[[], bool] = lambda: True,
        snapshot_bytes_min: int = GROWN_BYTES_MIN,
        identity: BrokerIdentity | None = None,
        may_create: bool = True,
        replica: ReplicatedJournal | None = None,
    ) -> None:
        self.directory = directory
        self.damages: Sequence[Damage] = ()
        """Damage found by the recovery, apart from a torn tail: lost, and logged record by record."""
        self.on_readable: Callable[[], None] = _ignore
        """Called once a message may be read that `read_page` could not return yet."""
        self._epoch = 0
        """Number of the data file that this promotion began. It only grows from master to master."""
        self._runtime = runtime
        self._settings = settings or JournalSettings()
        self._prioritized = prioritized
        self._files = files or JournalFiles(directory)
        self._size = JournalSize(self._files)
        self._progress = progress
        self._follower = follower
        self._identity = identity
        self._may_create = may_create
        self._replica = replica
        self._state = StoreState()
        self._materialising: Iterator[None] | None = None
        self._is_removing = False
        self._is_open = False
        self._snapshot_writer = SnapshotWriter(
            directory,
            runtime=runtime,
            has_space=self._has_space_for_snapshot,
            is_wanted=wants_snapshot,
            grown_bytes_min=snapshot_bytes_min,
        )
        self._collector: GarbageCollector | None = None
        self._writer = self._new_writer(1)
        self._elision: WriteElisionBuffer | None = None
        self._large: LargeBodies | None = None
        self._elsewhere: RecordsElsewhere | None = None

    # ------------------------------------------------------------ opening

    def recover(self) -> Recovery:
        """Read the journal, take the directory over, and return the contents. Blocks.

        Until all of the journal is read, nothing changes on disk except for an empty new data file, which stays after a
        failure.

        Raises:
            StoreUnavailable: the directory cannot be read or written, another process creates files in it, or there is
                no journal where there must be one.
            JournalCorrupt: the directory holds no KahaDB journal.
            LockNotHeld: the lock was lost.
        """
        take_over = TakeOver(
            self._files,
            self._new_writer,
            check=self._runtime.fence,
            reserve=Reserve(self._files, self._settings.reserve_bytes),
            index_files=INDEX_FILES,
            may_create=self._may_create,
            first_file=0 if self._replica is None else self._replica.first_file,
        )
        return take_over.run(self._start_reading, self._begin).recovery

    def _start_reading(self) -> JournalReading:
        """Continue behind the end that a follower has read, or that a snapshot covers."""
        follower, self._follower = self._follower or resume(self.directory), None
        return JournalReading(follower, prioritized=self._prioritized, progress=self._progress)

    def _begin(self, reading: JournalReading) -> None:
        """Begin a new data file: roll back the former master's open transactions and name the new master."""
        follower = reading.follower
        self.damages = reading.damages
        self._epoch = self._writer.file_id
        self._state = follower.state
        self._snapshot_writer.set_covered(
            follower.resumed_at, follower.finished_files if follower.resumed_at.file_id else {}
        )
        if self._identity is not None:
            reading.recovery.broker_id = keep_identity(
                self._files, self._identity, self._writer.fence, is_of_cluster=self._replica is not None
            )
        self._collector = GarbageCollector(
            self._state,
            self._writer,
            self._files,
            file_ids=data_files(self.directory),
            settings=self._settings,
            check=self._writer.fence,
            post=self._runtime.post,
            on_failure=self._runtime.on_failure,
            call_later=self._runtime.call_later,
            append=self._append,
            flush=self._flush_elision,
            sizes=self._finished_sizes,
            damaged={damage.file_id for damage in self.damages},
        )
        commands: list[Command] = [Rollback(transaction) for transaction in reading.result.unfinished]
        commands.append(Trace(f"pybroker {__version__} started {self._now()}, epoch {self._epoch}"))
        locations = self._writer.start([encode_record(encode(command)) for command in commands])
        for command, location in zip(commands, locations, strict=True):
            self._state.apply(command, location)
        if self._runtime.call_later is not None and self._settings.sync is SyncStrategy.ALWAYS:
            self._elision = WriteElisionBuffer(self, self._writer, self._runtime)
        if self._runtime.call_later is not None:
            self._large = LargeBodies(self.directory, self._runtime, self._runtime.call_later)
            self._large.on_readable = lambda: self.on_readable()
            if self._replica is not None:
                self._elsewhere = RecordsElsewhere(
                    self.directory,
                    self._replica.read_elsewhere,
                    lambda: self.on_readable(),
                    self._runtime.call_later,
                )
        self._is_open = True

    def _new_writer(self, file_id: int) -> JournalWriter:
        """Replace the writer by one that begins with the data file of that number."""
        self._writer = JournalWriter(
            self._files,
            file_id=file_id,
            settings=self._settings,
            runtime=self._runtime,
            on_shortage=self._make_space,
            marks=TimeMarks(self._runtime.clock),
            replica=self._replica,
        )
        return self._writer

    def lend_reserve(self) -> bool:
        """Release the reserve for another store on this disk; return False if there is none. Blocks, in any thread.

        Nothing persistent is accepted until the reserve fits again.
        """
        return self._writer.lend_reserve()

    # ------------------------------------------------------------ messages

    def read(self, destination: Destination, message_ids: Sequence[str]) -> list[Message]:
        """Return durable messages, in this order. Blocks for a read of the disk, as a rule.

        Unreadable ones are read from another member's copy, if there is one. Else they are left out, recorded in
        `damages` and logged. They stay in the journal: the next master can read them from a repaired file or a restored
        copy.

        Raises:
            NotReadYet: another member is asked for one; see `on_readable`.
            StoreUnavailable: a data file cannot be opened.
        """
        contents = self._state.destinations.get(destination)
        held = {} if contents is None else contents.messages
        places = [
            _place(message_id, packed)
            for message_id, packed in zip(message_ids, map(held.get, message_ids), strict=True)
            if packed is not None
        ]
        if len(places) < len(message_ids):
            missing = [message_id for message_id in message_ids if message_id not in held]
            logger.error("%s: %s is to have %s, which the journal has not", self.directory, destination, missing)
        # One read for all that follow one another: records are a little longer than their messages.
        span = sum([place[3] for place in places]) + _RECORD_REST_BYTES * len(places)
        elsewhere = self._elsewhere
        if elsewhere is not None:
            elsewhere.is_waiting = False  # of a page that a file which cannot be opened has ended
        with BodyReader(
            self.directory,
            read_ahead=min(span, READ_AHEAD_BYTES),
            elsewhere=None if elsewhere is None else elsewhere.message,
        ) as reader:
            messages = list(reader.page(places))
        self._require_answers()
        return self._report(destination, messages, reader.damages)

    def _require_answers(self) -> None:
        """Check that no damaged message of a page is being asked for elsewhere.

        Raises:
            NotReadYet: one is; `on_readable` follows.
        """
        if self._elsewhere is not None and self._elsewhere.is_waiting:
            self._elsewhere.is_waiting = False
            raise NotReadYet("a damaged message is being read from another member's copy")

    def _found_elsewhere(self, elsewhere: RecordsElsewhere, place: Place) -> Message | None:
        """Return a message from another member's copy; None if none has it. Raises as `_require_answers`."""
        elsewhere.is_waiting = False
        found = elsewhere.message(place)
        self._require_answers()
        return found

    def _read_large(self, destination: Destination, place: Place) -> list[Message]:
        """Return a large message, as a list; an empty one if it is damaged, and no other member has it."""
        assert self._large is not None, "there is an event loop"
        elsewhere = self._elsewhere
        if elsewhere is not None and elsewhere.was_asked(place):  # this disk was read already
            found = self._found_elsewhere(elsewhere, place)
            if found is not None:
                return [found]
        messages, damages = self._large.read(place)
        if damages and elsewhere is not None:
            found = self._found_elsewhere(elsewhere, place)
            if found is not None:
                return [found]
        return self._report(destination, messages, damages)

    def _report(
        self, destination: Destination, messages: Sequence[Message], damages: Sequence[Damage]
    ) -> list[Message]:
        """Return the messages that were read, and report those that are damaged."""
        for damage in damages:
            self.damages = [*self.damages, damage]
            logger.error("%s: damaged: %s. A message on %s is not delivered.", self.directory, damage, destination)
        return list(messages)

    def read_page(self, destination: Destination, message_ids: Sequence[str], bytes_max: int) -> Page:
        """Return messages as `read` does, up to the one that reaches `bytes_max` bytes, or before a large one.

        A large message is a page of its own, and read in a thread; without an event loop it is read at once.

        Raises:
            NotReadYet: a large message is being read, or a damaged one from another member; see `on_readable`.
            StoreUnavailable: a data file cannot be opened.
        """
        contents = self._state.destinations.get(destination)
        held = {} if contents is None else contents.messages
        count = page_count((held.get(each, 0) >> SIZE_SHIFT & _MASK_31 for each in message_ids), bytes_max)
        if self._large is not None and count:
            last_id = message_ids[count - 1]
            last = held.get(last_id, 0)
            if last >> SIZE_SHIFT & _MASK_31 >= LARGE_BODY_BYTES:
                if count == 1:
                    return Page(self._read_large(destination, _place(last_id, last)), 1)
                count -= 1
        return Page(self.read(destination, message_ids[:count]), count)

    @property
    def supports_paging(self) -> bool:
        """True: durable messages can be read back."""
        return True

    @property
    def keeps_uncommitted(self) -> bool:
        """True: a transaction's messages are in the journal before its commit."""
        return True

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        """Append a persistent message unless it is stored already, or its topic has no durable subscription.

        It is stored already when a failover client sends it again because it got no answer. A topic's subscriptions
        count at the time of the send, also in a transaction, as in ActiveMQ.

        Returns:
            False if the message is stored already.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        destination = message.destination
        contents = self._state.destinations.get(destination)
        is_for_one = False
        if contents is None:
            if destination.is_topic:
                return True
        elif message.message_id in contents.messages:
            return False
        elif contents.is_topic:
            if not contents.subscriptions:
                return True
            is_for_one = len(contents.subscriptions) == 1
        elision = self._elision
        if elision is not None and (is_new := elision.offer(message, transaction, is_for_one=is_for_one)) is not None:
            return is_new
        self.write(message, transaction)
        return True

    def expect(self, message: Message) -> bool:
        """Add a message that write elision holds; `add` has checked that it is not stored."""
        self._state.sequences.record(message.message_id, NOT_JOURNALLED)
        return True

    def write_sequences(self, numbers: Mapping[str, int]) -> None:
        """Append the producers' sequence numbers of consumed messages that were never written.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        trace = encode_sequences(numbers)
        self._state.apply(trace, self._writer.append(encode_record(encode(trace))))

    def write(self, message: Message, transaction: TransactionId | None = None) -> None:
        """Append a message that is not stored.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        supported = self._prioritized
        if len(message.data) < PIECE_BYTES_MIN:
            location = self._writer.append(encode_add_record(message, transaction, priority_supported=supported))
        else:
            location = self._writer.append_pieces(encode_add_pieces(message, transaction, priority_supported=supported))
        packed = pack(location, len(message.data), message.priority, self._prioritized)
        self._state.add(message.destination, message.message_id, packed, transaction)

    def remove(
        self,
        destination: Destination,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Append a queue's acknowledgement; does nothing if the message is not stored.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        elision = self._elision
        if elision is not None and elision.elide(destination, message_id, transaction, reason, connection_id):
            return
        if self._state.contains(destination, message_id):
            location = self._writer.append(encode_remove_record(destination, message_id, transaction))
            self._state.remove(destination, message_id, None, location.file_id, transaction)

    def acknowledge(
        self,
        topic: Destination,
        subscription_key: str,
        message_id: str,
        transaction: TransactionId | None = None,
        reason: RemovalReason = RemovalReason.CONSUMED,
        connection_id: str = "",
    ) -> None:
        """Append a durable subscription's acknowledgement; does nothing if the message is not pending for it.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        contents = self._state.destinations.get(topic)
        subscription = None if contents is None else contents.subscriptions.get(subscription_key)
        if contents is None or subscription is None:
            return
        elision = self._elision
        if elision is not None and elision.elide(topic, message_id, transaction, reason, connection_id):
            return
        if self._state.give(contents, subscription, message_id):
            location = self._writer.append(encode_remove_record(topic, message_id, transaction, subscription_key))
            self._state.remove(topic, message_id, subscription_key, location.file_id, transaction)

    # ------------------------------------------------------------ everything else

    def subscribe(self, subscription: DurableSubscription, *, retroactive: bool = False) -> Sequence[str]:
        """Append a durable subscription; a new one that is retroactive gets what the topic holds.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        topic, key = subscription.destination, subscription.key
        self._flush_elision()  # what is held is for the subscription that was alone until now
        if retroactive:
            self._state.settle(topic)
        contents = self._state.destinations.get(topic)
        gets = contents if retroactive and contents and key not in contents.subscriptions else None
        command = Subscribe(topic, key, encode_subscription_info(subscription), retroactive=gets is not None)
        self._state.begin_subscription(command, self._writer.append(encode_record(encode(command))))
        if gets is None:
            return ()
        self._begin_removals()
        return in_order(gets.messages, prioritized=self._prioritized)

    def settling(self, topic: Destination) -> Iterator[int]:
        """Return steps after which a retroactive subscription to a topic can begin at once."""
        return self._state.settling(topic)

    def unsubscribe(self, topic: Destination, subscription_key: str) -> None:
        """Append the end of a durable subscription and of its backlog; does nothing if there is none.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        contents = self._state.destinations.get(topic)
        if contents is not None and subscription_key in contents.subscriptions:
            self._flush_elision()
            location = self._writer.append(encode_record(encode(Unsubscribe(topic, subscription_key))))
            self._state.begin_unsubscription(topic, subscription_key, location)
            self._begin_removals()

    def last_sequence(self, producer_id: str) -> int:
        """Return the highest sequence number stored for a producer, -1 for an unknown one.

        It counts messages that are or were in this store, those of a transaction from its commit on. A topic's message
        without a durable subscription is not stored, and does not count.
        """
        return self._state.sequences.last(producer_id)

    def prepare(self, transaction: XATransactionId) -> None:
        """Append a transaction's prepare; does nothing if it has no persistent operation.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if transaction in self._state.inflight:
            self._append(Prepare(transaction))

    def commit(self, transaction: TransactionId) -> None:
        """Append the commit; does nothing if the transaction has no persistent operation.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if self._is_unfinished(transaction):
            self._append(Commit(transaction))

    def commit_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Append the commit; return the steps that apply it to the state.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if not self._is_unfinished(transaction):
            return iter(())
        self._flush_elision()
        location = self._writer.append(encode_record(encode(Commit(transaction))))
        return self._state.commit_steps(transaction, location)

    def rollback(self, transaction: TransactionId) -> None:
        """Append the roll-back; does nothing if the transaction has no persistent operation.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if self._is_unfinished(transaction):
            self._append(Rollback(transaction))

    def rollback_steps(self, transaction: TransactionId) -> Iterator[int]:
        """Append the roll-back; return the steps that free the memory of its operations.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if not self._is_unfinished(transaction):
            return iter(())
        self._flush_elision()
        location = self._writer.append(encode_record(encode(Rollback(transaction))))
        return self._state.rollback_steps(transaction, location)

    def remove_destination(self, destination: Destination) -> None:
        """Append the removal of a destination with all its messages; does nothing if it never held any.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        self._flush_elision()
        if destination in self._state.destinations or self._state.is_committing:  # which may send to it
            location = self._writer.append(encode_record(encode(RemoveDestination(destination))))
            self._state.begin_removal(destination, location)
            self._begin_removals()

    def _begin_removals(self) -> None:
        if not self._is_removing:
            self._continue_removals()

    def _continue_removals(self) -> None:
        """Continue what the state does in pieces, and schedule the rest; without a loop do all of it."""
        self._is_removing = False
        call_later = self._runtime.call_later
        while self._state.continue_removals():
            if call_later is not None:
                self._is_removing = True
                call_later(REMOVAL_SECONDS, self._continue_removals)
                return

    def declare(self, destination: Destination) -> None:
        """Append that a queue exists also while it is empty; does nothing if that is recorded already.

        Raises:
            StoreUnavailable: the store has stopped.
        """
        if destination.type is DestinationType.QUEUE and destination not in self._state.declared:
            self._append(encode_declared((destination,)))

    def take_records_to_move(self, queue: Destination, count_max: int) -> Sequence[str]:
        """Return ids of records that alone keep data files of garbage, see `relocation`; each is returned once."""
        return () if self._collector is None else self._collector.take_records_to_move(queue, count_max)

    def forget_empty(self, destination: Destination) -> None:
        """Free the state of an empty destination that is not declared."""
        self._state.forget_empty(destination)

    def require_fence(self) -> None:
        """Make the next callbacks wait for a check that lock and journal are still this master's."""
        self._writer.require_fence()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once all records appended so far are written and, if the strategy requires it, synced."""
        if self._elision is None or not self._elision.when_safe(callback, durable=True):
            self._writer.when_durable(callback)

    def when_confirmed(self, callback: Callable[[], None]) -> None:
        """Call back once all messages added so far are durable, or were consumed."""
        if self._elision is None or not self._elision.when_safe(callback):
            self._writer.when_durable(callback)

    @property
    def unwritten_bytes(self) -> int:
        """Bytes appended and not known to be written."""
        return self._writer.unwritten_bytes + (0 if self._elision is None else self._elision.byte_count)

    @property
    def epoch(self) -> int:
        """The number of the data file that this take-over began; 0 before."""
        return self._epoch

    @property
    def end(self) -> Location:
        """The data file of the newest record, and where that record ends; it may not be written yet."""
        return Location(self._writer.file_id, self._writer.end)

    @property
    def is_full(self) -> bool:
        """True while the disk has space only for records that free some, or the journal has reached its limit."""
        limit = self._settings.store_bytes_max
        return self._writer.is_full or (limit > 0 and self.used_bytes >= limit)

    @property
    def used_bytes(self) -> int:
        """The size of the journal on disk."""
        writer, collector = self._writer, self._collector
        changes = 0 if collector is None else collector.change_count
        return self._size.bytes(writer.file_id, writer.end, changes)

    def _finished_sizes(self) -> Mapping[int, int]:
        """Return the bytes of each data file but the current one."""
        return self._size.finished if self.used_bytes else {}

    @property
    def file_count(self) -> int:
        """The number of data files, when `used_bytes` was last read."""
        return self._size.file_count

    @property
    def activity(self) -> JournalActivity:
        """Counts of what was written and synced since it was opened."""
        return self._writer.activity

    def _append(self, command: Command) -> None:
        """Encode a command, append it and apply it to the state."""
        self._flush_elision()
        self._state.apply(command, self._writer.append(encode_record(encode(command))))

    def _flush_elision(self) -> None:
        """Append all messages that write elision holds, to keep their order before the next record."""
        if self._elision is not None:
            self._elision.flush()

    def _is_unfinished(self, transaction: TransactionId) -> bool:
        return transaction in self._state.inflight or transaction in self._state.prepared

    # ------------------------------------------------------------ cleaning up and closing

    def cleanup(self) -> None:
        """Remove (or archive) unneeded data files, once all records appended so far are durable.

        Selects the files at once, and removes them in the writer's thread. Cheap enough to be called every few seconds.
        If nothing could be removed for a while, files that hold mostly acknowledgements are compacted, a few at a time.
        """
        if self._collector is not None:
            self._collector.collect()
        if self._is_open and self._materialising is None:
            self._materialising = self._state.materialising()
            self._materialise_next()
        if (
            self._is_open
            and not self._state.is_in_pieces
            and self._snapshot_writer.is_due(Location(self._writer.file_id, 0), self._runtime.clock())
        ):
            self.write_snapshot()

    def _materialise_next(self) -> None:
        """Materialise some of the snapshot's messages and schedule the rest; without a loop all of them."""
        assert self._materialising is not None, "begun by the first cleanup"
        for _ in self._materialising if self._is_open else ():
            if (call_later := self._runtime.call_later) is not None:
                call_later(MATERIALISE_SECONDS, self._materialise_next)
                return

    def write_snapshot(self) -> None:
        """Write a snapshot in the background, once all records appended so far are durable."""
        self._state.finish_commits()
        self._state.finish_removals()
        taken = snapshot(self._state, self._append_own_batch(Trace(SNAPSHOT_TRACE)))
        self.when_durable(partial(self._snapshot_writer.begin, taken))

    def _has_space_for_snapshot(self, byte_count: int) -> bool:
        """Return True if the disk can spare that many bytes for a snapshot. Called in the snapshot's thread.

        The reserve and a batch must still fit afterwards, or the snapshot would fill the disk.
        """
        spare = self._settings.reserve_bytes + self._settings.batch_bytes_max
        return not self._writer.is_full and self._files.free_bytes() >= byte_count + spare

    def _append_own_batch(self, trace: Trace) -> Location:
        """Append a metadata record as a separate batch, and return that batch's location."""
        self._flush_elision()
        self._writer.end_batch()
        self._writer.append(encode_record(encode(trace)))
        return self._writer.batch

    def _make_space(self) -> None:
        """Remove unneeded files now, before the acknowledgements that allow it fill the reserve."""
        if self._is_open and self._collector is not None:
            self._collector.remove()

    @property
    def is_cleaning(self) -> bool:
        """True while the writer's thread has files to remove or to compact."""
        return self._collector is not None and self._collector.is_busy

    def close(self, delivered: Iterable[str] = ()) -> None:
        """Clean up, write the rest and the ids of messages that consumers have seen, and close the files. Blocks.

        Raises:
            StoreError: not everything could be written.
            LockNotHeld: the lock was lost before.
        """
        if self._is_open:
            self._is_open = False
            self._state.finish_commits()
            self._state.finish_removals()
            if self._collector is not None:
                self._collector.remove()
            self._flush_elision()
            if self._collector is not None:
                self._collector.rewrite_metadata()
            end = self._append_own_batch(Trace(clean_stop(delivered)))  # behind the snapshot, so that a start reads it
            self._writer.close()
            self._snapshot_writer.end(end, lambda: snapshot(self._state, end))

    def abandon(self) -> None:
        """Stop at once, as if killed: for a master that lost its lock. Writes and acknowledges nothing more."""
        self._is_open = False
        if self._collector is not None:
            self._collector.cancel()
        self._writer.abandon()

    def _now(self) -> str:
        return datetime.fromtimestamp(self._runtime.clock() / 1000, UTC).isoformat(timespec="milliseconds")


def _place(message_id: str, packed: int) -> Place:
    return message_id, packed >> FILE_SHIFT, packed >> OFFSET_SHIFT & _MASK_31, packed >> SIZE_SHIFT & _MASK_31


def _ignore() -> None:
    """Do nothing: no core is there yet."""
