"""Rewrites a stopped store's live contents into new files. The caller holds the store's lock.

```text
db-3 .. db-9     as they are                                            replayed, they give the live contents
db-11, db-12     later parts of them: messages that exist already           a replay ignores them
db-10            1. forget every destination and transaction
                 2. the first part of the live contents                 appears in one step: from here on all of
                                                                        the old files may be there or not
ActiveMQ's index goes, then db-3 .. db-9, in that order
```

So a crash at any point leaves a store with the same contents. Before an old file is removed, the new ones are read back
and compared with the live contents.

Topics: a durable subscription is written right before the first message that is pending for it, and acknowledgements of
the topic's other subscriptions are written again.

Source: ActiveMQ 5.17, `MessageDatabase.process(KahaRemoveDestinationCommand)`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.broker.domain.jobs import TIME_MAX
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.journal.clean_stop import CLEAN_STOP, INDEX_FILES, activemq_stopped_cleanly
from pybroker.store.journal.cleanup import sequence_traces
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    Commit,
    Prepare,
    RemoveDestination,
    RemoveMessage,
    RemoveScheduledJobs,
    Rollback,
    Subscribe,
    Trace,
    UpdateMessage,
    decode,
    encode,
)
from pybroker.store.journal.compaction import encode_data_file, records_of_files
from pybroker.store.journal.contents import Contents, unpack
from pybroker.store.journal.declared_queues import encode_declared
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import FILE_BYTES_MAX, OFFSET_MAX, RECORD_HEADER_BYTES, Location
from pybroker.store.journal.reader import DataFileWalk, load
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.store_snapshot import SNAPSHOT_NAME
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot, Progress
from pybroker.store.journal.tools.observed_replay import ObservedReplay, read_jobs
from pybroker.store.journal.tools.scan import Gap, Record
from pybroker.store.scheduler.recovery import CLEAN_STOP as JOBS_CLEAN_STOP
from pybroker.store.scheduler.recovery import INDEX_FILES as JOB_INDEX_FILES
from pybroker.store.scheduler.state import JobState, add_command, place

_NO_DELIVERIES = CLEAN_STOP + '{"delivered": []}'
_JOBS_HELD_BYTES_MAX = OFFSET_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """Result of a compaction.

    Attributes:
        directory: the journal's.
        files_before: data files before.
        bytes_before: their size.
        files_after: data files afterwards.
        bytes_after: their size.
        alive: messages, subscriptions, transactions in doubt, or scheduled messages kept, by kind.
        archive: where the originals are; None: they were deleted.
    """

    directory: str
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    alive: dict[str, int]
    archive: str | None

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "kind": "compacted",
            "directory": self.directory,
            "files_before": self.files_before,
            "bytes_before": self.bytes_before,
            "files_after": self.files_after,
            "bytes_after": self.bytes_after,
            "alive": self.alive,
            "archive": self.archive,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Options of a compaction.

    Attributes:
        check: the lock's fence; raises `LockNotHeld`. Called before each step that changes the result of a recovery.
        archive: where the originals go, on the same file system; None deletes them.
        file_bytes_max: length at which a new data file is full.
        progress: receives the progress of the reading.
    """

    check: Callable[[], None]
    archive: Path | None
    file_bytes_max: int = FILE_BYTES_MAX
    progress: Progress | None = None


def compact(files: JournalFiles, options: CompactionOptions) -> CompactionReport:
    """Compact a message journal.

    Raises:
        JournalCorrupt: it is damaged, or a newer version wrote it. Nothing was changed.
        StoreUnavailable: it cannot be read or written; its contents are unchanged.
        LockNotHeld: the lock was lost; likewise.
    """
    with JournalSnapshot(files.directory) as snapshot:
        run = _LiveRecords(snapshot)
        run.run(options.progress)
        last_trace = _NO_DELIVERIES if activemq_stopped_cleanly(files.directory) else run.last_trace
        new_ids = _write(files, snapshot.last_file_id + 1, run.commands(last_trace), options)
        _compare(run.state, files, new_ids)
        state = run.state
        alive = {
            "messages": sum(len(contents.messages) for contents in state.destinations.values()),
            "subscriptions": sum(1 for _ in state.subscriptions()),
            "transactions": len(state.prepared),
        }
        return _replaced(files, snapshot, new_ids, (*INDEX_FILES, SNAPSHOT_NAME), options, alive)


def compact_jobs(files: JournalFiles, options: CompactionOptions) -> CompactionReport:
    """Compact a scheduler's journal; errors as `compact`."""
    with JournalSnapshot(files.directory) as snapshot:
        state = JobState()
        result = read_jobs(files.directory, state, held_bytes_max=_JOBS_HELD_BYTES_MAX)
        if result.damages:
            damage = result.damages[0]
            raise _damaged(snapshot, Location(damage.file_id, damage.offset), damage.reason)
        new_ids = _write(files, snapshot.last_file_id + 1, _job_commands(state, result.last_trace), options)
        alive = sum(len(jobs) for jobs in state.live.values())
        again = read_jobs(files.directory, JobState(), held_bytes_max=0)
        if len(again.jobs) != len(result.jobs) or again.damages or again.stale_jobs:
            files.remove(*(files.path(file_id) for file_id in new_ids))
            raise _not_the_same(files.directory)
        return _replaced(files, snapshot, new_ids, JOB_INDEX_FILES, options, {"scheduled": alive})


# ---------------------------------------------------------------- what is alive


class _LiveRecords(ObservedReplay):
    """Keeps the state and the records of open transactions, whose acknowledgements are copied byte by byte."""

    def __init__(self, snapshot: JournalSnapshot) -> None:
        super().__init__(snapshot)
        self._operations: dict[TransactionId, list[tuple[Location, int]]] = {}

    def met(self, record: Record, command: Command) -> None:
        """Record the locations of an open transaction's records."""
        match command:
            case AddMessage(transaction=transaction) | RemoveMessage(transaction=transaction):
                if transaction is not None:
                    self._operations.setdefault(transaction, []).append((record.location, record.size))
            case Commit(transaction) | Rollback(transaction):
                self._operations.pop(transaction, None)
            case _:
                pass

    def met_gap(self, gap: Gap) -> None:
        """Refuse damage: compacting would lose the rest permanently."""
        if not gap.is_torn:
            raise _damaged(self.snapshot, Location(gap.damage.file_id, gap.damage.offset), gap.damage.reason)

    def met_flaw(self, record: Record, command: Command | None, reason: str) -> None:
        """Refuse damage."""
        raise _damaged(self.snapshot, record.location, f"a record does not decode: {reason}")

    def commands(self, last_trace: str | None) -> Iterator[bytes]:
        """Yield the payloads of the new journal; replayed after all others they give the state."""
        state = self.state
        for transaction in (*state.inflight, *state.prepared):
            yield encode(Rollback(transaction))
        for destination in state.destinations:
            yield encode(RemoveDestination(destination))
        for trace in sequence_traces(state, self.snapshot.files):
            yield encode(trace)
        if kept := state.declared.last_recorded_in(self.snapshot.files):
            yield encode(encode_declared(kept))
        for transaction in state.prepared:
            for location, size in self._operations.get(transaction, ()):
                yield self._payload(location, size)
            yield encode(Prepare(transaction))
        for destination, contents in state.destinations.items():
            yield from self._topic(destination, contents) if contents.is_topic else self._queue(destination, contents)
        if last_trace is not None and last_trace.startswith(CLEAN_STOP):
            yield encode(Trace(last_trace))

    def _queue(self, destination: Destination, contents: Contents) -> Iterator[bytes]:
        for message_id, packed in contents.messages.items():
            yield self._message(destination, message_id, packed)

    def _topic(self, destination: Destination, contents: Contents) -> Iterator[bytes]:
        to_come = dict(contents.subscriptions)
        there: list[str] = []
        for message_id, packed in contents.messages.items():
            for key in [key for key, each in to_come.items() if message_id in each.pending]:
                yield encode(Subscribe(destination, key, to_come.pop(key).info))
                there.append(key)
            yield self._message(destination, message_id, packed)
            for key in there:
                if message_id not in contents.subscriptions[key].pending:
                    yield encode(RemoveMessage(destination, message_id, subscription_key=key))
        for key, subscription in to_come.items():
            yield encode(Subscribe(destination, key, subscription.info))

    def _message(self, destination: Destination, message_id: str, packed: int) -> bytes:
        """Return the add of a message's latest version, outside a transaction."""
        location = unpack(message_id, packed).location
        size = int.from_bytes(self.snapshot.read(location, 4), "big")
        payload = self._payload(location, size)
        command = decode(payload)
        if isinstance(command, UpdateMessage):
            command = command.message
            payload = encode(command)
        assert isinstance(command, AddMessage), "what the state was made of"
        assert (command.destination, command.message_id) == (destination, message_id), "what the state was made of"
        return payload if command.transaction is None else encode(command._replace(transaction=None))

    def _payload(self, location: Location, size: int) -> bytes:
        return self.snapshot.read(location, size)[RECORD_HEADER_BYTES:]


def _job_commands(state: JobState, last_trace: str | None) -> Iterator[bytes]:
    jobs = list(state.jobs())
    for scheduler in sorted({place(job).scheduler for job in jobs}):
        yield encode(RemoveScheduledJobs(scheduler, 0, TIME_MAX))
    for job in jobs:
        assert job.data is not None, "they are all held"
        yield encode(add_command(job, job.data, place(job).scheduler))
    if last_trace == JOBS_CLEAN_STOP:
        yield encode(Trace(last_trace))


# ---------------------------------------------------------------- new files for old ones


def _write(files: JournalFiles, first_id: int, payloads: Iterator[bytes], options: CompactionOptions) -> list[int]:
    """Write payloads into new data files, the first one last, and return their ids."""
    written: list[int] = []
    first: list[bytes] = []
    try:
        for number, records in enumerate(records_of_files(payloads, options.file_bytes_max)):
            pieces = encode_data_file(records)
            if number == 0:
                first = pieces
            else:
                files.replace(first_id + number, pieces)
                written.append(first_id + number)
        options.check()
        files.replace(first_id, first or encode_data_file(()))
    except BaseException as error:
        files.remove(*(files.path(file_id) for file_id in written))
        if isinstance(error, OSError):
            raise _unwritable(error, files.directory, "the store is as it was") from error
        raise
    return [first_id, *written]


def _compare(state: StoreState, files: JournalFiles, new_ids: Sequence[int]) -> None:
    """Compare the new files alone with the state; remove them and raise if they differ."""
    found = StoreState()
    is_sound = True
    for file_id in new_ids:
        walk = DataFileWalk(load(files.path(file_id)), file_id)
        for location, payload in walk:
            found.apply(decode(payload), location)
        is_sound = is_sound and not walk.damages
    if not is_sound or _meaning(found) != _meaning(state):
        files.remove(*(files.path(file_id) for file_id in reversed(new_ids)))
        raise _not_the_same(files.directory)


def _meaning(state: StoreState) -> tuple[object, ...]:
    """Return a state's contents without the locations."""
    destinations = {
        destination: (
            [(message_id, packed & 3) for message_id, packed in contents.messages.items()],
            {key: (each.info, each.pending) for key, each in contents.subscriptions.items()},
        )
        for destination, contents in state.destinations.items()
        if contents.messages or contents.subscriptions
    }
    prepared = {
        transaction_id: [operation[:2] for operation in transaction.operations]
        for transaction_id, transaction in state.prepared.items()
    }
    return destinations, prepared, set(state.queues())


def _replaced(
    files: JournalFiles,
    snapshot: JournalSnapshot,
    new_ids: Sequence[int],
    indexes: Sequence[str],
    options: CompactionOptions,
    alive: dict[str, int],
) -> CompactionReport:
    """Remove the old files, and return the report."""
    try:
        options.check()
        files.remove(*(files.directory / name for name in indexes))
        for file_id in snapshot.files:
            options.check()
            if options.archive is None:
                files.remove(files.path(file_id))
            else:
                files.archive(files.path(file_id), options.archive)
        bytes_after = sum(files.path(file_id).stat().st_size for file_id in new_ids)
    except OSError as error:
        hint = "the new files are complete: run the command again to remove what is left of the old ones"
        raise _unwritable(error, files.directory, hint) from error
    return CompactionReport(
        directory=str(files.directory),
        files_before=len(snapshot.files),
        bytes_before=snapshot.size,
        files_after=len(new_ids),
        bytes_after=bytes_after,
        alive=alive,
        archive=None if options.archive is None else str(options.archive),
    )


# ---------------------------------------------------------------- errors


def _damaged(snapshot: JournalSnapshot, location: Location, reason: str) -> JournalCorrupt:
    return JournalCorrupt(
        reason,
        path=str(snapshot.files[location.file_id].path),
        offset=location.offset,
        hint="nothing was changed; salvage the store into a new directory, and compact that if you like",
    )


def _not_the_same(directory: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"{directory}: what was written does not read back as what is alive",
        path=str(directory),
        hint="nothing of the old store was changed; check the disk and the memory",
    )


def _unwritable(error: OSError, directory: Path, hint: str) -> StoreUnavailable:
    path = error.filename or directory
    return StoreUnavailable(f"{path}: {error.strerror or error}", path=str(path), hint=hint)
