"""Checks a journal: every file, batch, checksum and record, and their consistency with one another.

A check also reports what recovery accepts silently: acknowledgements of missing messages, transactions that never
ended, records that ActiveMQ's recovery would skip or revive.

A scheduler's journal is checked by the same rules, as far as they apply.

Source: ActiveMQ 5.17, `MessageDatabase.recover`, for what is skipped and what comes back.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.counted import counted
from pybroker.store.journal.commands import (
    AddMessage,
    Command,
    CommandType,
    Commit,
    RemoveMessage,
    RewrittenDataFile,
    UpdateMessage,
    decode,
)
from pybroker.store.journal.contents import Removed
from pybroker.store.journal.files import SEALED_SUFFIX
from pybroker.store.journal.format import EOF_MARKER, Location, data_file_name
from pybroker.store.journal.malformed import UnknownCommand
from pybroker.store.journal.reader import missing_end
from pybroker.store.journal.state import StoreState
from pybroker.store.journal.tools.findings import (
    EXAMPLES_MAX,
    NOTHING,
    DamageContext,
    Finding,
    Level,
    complete_until,
    damaged_stretch,
    message_ids,
    unfinished_transaction,
)
from pybroker.store.journal.tools.journal_snapshot import DataFile, JournalSnapshot, Progress
from pybroker.store.journal.tools.observed_replay import SCHEDULER_COMMANDS, ObservedReplay, Writer, read_jobs
from pybroker.store.journal.tools.scan import Gap, Record, Scan, flaws
from pybroker.store.scheduler.state import JobState

INDEXES: Final = ("db.data", "scheduleDB.data")
"""ActiveMQ's index, by kind of store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Result of a check.

    Attributes:
        directory: the journal's.
        files: data files read.
        bytes: of them.
        batches: sound ones.
        records: in sound batches, by command type.
        findings: in the order of files and offsets; those about the whole journal last.
        state: the contents that a recovery finds; of a scheduler's journal, nothing.
        last_writer: the broker that served last, if records tell that.
    """

    directory: str
    files: int
    bytes: int
    batches: int
    records: dict[str, int]
    findings: Sequence[Finding] = field(repr=False)
    state: StoreState = field(repr=False)
    last_writer: Writer | None

    @property
    def is_sound(self) -> bool:
        """True when nothing is damaged."""
        return not any(finding.level is Level.DAMAGE for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON, without its findings."""
        levels = [finding.level for finding in self.findings]
        return {
            "kind": "checked",
            "directory": self.directory,
            "sound": self.is_sound,
            "files": self.files,
            "bytes": self.bytes,
            "batches": self.batches,
            "records": self.records,
            **{f"{level.value}s": levels.count(level) for level in Level},
        }


def check(snapshot: JournalSnapshot, *, in_use: bool = False, progress: Progress | None = None) -> CheckReport:
    """Check a journal, of messages or of a scheduler.

    Args:
        snapshot: its data files.
        in_use: a master holds its lock, and may be writing.
        progress: receives the progress.

    Raises:
        StoreUnavailable: a file cannot be read.
    """
    run = _Check(snapshot, in_use=in_use)
    run.run(progress)
    run.conclude()
    return CheckReport(
        directory=str(snapshot.directory),
        files=len(snapshot.files),
        bytes=snapshot.size,
        batches=run.batch_count,
        records={kind.name: run.counts[kind] for kind in CommandType if run.counts[kind]},
        findings=run.findings,
        state=run.state,
        last_writer=run.last_writer,
    )


class _Check(ObservedReplay):
    """Collects findings during the replay; `conclude` adds those that need the whole journal."""

    def __init__(self, snapshot: JournalSnapshot, *, in_use: bool) -> None:
        super().__init__(snapshot)
        self.findings: list[Finding] = []
        self.batch_count = 0
        self._in_use = in_use
        self._has_index = any((snapshot.directory / name).exists() for name in INDEXES)
        self._unchecked_count = 0
        self._property_flaw: str | None = None
        self._record_count = 0
        self._behind: list[tuple[Gap, int]] = []
        self._gaps_in_file: list[tuple[Gap, int]] = []
        self._dangling: dict[tuple[Destination, str], Location] = {}
        self._adding_files: set[int] = set()
        self._skipped: dict[int, int] = {}
        self._committed: set[TransactionId] = set()
        self._late: list[Location] = []
        self._without_ack: dict[TransactionId, Location] = {}

    # ------------------------------------------------------------ on the way

    def examined(self, command: Command) -> str | None:
        """Return the flaw of the object in a command, if it has one."""
        reason, self._property_flaw = flaws(command)
        return reason

    def met(self, record: Record, command: Command) -> None:
        """Record the facts that later records, or the end, may contradict."""
        self._record_count += 1
        file_id = record.location.file_id
        if self._property_flaw is not None:
            self._find(
                Level.NOTICE,
                "unreadable properties",
                record.location,
                record.size,
                f"a message's properties do not decode: {self._property_flaw}; the batch is as it was written",
                "delivers the message",
                "delivers the message; to its selectors and to STOMP clients it is unreadable",
                "find out which client sent it",
            )
        match command:
            case AddMessage() | UpdateMessage():
                self._adding_files.add(file_id)
            case RemoveMessage():
                self._met_ack(command, record.location)
            case Commit(transaction):
                self._committed.add(transaction)
            case RewrittenDataFile(source_file_id=source, skip_if_source_exists=True):
                if source in self.snapshot.files and self.snapshot.files[file_id].is_compacted:
                    self._skipped[file_id] = source
            case _:
                pass

    def _met_ack(self, ack: RemoveMessage, location: Location) -> None:
        transaction = ack.transaction
        if transaction is None:
            key = (ack.destination, ack.message_id)
            if (self._is_complete or self.gaps) and not self.state.contains(*key):
                self._dangling.setdefault(key, location)
            return
        if isinstance(transaction, XATransactionId) and not ack.ack:
            self._without_ack.setdefault(transaction, location)
        is_copied = self.snapshot.files[location.file_id].is_compacted
        if is_copied and transaction in self._committed and self.state.contains(ack.destination, ack.message_id):
            self._late.append(location)

    @property
    def _is_complete(self) -> bool:
        """True if no data file was ever collected, judging by their ids."""
        return next(iter(self.snapshot.files)) == 1 and self.snapshot.last_file_id == len(self.snapshot.files)

    def met_gap(self, gap: Gap) -> None:
        """Keep the gap until the rest of the file is read."""
        self._gaps_in_file.append((gap, self._record_count))

    def met_flaw(self, record: Record, command: Command | None, reason: str) -> None:
        """Report a record or a message that does not decode."""
        self._record_count += 1
        what, activemq, pybroker = (
            ("a record does not decode", "refuses to start when it rebuilds its index", "skips the record")
            if command is None
            else (
                "a record's OpenWire object does not decode",
                "shuts itself down when it loads it",
                "leaves it out when it reads it",
            )
        )
        self._find(
            Level.DAMAGE,
            "damaged record",
            record.location,
            record.size,
            f"{what}: {reason}; the batch is as it was written",
            activemq,
            f"{pybroker}; logs it as damaged",
            "report it to the maintainers of the broker that wrote it; salvage leaves the record out",
        )

    def met_unknown(self, record: Record, error: UnknownCommand) -> None:
        """Report a record of a newer version."""
        self._find(
            Level.DAMAGE,
            "newer record",
            record.location,
            record.size,
            f"{error} in a sound record: a newer version wrote it",
            "refuses to start when it rebuilds its index",
            "refuses to start; changes nothing",
            "use the version that wrote this store",
        )

    def met_missing_end(self, file: DataFile, scan: Scan) -> None:
        """Report that the file's end is missing."""
        damage = missing_end(file.file_id, scan.end)
        self._find(
            Level.DAMAGE,
            "missing end",
            Location(file.file_id, damage.offset),
            damage.length,
            f"{damage.reason}; the loss is unknown",
            "silently goes on with the next file when it rebuilds its index; stops when it loads a message from there",
            "goes on with the next file; logs it as damaged",
            "put a copy of the file from a backup in its place",
        )

    def met_end(self, file: DataFile, scan: Scan) -> None:
        """Report oddities of the file as a whole."""
        self.batch_count += scan.batch_count
        self._unchecked_count += scan.unchecked_count
        self._behind += [(gap, self._record_count - count) for gap, count in self._gaps_in_file]
        self._gaps_in_file.clear()
        for offset in scan.odd_checksums:
            self._find(
                Level.DAMAGE,
                "damaged checksum",
                Location(file.file_id, offset),
                len(EOF_MARKER),
                "a batch's checksum is negative, which no broker writes; the batch goes unchecked",
                "takes the batch as it is",
                "takes the batch as it is",
                "look at its messages; salvage writes the batch again",
            )
        stray = scan.stray_bytes
        is_last = file.file_id == self.snapshot.last_file_id
        if not is_last and 0 < stray < len(EOF_MARKER) and not (self.gaps and self.gaps[-1].damage.at_end):
            self._find(
                Level.HAZARD,
                "cut marker",
                Location(file.file_id, scan.end),
                stray,
                f"{counted(stray, 'byte')} behind the last batch, where an EOF marker has {len(EOF_MARKER)}",
                "fails to start when it rebuilds its index",
                NOTHING,
                f"cut the file at {scan.end}, or salvage the store",
            )

    # ------------------------------------------------------------ in the end

    def conclude(self) -> None:
        """Report the findings that need the whole journal."""
        self.findings += self._damaged_stretches()
        self.findings.sort(key=self._place)
        self._conclude_acks()
        self._conclude_compacted()
        self._conclude_transactions()
        self._conclude_updates()
        self._conclude_jobs()
        if self._unchecked_count:
            self._find_all(
                "unchecked batches",
                f"{self._unchecked_count:,} of {counted(self.batch_count, 'batch')} without checksum: changes in these "
                "go unnoticed",
                "leave checksums on (ActiveMQ: checksumJournalFiles)",
            )
        leftovers = sorted(path.name for path in self.snapshot.directory.glob(f"*{SEALED_SUFFIX}"))
        if leftovers and not self._in_use:
            self._find_all(
                "leftovers",
                f"copies that a crash left half made: {', '.join(leftovers)}",
                "delete them",
            )

    def _place(self, finding: Finding) -> tuple[int, int]:
        by_path = {str(file.path): file.file_id for file in self.snapshot.files.values()}
        return by_path.get(finding.path, 0), finding.offset or 0

    def _damaged_stretches(self) -> Iterator[Finding]:
        for gap, behind in self._behind:
            file_id = gap.damage.file_id
            rescued = message_ids(record for record in gap.rescued if record.payload[0] == CommandType.ADD_MESSAGE)
            dangling = {message_id for _, message_id in self._dangling}
            yield damaged_stretch(
                gap,
                DamageContext(
                    path=self._path(file_id),
                    is_last=file_id == self.snapshot.last_file_id,
                    is_in_use=self._in_use,
                    has_index=self._has_index,
                    records_behind=behind,
                    consumed=frozenset(dangling.intersection(rescued)),
                ),
            )

    def _conclude_acks(self) -> None:
        """Report acknowledgements of messages that are missing without a missing file or damage as the cause."""
        if not self._is_complete or self.gaps or not self._dangling:
            return
        for key in _added(self.snapshot, self._dangling.keys()):
            self._dangling.pop(key, None)
        complete = complete_until(self._adding_files)
        lost = {key: location for key, location in self._dangling.items() if location.file_id <= complete}
        if lost:
            ids = [message_id for _, message_id in lost]
            self._find(
                Level.DAMAGE,
                "acknowledged, never added",
                next(iter(lost.values())),
                None,
                f"{counted(len(lost), 'acknowledgement')} of messages that no file has, though no file is missing: "
                + _examples(ids),
                "ignores them",
                "ignores them",
                "these messages were consumed, so none of them is lost; but find out who removed records",
            )

    def _conclude_compacted(self) -> None:
        for file_id, source in self._skipped.items():
            live = self.state.usage.live.get(file_id, 0)
            if live:
                self._find(
                    Level.HAZARD,
                    "skipped file",
                    Location(file_id, 0),
                    self.snapshot.files[file_id].size,
                    f"{counted(live, 'live message')} in a compacted file, whose source {data_file_name(source)} still "
                    "exists",
                    "silently loses these messages when it rebuilds its index, because it skips such a file",
                    "reads the whole file",
                    "let pybroker serve the store, or compact it, before ActiveMQ has to rebuild its index",
                )
        if self._late:
            self._find(
                Level.HAZARD,
                "late acknowledgements",
                self._late[0],
                None,
                f"{counted(len(self._late), 'copied acknowledgement')} behind the commit of their transaction",
                "delivers these consumed messages again once it has to rebuild its index",
                "applies them",
                "compact the store with pybroker before ActiveMQ has to rebuild its index",
            )

    def _conclude_transactions(self) -> None:
        inflight = {transaction_id: self.state.inflight[transaction_id] for transaction_id in self.unfinished}
        for transaction_id, transaction in (inflight | self.state.prepared).items():
            removed = sum(isinstance(operation, Removed) for operation in transaction.operations)
            self.findings.append(
                unfinished_transaction(
                    self._path(min(transaction.files)),
                    str(transaction_id),
                    added=len(transaction.operations) - removed,
                    removed=removed,
                    file_ids=transaction.files,
                    is_prepared=transaction_id in self.state.prepared,
                    is_in_use=self._in_use,
                )
            )
            if transaction_id in self._without_ack:
                self._find(
                    Level.HAZARD,
                    "in doubt without ack",
                    self._without_ack[transaction_id],
                    None,
                    f"the prepared transaction {transaction_id} has an acknowledgement that is not recorded in full",
                    "refuses to start",
                    "takes it as it is",
                    "let pybroker serve the store until the transaction is decided",
                )

    def _conclude_updates(self) -> None:
        count = self.counts[CommandType.UPDATE_MESSAGE]
        if count:
            self._findings_add(
                Level.HAZARD,
                "updates",
                f"{counted(count, 'update')} of stored messages (ActiveMQ's persistJMSRedelivered): after a collection "
                "of files the journal alone may still have messages that were consumed; only ActiveMQ's index knows",
                "delivers them again once it has to rebuild its index",
                "works without that index: may deliver them again, and never loses one",
                "empty the queues before pybroker takes the store over, and switch persistJMSRedelivered off",
            )

    def _conclude_jobs(self) -> None:
        if not any(self.counts[kind] for kind in SCHEDULER_COMMANDS) or self.counts[CommandType.ADD_MESSAGE]:
            return
        stale = [job_id for job_id, _ in read_jobs(self.snapshot.directory, JobState(), held_bytes_max=0).stale_jobs]
        if stale:
            self._findings_add(
                Level.HAZARD,
                "ghost jobs",
                f"{counted(len(stale), 'scheduled job')} over, though the journal alone does not show it: "
                + _examples(stale),
                "runs them once more when it has to rebuild its index",
                "leaves them out, and writes down that they are over",
                "let pybroker open the store once",
            )

    # ------------------------------------------------------------ words

    def _path(self, file_id: int) -> str:
        return str(self.snapshot.files[file_id].path)

    def _find(
        self,
        level: Level,
        kind: str,
        location: Location,
        length: int | None,
        what: str,
        activemq: str,
        pybroker: str,
        remedy: str,
    ) -> None:
        self.findings.append(
            Finding(
                level=level,
                kind=kind,
                path=self._path(location.file_id),
                offset=location.offset,
                length=length,
                what=what,
                activemq=activemq,
                pybroker=pybroker,
                remedy=remedy,
            )
        )

    def _find_all(self, kind: str, what: str, remedy: str) -> None:
        self._findings_add(Level.NOTICE, kind, what, NOTHING, NOTHING, remedy)

    def _findings_add(self, level: Level, kind: str, what: str, activemq: str, pybroker: str, remedy: str) -> None:
        """Add a finding about the journal as a whole."""
        directory = str(self.snapshot.directory)
        self.findings.append(
            Finding(
                level=level, kind=kind, path=directory, what=what, activemq=activemq, pybroker=pybroker, remedy=remedy
            )
        )


def _added(snapshot: JournalSnapshot, wanted: Iterable[tuple[Destination, str]]) -> Iterator[tuple[Destination, str]]:
    """Yield the messages that a record adds."""
    looked_for = set(wanted)
    for file_id in snapshot.files:
        for item in snapshot.scan(file_id):
            if isinstance(item, Record) and item.payload[0] == CommandType.ADD_MESSAGE:
                command = decode(item.payload)
                if isinstance(command, AddMessage) and (command.destination, command.message_id) in looked_for:
                    yield command.destination, command.message_id


def _examples(names: Sequence[str]) -> str:
    return ", ".join(names[:EXAMPLES_MAX]) + (", …" if len(names) > EXAMPLES_MAX else "")
