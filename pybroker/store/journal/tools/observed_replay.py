"""A replay with hooks: the `StoreState.apply` of recovery on a snapshot, with a call for each record and gap.

Recovery applies what sound batches hold, so that is what is applied here. Subclasses look at each record before it
takes effect, and at each damaged stretch.
"""

import enum
from collections import Counter
from pathlib import Path
from typing import Final

from pybroker.broker.domain.errors import JournalCorrupt, StoreUnavailable
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.journal.commands import (
    Command,
    CommandType,
    Subscribe,
    Trace,
    decode,
)
from pybroker.store.journal.malformed import MalformedRecord, UnknownCommand
from pybroker.store.journal.marks import MARK
from pybroker.store.journal.reader import has_vanished
from pybroker.store.journal.replay import TRACE_PREFIX
from pybroker.store.journal.state import METADATA_PREFIXES, StoreState
from pybroker.store.journal.tools.journal_snapshot import LISTINGS_MAX, DataFile, JournalSnapshot, Progress
from pybroker.store.journal.tools.scan import Gap, Record, RecordIntegrity, Scan, flaw
from pybroker.store.scheduler.replay import JobReplayResult
from pybroker.store.scheduler.replay import replay as replay_jobs
from pybroker.store.scheduler.state import JobState

SCHEDULER_COMMANDS: Final = frozenset(
    (
        CommandType.ADD_SCHEDULED_JOB,
        CommandType.RESCHEDULE_JOB,
        CommandType.REMOVE_SCHEDULED_JOB,
        CommandType.REMOVE_SCHEDULED_JOBS,
        CommandType.DESTROY_SCHEDULER,
    )
)
"""Commands of a scheduler's journal only."""
NEUTRAL_COMMANDS: Final = frozenset((CommandType.TRACE,))
"""Commands of both kinds of journal."""


_LOADED: Final = "LOADED "
"""Begins the trace record that ActiveMQ writes once it has opened a journal of messages."""


class Writer(enum.Enum):
    """A broker that writes journals."""

    PYBROKER = "pybroker"
    ACTIVEMQ = "ActiveMQ"


class ObservedReplay:
    """Reads a message journal into a state.

    Attributes:
        state: the store's contents.
        counts: records in sound batches, by command type.
        gaps: damaged stretches, torn tails included.
        damaged_file_ids: files of which not all can be used that should be usable.
        unfinished: transactions that were neither prepared nor ended, once the replay is over.
        last_trace: text of the `Trace` behind which nothing else follows, the state's own aside.
        last_writer: the broker that served last, if records tell that; None for one that neither has opened.
    """

    def __init__(self, snapshot: JournalSnapshot) -> None:
        self.snapshot = snapshot
        self.state = StoreState()
        self.counts: Counter[CommandType] = Counter()
        self.gaps: list[Gap] = []
        self.unfinished: list[TransactionId] = []
        self.last_trace: str | None = None
        self.last_writer: Writer | None = None
        self.damaged_file_ids: set[int] = set()
        self._has_markers = False

    def run(self, progress: Progress | None = None) -> None:
        """Read all files.

        Raises:
            StoreUnavailable: one cannot be read.
            JournalCorrupt: a newer version wrote it, and `met_unknown` does not say otherwise.
        """
        if any(file.is_compacted for file in self.snapshot.files.values()):
            self.state.expect_compacted_files()
        done = 0
        for file in self.snapshot.files.values():
            self._read(file)
            done += file.size
            if progress is not None:
                progress(done, self.snapshot.size)
        self.unfinished = self.state.finish()

    @property
    def is_damaged(self) -> bool:
        """True if damaged bytes should have been usable."""
        return bool(self.damaged_file_ids)

    def _read(self, file: DataFile) -> None:
        scan = self.snapshot.scan(file.file_id)
        for item in scan:
            if isinstance(item, Gap):
                self.gaps.append(item)
                if not item.is_torn:
                    self.damaged_file_ids.add(file.file_id)
                self.met_gap(item)
            elif item.integrity is RecordIntegrity.SOUND:
                self._take(item)
        self._look_at_end(file, scan)
        self.met_end(file, scan)

    def _look_at_end(self, file: DataFile, scan: Scan) -> None:
        """Check for a missing end of the file. From the first EOF marker on, all files must have one."""
        if scan.is_finished:
            self._has_markers = True
        elif self._has_markers and file.size and file.file_id not in self.snapshot.writable:
            last = self.gaps[-1].damage if self.gaps else None
            if last is None or (last.file_id, last.at_end) != (file.file_id, True):
                self.damaged_file_ids.add(file.file_id)
                self.met_missing_end(file, scan)

    def _take(self, record: Record) -> None:
        try:
            command = decode(record.payload)
        except UnknownCommand as error:
            self.met_unknown(record, error)
            return
        except MalformedRecord as error:
            self.damaged_file_ids.add(record.location.file_id)
            self.met_flaw(record, None, str(error))
            return
        self.counts[CommandType(record.payload[0])] += 1
        reason = self.examined(command)
        if reason is not None:
            self.damaged_file_ids.add(record.location.file_id)
            self.met_flaw(record, command, reason)
            if isinstance(command, Subscribe):
                return  # as recovery does; a damaged message is found when it is read
        self.met(record, command)
        self.state.apply(command, record.location)
        self.last_writer = _writer_of(command) or self.last_writer
        if not isinstance(command, Trace):
            self.last_trace = None
            return
        if command.message is None:
            return
        self._has_markers |= command.message.startswith(TRACE_PREFIX)
        if not command.message.startswith((*METADATA_PREFIXES, MARK)):
            self.last_trace = command.message

    # ------------------------------------------------------------ for subclasses

    def examined(self, command: Command) -> str | None:
        """Return the flaw of the object in a command, if it is examined and has one."""
        return flaw(command) if isinstance(command, Subscribe) else None

    def met(self, record: Record, command: Command) -> None:
        """Handle a record of a sound batch before it takes effect."""

    def met_gap(self, gap: Gap) -> None:
        """Handle a damaged stretch."""

    def met_flaw(self, record: Record, command: Command | None, reason: str) -> None:
        """Handle a record of a sound batch that does not decode, or (`command`) whose OpenWire object does not."""

    def met_missing_end(self, file: DataFile, scan: Scan) -> None:
        """Handle a file that ends where a batch ended, though its writer wrote more."""

    def met_end(self, file: DataFile, scan: Scan) -> None:
        """Handle a file's end."""

    def met_unknown(self, record: Record, error: UnknownCommand) -> None:
        """Handle a record of a newer version; by default refuse it, since the store's contents are unknown then."""
        raise JournalCorrupt(
            f"{error} in a sound record",
            path=str(self.snapshot.files[record.location.file_id].path),
            offset=record.location.offset,
            hint="a newer version wrote this store: use that one",
        ) from error


def _writer_of(command: Command) -> Writer | None:
    """Return the broker that alone writes such records, and only once it serves; None for others.

    An ActiveMQ that refuses to start with the index that it finds has written its audit and its map all the same.
    """
    match command:
        case Trace(str() as text) if text.startswith(TRACE_PREFIX):
            return Writer.PYBROKER
        case Trace(str() as text) if text.startswith(_LOADED):
            return Writer.ACTIVEMQ
        case _:
            return None


def holds_jobs(snapshot: JournalSnapshot) -> bool:
    """Return True if a journal is a scheduler's: by its first record that belongs to one kind of journal only."""
    for file_id in snapshot.files:
        for item in snapshot.scan(file_id):
            if isinstance(item, Record) and item.payload[0] not in NEUTRAL_COMMANDS:
                return item.payload[0] in SCHEDULER_COMMANDS
    return snapshot.directory.name == "scheduler"


def read_jobs(directory: Path, state: JobState, *, held_bytes_max: int) -> JobReplayResult:
    """Replay a scheduler's journal, from the start again where files are collected on the way.

    Args:
        directory: the scheduler's.
        state: fresh.
        held_bytes_max: limit on the messages kept in memory.

    Raises:
        StoreUnavailable: the directory or a file cannot be read.
        JournalCorrupt: the data files are no journal, or hold commands of a newer version.
    """
    for _ in range(LISTINGS_MAX):
        try:
            return replay_jobs(directory, state, held_bytes_max=held_bytes_max)
        except StoreUnavailable as error:
            if not has_vanished(error.__cause__) or not directory.is_dir():
                raise
            state.live.clear()
            state.references.clear()
    return replay_jobs(directory, state, held_bytes_max=held_bytes_max)
