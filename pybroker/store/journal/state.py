"""The state of a KahaDB journal: the contents of the store after any sequence of commands. Pure.

Recovery, live operation and a standby that follows a master call the same `apply`, so they cannot disagree. The state
keeps each message's location in the journal, never its body, so that millions of messages fit into memory.

ActiveMQ numbers the messages of a destination in the order in which they were added or committed, and dispatches by
priority class, then by number. Here a dict's insertion order stands for the numbers. Three classes exist: above,
at and below JMS's default priority, and only for records that ask for it; the store never orders finer than that.

A topic's message is kept for the durable subscriptions that existed when it was added, and deleted with the last one's
acknowledgement. Acknowledgements may come in any order: what counts is each subscription's set of pending messages.

For garbage collection the state also has, per data file, the count of live messages and the files whose deleted
messages would come back without it (see `FileUsage`).

Besides, it keeps each producer's highest stored sequence number. The adds carry it; before their files are collected,
the collector writes it into a metadata record: see `encode_sequences`.

Source: ActiveMQ 5.17, `MessageDatabase`: the journal's replay.
"""

import json
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, assert_never, cast

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.store.journal.commands import (
    AckMessageFileMap,
    AddMessage,
    AddScheduledJob,
    Command,
    Commit,
    DestroyScheduler,
    Prepare,
    ProducerAudit,
    RemoveDestination,
    RemoveMessage,
    RemoveScheduledJob,
    RemoveScheduledJobs,
    RescheduleJob,
    RewrittenDataFile,
    Rollback,
    Subscribe,
    Trace,
    Unsubscribe,
    UpdateMessage,
)
from pybroker.store.journal.contents import (
    FILE_SHIFT,
    Added,
    Committing,
    Contents,
    Entry,
    FileUsage,
    Recall,
    Removed,
    Subscription,
    UnfinishedTransaction,
    pack,
    unpack,
)
from pybroker.store.journal.declared_queues import DECLARED_PREFIX, DeclaredQueues, decode_declared
from pybroker.store.journal.format import Location
from pybroker.store.journal.snapshot_messages import Messages, SnapshotMessages
from pybroker.store.producers import ProducerSequences

SEQUENCES = "pybroker producers "
"""Prefix of the metadata record that keeps producers' sequence numbers."""
_APPLIED_COUNT: Final = 32
"""Operations of a commit that are applied in one step: each takes half as long as an operation of the core."""
_FREED_COUNT: Final = 512
"""Operations of a roll-back whose memory is freed in one step."""
_REMOVED_COUNT: Final = 4096
"""Messages of a removed destination that are counted and freed in one step: about a millisecond."""
_ENDED_COUNT: Final = 1024
"""Messages of an ended subscription for which that is done in one step: each is looked up."""
_RECALLED_COUNT: Final = 512
"""Messages that a retroactive subscription is given in one step."""
METADATA_PREFIXES = (SEQUENCES, DECLARED_PREFIX)
"""Prefixes of the metadata records that belong to the state; others are about the journal's owners."""


class _ReplayMemory:
    """Commits and early acks during a replay of compacted files, see `StoreState.expect_compacted_files`.

    Attributes:
        committed: transactions whose commit was met.
        early_acks: subscription key and file of acks of messages that were not there.
    """

    __slots__ = ("committed", "early_acks")

    def __init__(self) -> None:
        self.committed: set[TransactionId] = set()
        self.early_acks: dict[tuple[Destination, str], list[tuple[str | None, int]]] = {}


class StoreState:
    """The contents of a store.

    Attributes:
        destinations: contents by destination; an emptied queue stays, without messages.
        inflight: transactions that were neither prepared nor ended.
        prepared: XA transactions in doubt.
        usage: the reasons to keep data files.
        compacted: data files that begin with a `RewrittenDataFile`.
        sequences: each producer's last stored sequence number.
        kept: queues that exist while they are empty.
    """

    def __init__(self) -> None:
        self.destinations: dict[Destination, Contents] = {}
        self.inflight: dict[TransactionId, UnfinishedTransaction] = {}
        self.prepared: dict[TransactionId, UnfinishedTransaction] = {}
        self.usage = FileUsage()
        self.compacted: set[int] = set()
        self.sequences = ProducerSequences()
        self.declared = DeclaredQueues()
        self._seen: _ReplayMemory | None = None
        self._committing: dict[UnfinishedTransaction, Committing] = {}
        """Committed transactions that are not yet applied as a whole."""
        self._removed: deque[tuple[Messages, set[int]]] = deque()
        """Messages of removed destinations that are not yet counted, and the files of the records that removed them."""
        self._unsubscribed: OrderedDict[Contents, list[tuple[set[str], int]]] = OrderedDict()
        """By topic, the ended subscriptions that were not its last: the ids of the messages that are still counted for
        each, and the file of the record that ended it."""
        self._recalling: deque[Contents] = deque()
        """The topics with recalls, once for each."""

    # ------------------------------------------------------------ commands

    def apply(self, command: Command, location: Location) -> None:
        """Apply the command whose record is at `location`. Never fails: commands without an object are ignored.

        They are normal: a journal whose older files were collected has acks of messages and outcomes of transactions
        that are gone.
        """
        match command:
            case AddMessage():
                # Taken apart as a tuple: a pattern with the fields looks each up by name, at twice the time.
                destination, message_id, data, priority, priority_supported, transaction = command
                packed = pack(location, len(data), priority, priority_supported)
                self.add(destination, message_id, packed, transaction)
            case RemoveMessage():
                destination, message_id, _, subscription_key, transaction = command
                self.remove(destination, message_id, subscription_key, location.file_id, transaction)
            case Commit(transaction):
                self._commit(transaction, location)
            case Rollback(transaction):
                self._end(transaction, location)
            case Prepare(transaction):
                self._prepare(transaction, location)
            case UpdateMessage(message):
                self._update(message, location)
            case Subscribe():
                self._subscribe(command, location)
            case Unsubscribe(destination, subscription_key):
                self.begin_unsubscription(destination, subscription_key, location)
                self.finish_removals()
            case RemoveDestination(destination):
                self.begin_removal(destination, location)
                self.finish_removals()
            case RewrittenDataFile():
                self.compacted.add(location.file_id)
            case Trace(text):
                if text is not None and text.startswith(METADATA_PREFIXES):
                    self._apply_metadata(text, location.file_id)
            case ProducerAudit() | AckMessageFileMap():
                pass
            case (
                AddScheduledJob() | RescheduleJob() | RemoveScheduledJob() | RemoveScheduledJobs() | DestroyScheduler()
            ):
                pass  # The scheduler has a separate journal.
            case _:
                assert_never(command)

    def add(
        self, destination: Destination, message_id: str, packed: int, transaction_id: TransactionId | None = None
    ) -> None:
        """Apply the parts of an `AddMessage`, without building one: this runs for every message.

        Args:
            destination: the message's destination.
            message_id: the id that acks name.
            packed: its entry, see `contents.pack`.
            transaction_id: takes effect at its commit.
        """
        if transaction_id is None:
            self._insert(destination, message_id, packed)
            self.sequences.record(message_id, packed >> FILE_SHIFT)
        else:
            transaction = self._inflight(transaction_id, packed >> FILE_SHIFT)
            transaction.operations.append(Added(destination, message_id, packed))

    def queue_messages(self, queue: Destination) -> Messages:
        """Return a queue's packed entries by message id, for a replay that adds new ones itself: see `adds`."""
        return self._contents(queue).messages

    def remove(
        self,
        destination: Destination,
        message_id: str,
        subscription_key: str | None,
        file_id: int,
        transaction_id: TransactionId | None = None,
    ) -> None:
        """Apply the parts of a `RemoveMessage`, without building one: this runs for every message.

        Args:
            destination: the message's destination.
            message_id: the message's id.
            subscription_key: the durable subscription that acknowledges it; None on a queue.
            file_id: the data file with the record.
            transaction_id: takes effect at its commit.
        """
        if transaction_id is None or self._is_late(transaction_id, file_id):
            self._delete(destination, message_id, subscription_key, file_id)
        else:
            transaction = self._inflight(transaction_id, file_id)
            transaction.operations.append(Removed(destination, message_id, subscription_key, file_id))

    def expect_compacted_files(self) -> None:
        """Keep until `finish` the commits and early acks that compacted files need.

        ActiveMQ copies a file's acks and commits behind the rest of the journal, out of their order: an ack may then
        follow its transaction's commit, and a commit the acks of the messages it adds. ActiveMQ's own
        recovery resurrects those messages.
        """
        self._seen = _ReplayMemory()

    def finish(self) -> list[TransactionId]:
        """End a replay: the journal's writer has stopped.

        Returns: Transactions that were left unfinished and unprepared. They are still in `inflight`: a store opened for
        writing appends a `Rollback` for each and applies it. ActiveMQ does so for local ones only; but an XA branch's
        id may be used again, and a commit of the new branch must not revive operations of the old.
        """
        self._seen = None
        return list(self.inflight)

    def forget_files(self, file_ids: Iterable[int]) -> None:
        """Record that data files were removed."""
        gone = set(file_ids)
        self.usage.forget(gone)
        self.compacted -= gone
        self.declared.forget_files(gone)
        for contents in self.destinations.values():
            for subscription in contents.subscriptions.values():
                subscription.files -= gone

    def forget_empty(self, destination: Destination) -> None:
        """Drop a destination without messages and subscriptions, unless it is kept: a replay may not have it."""
        contents = self.destinations.get(destination)
        if contents is None or destination in self.declared:
            return
        if not contents.messages and not contents.subscriptions and not contents.superseded:
            del self.destinations[destination]

    def materialising(self) -> Iterator[None]:
        """Materialise a snapshot's messages (see `snapshot_messages`), some milliseconds' work before each step."""
        for contents in list(self.destinations.values()):
            while isinstance(messages := contents.messages, SnapshotMessages):
                if not messages.is_materialised:
                    messages.load_next()
                if messages.is_materialised:
                    contents.materialise()
                yield

    def materialise(self) -> None:
        """Materialise them all in one step."""
        for contents in self.destinations.values():
            contents.materialise()

    # ------------------------------------------------------------ questions

    def contains(self, destination: Destination, message_id: str) -> bool:
        """Return True if a message is stored; one in an unfinished transaction is not."""
        contents = self.destinations.get(destination)
        return contents is not None and message_id in contents.messages

    def queues(self) -> list[Destination]:
        """Return the queues that hold messages or are kept, in the order of their first messages."""
        kept = self.declared
        return [
            each
            for each, contents in self.destinations.items()
            if each.is_queue and (contents.messages or each in kept)
        ]

    def subscriptions(self) -> Iterator[tuple[Destination, str, Subscription]]:
        """Yield topic, key and subscription of every durable subscription."""
        for topic, contents in self.destinations.items():
            for key, subscription in contents.subscriptions.items():
                yield topic, key, subscription

    def entries(
        self, destination: Destination, subscription_key: str | None = None, *, include_hidden: bool = False
    ) -> Iterator[Entry]:
        """Yield messages in dispatch order.

        Args:
            destination: a queue or a topic.
            subscription_key: only the messages pending for that subscription; on a queue None.
            include_hidden: also those whose acknowledgement is prepared.
        """
        contents = self.destinations.get(destination)
        if contents is None:
            return
        hidden: set[str] = set() if include_hidden else self.hidden(destination, subscription_key)
        messages: Iterable[tuple[str, int]] = contents.messages.items()
        if subscription_key is not None:
            subscription = contents.subscriptions.get(subscription_key)
            pending: set[str] = subscription.pending if subscription is not None else set()
            messages = [each for each in messages if each[0] in pending]
        # Sorting is stable, so within a class the order of the numbers stays.
        for message_id, packed in sorted(messages, key=lambda each: each[1] & 3):
            if message_id not in hidden:
                yield unpack(message_id, packed)

    def hidden(self, destination: Destination, subscription_key: str | None = None) -> set[str]:
        """Return the ids of messages whose acknowledgement is prepared: not dispatched until the outcome is known."""
        return {
            operation.message_id
            for transaction in self.prepared.values()
            for operation in transaction.operations
            if isinstance(operation, Removed)
            and operation.destination == destination
            and operation.subscription_key == subscription_key
        }

    def is_pending(self, destination: Destination, message_id: str, subscription_key: str | None) -> bool:
        """Return True if a message is in a queue, or pending for a durable subscription."""
        contents = self.destinations.get(destination)
        if contents is None or message_id not in contents.messages:
            return False
        subscription = contents.subscriptions.get(subscription_key) if subscription_key is not None else None
        return subscription_key is None or (subscription is not None and message_id in subscription.pending)

    def give(self, topic: Contents, subscription: Subscription, message_id: str) -> bool:
        """Return True if a message is pending for a durable subscription, which is given it now if it is recalled."""
        if message_id in subscription.pending:
            return True
        for recall in topic.recalls:
            if recall.subscription is subscription:
                _give(topic, recall, message_id)
                return message_id in subscription.pending
        return False

    def transaction_files(self) -> set[int]:
        """Return the data files with records of unfinished transactions, and of removals under way."""
        transactions = [*self.inflight.values(), *self.prepared.values(), *self._committing]
        files = {file_id for transaction in transactions for file_id in transaction.files}
        files.update(file_id for ended in self._unsubscribed.values() for _, file_id in ended)
        return files.union(*[record_files for _, record_files in self._removed])

    # ------------------------------------------------------------ messages

    def _is_late(self, transaction: TransactionId, file_id: int) -> bool:
        return self._seen is not None and file_id in self.compacted and transaction in self._seen.committed

    def _insert(self, destination: Destination, message_id: str, packed: int) -> None:
        contents = self.destinations.get(destination)
        if contents is None:
            if destination.is_topic:  # for no subscription
                return
            contents = self._contents(destination)
        if message_id in contents.messages:
            self._supersede(contents, message_id, packed >> FILE_SHIFT)
            return
        if contents.is_topic:
            subscriptions = contents.subscriptions
            if not subscriptions:
                return
            contents.pending_counts[message_id] = len(subscriptions)
            for subscription in subscriptions.values():
                subscription.pending.add(message_id)
        contents.messages[message_id] = packed
        self.usage.acquire(packed >> FILE_SHIFT)

    def _delete(self, destination: Destination, message_id: str, subscription_key: str | None, file_id: int) -> None:
        contents = self.destinations.get(destination)
        packed = None if contents is None else contents.messages.get(message_id)
        if contents is None or packed is None:
            if self._seen is not None:
                self._seen.early_acks.setdefault((destination, message_id), []).append((subscription_key, file_id))
            return
        self._void(contents, message_id, packed, file_id)
        if subscription_key is None:
            for subscription in contents.subscriptions.values():  # None on a queue.
                subscription.pending.discard(message_id)
            for pending, _ in self._unsubscribed.get(contents, ()):
                pending.discard(message_id)
            self._drop(contents, message_id)
        else:
            acknowledger = contents.subscriptions.get(subscription_key)
            if acknowledger is not None and self.give(contents, acknowledger, message_id):
                acknowledger.pending.remove(message_id)
                for recall in contents.recalls:
                    if recall.subscription is acknowledger:
                        recall.acknowledged.add(message_id)
                self._count_down(contents, message_id)

    def _void(self, contents: Contents, message_id: str, packed: int, file_id: int) -> None:
        """Record that a record in `file_id` voids the records that would create the message."""
        message_file_id = packed >> FILE_SHIFT
        if message_file_id != file_id:
            self.usage.refer(file_id, (message_file_id,))
        if contents.superseded and message_id in contents.superseded:
            self.usage.refer(file_id, contents.superseded[message_id])

    def _count_down(self, contents: Contents, message_id: str) -> None:
        left = contents.pending_counts[message_id] - 1
        if left or (contents.recalls and any([recall.owes(message_id) for recall in contents.recalls])):
            contents.pending_counts[message_id] = left
        else:
            self._drop(contents, message_id)

    def _drop(self, contents: Contents, message_id: str) -> None:
        self.usage.release(contents.messages.pop(message_id) >> FILE_SHIFT)
        if contents.pending_counts:
            contents.pending_counts.pop(message_id, None)
        if contents.superseded:
            for file_id in contents.superseded.pop(message_id, ()):
                self.usage.release(file_id)

    def _update(self, command: AddMessage, location: Location) -> None:
        contents = self._contents(command.destination)
        message_id = command.message_id
        packed = pack(location, len(command.data), command.priority, command.priority_supported)
        self.sequences.record(message_id, location.file_id)
        old = contents.messages.get(message_id)
        if old is None:
            self._insert(command.destination, message_id, packed)
            return
        contents.messages[message_id] = packed
        self.usage.acquire(location.file_id)
        self._supersede(contents, message_id, old >> FILE_SHIFT)
        self.usage.release(old >> FILE_SHIFT)

    def _supersede(self, contents: Contents, message_id: str, file_id: int) -> None:
        """Keep the file of another record of a live message: the first one has the message's place in the order."""
        files = contents.superseded.setdefault(message_id, set())
        if file_id not in files:
            files.add(file_id)
            self.usage.acquire(file_id)

    def _contents(self, destination: Destination) -> Contents:
        contents = self.destinations.get(destination)
        if contents is None:
            contents = self.destinations[destination] = Contents(is_topic=destination.is_topic)
        return contents

    # ------------------------------------------------------------ transactions

    def _inflight(self, transaction_id: TransactionId, file_id: int) -> UnfinishedTransaction:
        transaction = self.inflight.get(transaction_id)
        if transaction is None:
            transaction = self.inflight[transaction_id] = UnfinishedTransaction()
        transaction.files.add(file_id)
        return transaction

    def _prepare(self, transaction_id: TransactionId, location: Location) -> None:
        if not isinstance(transaction_id, XATransactionId):
            return  # No coordinator would ever commit or roll it back.
        transaction = self.inflight.pop(transaction_id, None)
        if transaction is not None:
            self.usage.refer(location.file_id, transaction.files)
            transaction.files.add(location.file_id)
            self.prepared[transaction_id] = transaction

    def _end(self, transaction_id: TransactionId, location: Location) -> UnfinishedTransaction | None:
        transaction = self.inflight.pop(transaction_id, None) or self.prepared.pop(transaction_id, None)
        if transaction is not None:
            self.usage.refer(location.file_id, transaction.files)
        return transaction

    def _commit(self, transaction_id: TransactionId, location: Location) -> None:
        if self._seen is not None:
            self._seen.committed.add(transaction_id)
        transaction = self._end(transaction_id, location)
        if transaction is None:
            return
        for operation in transaction.operations:
            self._perform(operation)
        if self._seen is not None and location.file_id in self.compacted:
            self._catch_up(transaction, self._seen)

    def commit_steps(self, transaction_id: TransactionId, location: Location) -> Iterator[int]:
        """Commit a transaction of a live store; return the steps that apply its operations, see `MessageStore`."""
        transaction = self._end(transaction_id, location)
        if transaction is None:
            return iter(())
        committing = self._committing[transaction] = Committing()
        committing.steps = self._applying(transaction, committing)
        return committing.steps

    def rollback_steps(self, transaction_id: TransactionId, location: Location) -> Iterator[int]:
        """Roll a transaction back; return the steps that free its operations, of which there may be many."""
        transaction = self._end(transaction_id, location)
        operations: list[Added | Removed] = [] if transaction is None else transaction.operations
        while operations:
            del operations[-_FREED_COUNT:]
            yield _FREED_COUNT // 8

    def finish_commits(self) -> None:
        """Apply the rest of all commits, before something that needs the whole contents."""
        for committing in list(self._committing.values()):
            for _ in committing.steps:
                pass

    @property
    def is_committing(self) -> bool:
        """True while some committed transactions are not applied as a whole."""
        return bool(self._committing)

    @property
    def is_in_pieces(self) -> bool:
        """True while the contents are not whole, as commits, removals or recalls are under way."""
        return bool(self._committing or self._removed or self._unsubscribed or self._recalling)

    def begin_removal(self, destination: Destination, location: Location) -> None:
        """Remove a destination; its messages are counted as live until `continue_removals` has had them all.

        What commits that are being applied send to it is removed too.
        """
        for transaction, committing in self._committing.items():
            committing.removed[destination] = location.file_id
            transaction.files.add(location.file_id)
        contents = self.destinations.pop(destination, None)
        if contents is None:
            return
        self._finish_recalls(contents)
        if recorded_in := self.declared.forget(destination):
            self.usage.refer(location.file_id, recorded_in)
        for subscription in contents.subscriptions.values():
            self.usage.refer(location.file_id, subscription.files)
        self._remove_all(contents, location.file_id)

    def begin_unsubscription(self, topic: Destination, subscription_key: str, location: Location) -> None:
        """Remove a durable subscription; its messages are counted for it until `continue_removals` has had them all."""
        contents = self.destinations.get(topic)
        subscription = None if contents is None else contents.subscriptions.pop(subscription_key, None)
        if contents is None or subscription is None:
            return
        self._finish_recalls(contents)
        self.usage.refer(location.file_id, subscription.files)
        if not contents.subscriptions:
            del self.destinations[topic]
            self._remove_all(contents, location.file_id)
        elif subscription.pending:
            self._unsubscribed.setdefault(contents, []).append((subscription.pending, location.file_id))

    def _remove_all(self, contents: Contents, record_file: int) -> None:
        """Remove all messages of a destination that is gone, for the reason that a record in a file gives."""
        for message_id, files in contents.superseded.items():
            if message_id in contents.messages:
                self.usage.refer(record_file, files)
        for files in contents.superseded.values():
            for file_id in files:
                self.usage.release(file_id)
        ended = self._unsubscribed.pop(contents, [])
        if contents.messages:
            self._removed.append((contents.messages, {record_file, *[file_id for _, file_id in ended]}))

    def continue_removals(self) -> bool:
        """Count and free some messages of removed destinations and subscriptions; return False after all.

        Retroactive subscriptions are given some of what their topics have. There may be a million of them all. Until
        all are counted, the files with the records of the removals are among the files of unfinished transactions.
        """
        if self._recalling:
            self._continue_recall(self._recalling[0])
            return True
        left = _ENDED_COUNT
        while self._unsubscribed and left > 0:
            left -= 1 + self._continue_unsubscription(next(iter(self._unsubscribed)), left)
        left = _REMOVED_COUNT
        while not self._unsubscribed and self._removed and left > 0:
            left -= 1 + self._continue_removal(*self._removed[0], left)
        return bool(self._unsubscribed or self._removed)

    def settling(self, topic: Destination) -> Iterator[int]:
        """Apply commits, and count what only ended subscriptions of a topic had, before a retroactive one begins."""
        for committing in list(self._committing.values()):
            yield from committing.steps
        contents = self.destinations.get(topic)
        while contents is not None and contents in self._unsubscribed:
            yield self._continue_unsubscription(contents, _ENDED_COUNT)

    def settle(self, topic: Destination) -> None:
        """Do all of that in one step."""
        for _ in self.settling(topic):
            pass

    def _continue_recall(self, contents: Contents) -> None:
        """Give a retroactive subscription some of what its topic has."""
        recall = contents.recalls[-1]
        for message_id in recall.left[-_RECALLED_COUNT:]:
            _give(contents, recall, message_id)
        del recall.left[-_RECALLED_COUNT:]
        if not recall.left:
            contents.recalls.pop()
            self._recalling.remove(contents)

    def _finish_recalls(self, contents: Contents) -> None:
        while contents.recalls:
            self._continue_recall(contents)

    def _continue_unsubscription(self, contents: Contents, count_max: int) -> int:
        """Count some messages for an ended subscription of a topic no more; return how many."""
        ended = self._unsubscribed[contents]
        pending, record_file = ended[-1]
        count = min(len(pending), count_max)
        for _ in range(count):
            message_id = pending.pop()
            self._void(contents, message_id, contents.messages[message_id], record_file)
            self._count_down(contents, message_id)
        if not pending:
            ended.pop()
            if not ended:
                del self._unsubscribed[contents]
        return count

    def _continue_removal(self, messages: Messages, record_files: set[int], count_max: int) -> int:
        """Count some messages of a removed destination as live no more; return how many."""
        if isinstance(messages, SnapshotMessages):
            if not messages.is_materialised:
                messages.load_next()
                return count_max
            messages = messages.materialised()
        counts: dict[int, int] = {}
        count = min(len(messages), count_max)
        for _ in range(count):
            _, packed = messages.popitem()
            file_id = packed >> FILE_SHIFT
            counts[file_id] = counts.get(file_id, 0) + 1
        for record_file in record_files:
            if others := counts.keys() - {record_file}:
                self.usage.refer(record_file, others)
        for file_id, released in counts.items():
            self.usage.release(file_id, released)
        if not messages:
            self._removed.popleft()
        return count

    def finish_removals(self) -> None:
        """Count the messages of all that was removed, before something that needs all counts."""
        while self.continue_removals():
            pass

    def _applying(self, transaction: UnfinishedTransaction, committing: Committing) -> Iterator[int]:
        operations = transaction.operations
        operations.reverse()  # so that each is freed as soon as it is applied
        while operations:
            for _ in range(min(len(operations), _APPLIED_COUNT)):
                operation = operations.pop()
                if committing.removed or committing.subscribed:
                    self._perform_late(operation, committing)
                else:
                    self._perform(operation)
            yield _APPLIED_COUNT // 2
        del self._committing[transaction]

    def _perform_late(self, operation: Added | Removed, committing: Committing) -> None:
        """Apply an operation as if before the records behind its commit."""
        destination, message_id = operation.destination, operation.message_id
        record_file = committing.removed.get(destination)
        if record_file is None:
            self._perform(operation)
            contents = self.destinations.get(destination)
            if contents is None or isinstance(operation, Removed):
                return
            for key in committing.subscribed.get(destination, ()):
                subscription = contents.subscriptions.get(key)
                if subscription is not None and message_id in subscription.pending:
                    subscription.pending.remove(message_id)
                    self._count_down(contents, message_id)
        elif isinstance(operation, Added):
            file_id = operation.packed >> FILE_SHIFT
            self.sequences.record(message_id, file_id)
            self.usage.refer(record_file, (file_id,))

    def _perform(self, operation: Added | Removed) -> None:
        """Apply an operation of a committed transaction."""
        if isinstance(operation, Added):
            self._insert(*operation)
            self.sequences.record(operation.message_id, operation.packed >> FILE_SHIFT)
        else:
            self._delete(*operation)

    def _catch_up(self, transaction: UnfinishedTransaction, seen: _ReplayMemory) -> None:
        """Apply the acks that came before a copied commit could add their messages."""
        for operation in transaction.operations:
            if isinstance(operation, Added):
                destination, message_id, _ = operation
                for subscription_key, file_id in seen.early_acks.pop((destination, message_id), ()):
                    self._delete(destination, message_id, subscription_key, file_id)

    # ------------------------------------------------------------ subscriptions and destinations

    def _subscribe(self, command: Subscribe, location: Location) -> None:
        contents = self.begin_subscription(command, location)
        if contents is not None:
            self._finish_recalls(contents)

    def begin_subscription(self, command: Subscribe, location: Location) -> Contents | None:
        """Add or change a durable subscription; return its topic if `continue_removals` gives it what that has."""
        topic, key = command.destination, command.subscription_key
        contents = self._contents(topic)
        subscription = contents.subscriptions.get(key)
        if subscription is None:
            subscription = contents.subscriptions[key] = Subscription(command.info, location)
            for committing in self._committing.values():
                committing.subscribed.setdefault(topic, set()).add(key)
        else:
            subscription.info = command.info
            subscription.location = location
            subscription.files.add(location.file_id)
        if not command.retroactive:
            return None
        for other in contents.subscriptions.values():  # without their records a replay would not store these messages
            subscription.files |= other.files
        if not contents.messages:
            return None
        contents.recalls.append(Recall(subscription, list(contents.messages)))
        self._recalling.append(contents)
        return contents

    def _apply_metadata(self, text: str, file_id: int) -> None:
        """Apply a metadata record that belongs to the state."""
        if text.startswith(SEQUENCES):
            self.sequences.restore(decode_sequences(text), file_id)
            return
        for kept in decode_declared(text):
            self._contents(kept)
            self.declared.record(kept, file_id)


def _give(topic: Contents, recall: Recall, message_id: str) -> None:
    """Give a retroactive subscription a message, if the topic still has it for it."""
    if message_id in topic.messages and recall.owes(message_id):
        recall.subscription.pending.add(message_id)
        topic.pending_counts[message_id] += 1


def encode_sequences(sequences: Mapping[str, int]) -> Trace:
    """Return the trace record of producers' sequence numbers; ActiveMQ ignores trace records."""
    return Trace(SEQUENCES + json.dumps(sequences, separators=(",", ":")))


def decode_sequences(text: str) -> dict[str, int]:
    """Return the sequence numbers in a trace record; none if its text is not ours."""
    try:
        found: object = json.loads(text.removeprefix(SEQUENCES))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    sequences = cast("dict[str, object]", found)
    return {producer_id: sequence for producer_id, sequence in sequences.items() if type(sequence) is int}
