"""Exports a store's contents: messages in dispatch order, subscriptions, transactions, scheduled messages.

They are those that recovery would find: messages of unfinished transactions are missing, and those acknowledged in a
prepared transaction are shown with that transaction, because no consumer gets them before its outcome.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import routing
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.journal.commands import AddMessage, UpdateMessage, decode
from pybroker.store.journal.contents import Added, Entry, PriorityClass, Removed, UnfinishedTransaction, unpack
from pybroker.store.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES, Location
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot, Progress
from pybroker.store.journal.tools.observed_replay import ObservedReplay, read_jobs
from pybroker.store.journal.tools.stored_message_json import message_as_json
from pybroker.store.scheduler.state import JobState, place

BESIDE_MESSAGE_BYTES = 1024
"""Usual bytes of a record besides its message; a longer one takes a second read."""
JOB_BYTES_MAX = 1 << 40
"""No limit: jobs are read with their messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMessage:
    """A stored message.

    Attributes:
        destination: where it waits.
        message_id: what acks name.
        location: its record's location.
        data: OpenWire v11, from its data type on; empty if it cannot be read, which `problem` explains.
        problem: the reason why it cannot be read.
    """

    destination: Destination
    message_id: str
    location: Location
    data: bytes
    problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "kind": "message",
            "destination": str(self.destination),
            "message_id": self.message_id,
            "file": self.location.file_id,
            "offset": self.location.offset,
            **({"problem": self.problem} if self.problem else message_as_json(self.data)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSubscription:
    """A durable subscription to one topic.

    Attributes:
        subscription: its terms.
        pending: ids of its pending messages, in dispatch order.
    """

    subscription: DurableSubscription
    pending: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        terms = self.subscription
        return {
            "kind": "subscription",
            "client_id": terms.client_id,
            "name": terms.name,
            "destination": str(terms.destination),
            "subscribed_destination": str(terms.subscribed_destination),
            "selector": terms.selector,
            "no_local": terms.no_local,
            "pending": list(self.pending),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTransaction:
    """A prepared transaction.

    Attributes:
        transaction_id: its branch.
        sent: messages that a commit adds.
        acknowledged: messages that a commit removes; with the key of a durable subscription, for that one.
    """

    transaction_id: TransactionId
    sent: tuple[LiveMessage, ...]
    acknowledged: tuple[tuple[LiveMessage, str | None], ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "kind": "transaction",
            "transaction": str(self.transaction_id),
            "state": "prepared",
            "sent": [message.as_json() for message in self.sent],
            "acknowledged": [message.as_json() | {"subscription": key} for message, key in self.acknowledged],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledMessage:
    """A message with a timetable; times and durations in milliseconds, see `domain.jobs.Job`."""

    job_id: str
    start_time: int
    cron: str
    delay: int
    period: int
    repeat: int
    next_time: int
    run_count: int
    location: Location
    data: bytes

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        routed: dict[str, Any] = {}
        try:
            message = routing(self.data)
            routed = {"destination": str(message.destination), "message_id": message.message_id}
        except MalformedOpenWire as error:
            routed = {"problem": str(error)}
        return {
            "kind": "scheduled",
            "job_id": self.job_id,
            "next_execution_time": self.next_time,
            "start_time": self.start_time,
            "cron": self.cron,
            "delay": self.delay,
            "period": self.period,
            "repeat": self.repeat,
            "execution_count": self.run_count,
            "file": self.location.file_id,
            "offset": self.location.offset,
            **routed,
            **message_as_json(self.data),
        }


Live = LiveMessage | LiveSubscription | LiveTransaction | ScheduledMessage


class Export:
    """The contents of a message journal, read once and iterable many times.

    Attributes:
        is_damaged: the journal has damaged stretches, or messages that could not be read so far.
    """

    def __init__(self, snapshot: JournalSnapshot, *, progress: Progress | None = None) -> None:
        """Read the journal.

        Raises:
            StoreUnavailable: a file cannot be read.
            JournalCorrupt: a newer version wrote it.
        """
        self._snapshot = snapshot
        run = ObservedReplay(snapshot)
        run.run(progress)
        self._state = run.state
        self.is_damaged = run.is_damaged

    def __iter__(self) -> Iterator[LiveMessage | LiveSubscription | LiveTransaction]:
        """Yield queues' messages, topics' messages, subscriptions, and transactions in doubt."""
        state = self._state
        for queue in state.queues():
            yield from self.messages(queue)
        topics = [each for each, contents in state.destinations.items() if contents.is_topic and contents.messages]
        for topic in topics:
            yield from self.messages(topic)
        for topic, key, subscription in state.subscriptions():
            yield LiveSubscription(
                subscription=decode_subscription_info(subscription.info),
                pending=tuple(entry.message_id for entry in self._ordered(topic, key)),
            )
        for transaction_id, transaction in state.prepared.items():
            yield self._transaction(transaction_id, transaction)

    def queue_sizes(self) -> Iterator[tuple[Destination, int]]:
        """Yield the queues, each with the number of its messages."""
        for queue in self._state.queues():
            contents = self._state.destinations.get(queue)
            yield queue, 0 if contents is None else len(contents.messages)

    def messages(self, destination: Destination) -> Iterator[LiveMessage]:
        """Yield a destination's messages in dispatch order."""
        for entry in self._ordered(destination):
            yield self._message(destination, entry)

    def _ordered(self, destination: Destination, subscription_key: str | None = None) -> Iterator[Entry]:
        """Yield entries in dispatch order: by exact priority where priorities count; the store keeps three classes."""
        entries = self._state.entries(destination, subscription_key)
        first = next(entries, None)
        if first is None:
            return
        rest = list(entries)
        if all(entry.priority_class is PriorityClass.DEFAULT for entry in (first, *rest)):
            yield first
            yield from rest
        else:
            yield from sorted((first, *rest), key=lambda entry: -self._priority(entry))

    def _priority(self, entry: Entry) -> int:
        command = self._command(entry)
        return command.priority if command is not None else 0

    def _message(self, destination: Destination, entry: Entry) -> LiveMessage:
        command = self._command(entry)
        problem = None
        if command is None:
            self.is_damaged = True
            problem = "no message where one should be"
        return LiveMessage(
            destination=destination,
            message_id=entry.message_id,
            location=entry.location,
            data=b"" if command is None else command.data,
            problem=problem,
        )

    def _transaction(self, transaction_id: TransactionId, transaction: UnfinishedTransaction) -> LiveTransaction:
        sent: list[LiveMessage] = []
        acknowledged: list[tuple[LiveMessage, str | None]] = []
        for operation in transaction.operations:
            if isinstance(operation, Added):
                sent.append(self._message(operation.destination, operation.entry))
            else:
                acknowledged += self._acknowledged(operation)
        return LiveTransaction(transaction_id=transaction_id, sent=tuple(sent), acknowledged=tuple(acknowledged))

    def _acknowledged(self, removed: Removed) -> Iterator[tuple[LiveMessage, str | None]]:
        destination, message_id, key, _ = removed
        if self._state.is_pending(destination, message_id, key):
            packed = self._state.destinations[destination].messages[message_id]
            yield self._message(destination, unpack(message_id, packed)), key

    def _command(self, entry: Entry) -> AddMessage | None:
        """Return the record of a message; None if it is gone."""
        read = self._snapshot.read
        record = read(entry.location, entry.size + BESIDE_MESSAGE_BYTES)
        if len(record) < RECORD_HEADER_BYTES:
            return None
        size, _ = RECORD_HEADER.unpack_from(record)
        if size > len(record):
            record = read(entry.location, size)
        try:
            command = decode(record[RECORD_HEADER_BYTES:size])
        except (MalformedRecord, IndexError):
            return None
        if isinstance(command, UpdateMessage):
            command = command.message
        return command if isinstance(command, AddMessage) and command.message_id == entry.message_id else None


def scheduled(directory: Path) -> Iterator[ScheduledMessage]:
    """Yield the jobs of a scheduler's journal, by their time.

    Raises:
        StoreUnavailable: the directory or a file cannot be read.
        JournalCorrupt: the data files are no journal, or hold commands of a newer version.
    """
    jobs = read_jobs(directory, JobState(), held_bytes_max=JOB_BYTES_MAX).jobs
    for job in sorted(jobs, key=lambda job: job.next_time):
        assert job.data is not None, "they are all held"
        yield ScheduledMessage(
            job_id=job.job_id,
            start_time=job.start_time,
            cron=job.cron,
            delay=job.delay,
            period=job.period,
            repeat=job.repeat,
            next_time=job.next_time,
            run_count=job.run_count,
            location=place(job).location,
            data=job.data,
        )
