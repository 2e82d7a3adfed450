"""Recovers the state of a journal from its data files. Message bodies are not decoded: see `bodies`.

Files are replayed in ascending order of their ids, and nothing is skipped: ActiveMQ passes over a compacted file
whose source still exists, but applying its acks and commits a second time changes nothing.

Damage never ends a replay. It is collected, so that the caller can report the loss; see `ReplayResult` for the one kind
that is normal. Nothing is changed on disk.

Source: ActiveMQ 5.17, `MessageDatabase.recover` without an index.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from pybroker import regular
from pybroker.broker.domain.errors import JournalCorrupt, MalformedData, StoreUnavailable
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.journal.adds import apply_adds
from pybroker.store.journal.commands import (
    CommandType,
    RewrittenDataFile,
    Subscribe,
    Trace,
    decode,
)
from pybroker.store.journal.contents import FILE_SHIFT, OFFSET_SHIFT
from pybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    EOF_MARKER,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    Location,
    data_file_name,
)
from pybroker.store.journal.malformed import UnknownCommand
from pybroker.store.journal.marks import MARK
from pybroker.store.journal.reader import (
    UNBEGUN,
    Buffer,
    Damage,
    DataFileWalk,
    data_files,
    has_checksum,
    has_vanished,
    is_finished,
    load,
    missing_end,
    sound_batches,
    unavailable,
)
from pybroker.store.journal.state import METADATA_PREFIXES, StoreState

TRACE_PREFIX = "pybroker "
"""Prefix of every metadata record of this package, and so identifies the writer of a file."""

_ADD_MESSAGE = bytes([CommandType.ADD_MESSAGE])

CLOSING_TRACES_MAX = 4096
"""Metadata records at the journal's end that are kept; more than a clean stop ever writes."""

Progress = Callable[[int, int, int], None]
"""Called after each file with files done, files in all, records so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """Result of a replay.

    Attributes:
        records: records applied, by command type.
        damages: bytes that should have been usable, and are not: something was lost.
        torn_tails: unusable bytes where the last write may have been going on. Normal after a crash: nothing in
            them was ever acknowledged. ActiveMQ may have been writing below compacted files with higher ids.
        last_file_id: the highest file id, 0 when there is no file.
        end: the logical end of that file.
        open_ends: the files that may have been written last, and where each of them logically ends: a new master seals
            them.
        chains: the `chained` checksum of each file's batches.
        unfinished: transactions in `state.inflight` that need a `Rollback`.
        closing_traces: texts of the `Trace` records at the end, without the state's own.
    """

    records: Mapping[CommandType, int]
    damages: Sequence[Damage]
    torn_tails: Sequence[Damage]
    last_file_id: int
    end: int
    open_ends: Mapping[int, int]
    chains: Mapping[int, int]
    unfinished: Sequence[TransactionId]
    closing_traces: Sequence[str]


def inspect(directory: Path) -> dict[int, Path]:
    """Return a directory's data files by id, after a check that they are a KahaDB journal.

    One recognisable file is enough: damage is for the replay to report.

    Raises:
        StoreUnavailable: the directory or a file cannot be read.
        JournalCorrupt: there are data files, and none of them has anything to do with KahaDB.
    """
    files = data_files(directory)
    try:
        is_journal = not files or any(_is_journal(path) for path in files.values())
    except StoreUnavailable as error:
        if has_vanished(error.__cause__) and directory.is_dir():  # its master deleted it: look again
            return inspect(directory)
        raise
    if not is_journal:
        first = next(iter(files.values()))
        raise JournalCorrupt(
            "this is not a KahaDB journal: no data file here begins with a batch, or contains one",
            path=str(first),
            offset=0,
            hint="point the store at ActiveMQ's kahadb directory, or at an empty one",
        )
    return files


def replay(directory: Path, state: StoreState, *, progress: Progress | None = None) -> ReplayResult:
    """Apply all records of a directory's journal to a fresh state, and end the replay (`StoreState.finish`).

    Raises:
        StoreUnavailable: the directory or a file cannot be read.
        JournalCorrupt: the data files are no KahaDB journal, see `inspect`, or hold commands of a newer version.
    """
    files = inspect(directory)
    if any(is_compacted(path) for path in files.values()):
        state.expect_compacted_files()
    run = Replay(directory, state)
    ends: dict[int, int] = {}
    for done, (file_id, path) in enumerate(files.items(), 1):
        ends[file_id] = run.read_file(file_id, path)
        if progress is not None:
            progress(done, len(files), run.record_count)
    return run.result(ends)


class Replay:
    """A replay under way: applies batches to a state, and collects its result.

    Attributes:
        state: what the journal amounts to so far.
        damages: what was met and cannot be used.
        chains: per data file the `chained` checksum of its batches.
        non_add_checksums: per data file a checksum over all its records but the adds: what a compaction must not
            change.
        sources: compacted files of an ActiveMQ, and the files whose records were copied into them.
        unmarked: files that end without an EOF marker, and where.
    """

    def __init__(self, directory: Path, state: StoreState) -> None:
        self.state = state
        self.damages: list[Damage] = []
        self.chains: dict[int, int] = {}
        self.non_add_checksums: dict[int, int] = {}
        self.sources: dict[int, int] = {}
        self._directory = directory
        self.unmarked: dict[int, int] = {}
        self._marked_since: int | None = None
        self._counts = [0] * len(CommandType)
        self._closing: list[str] = []

    @property
    def record_count(self) -> int:
        """Records applied so far."""
        return sum(self._counts)

    def read_file(self, file_id: int, path: Path, start: int = 0) -> int:
        """Apply a data file's records from an offset on, and return its logical end. Damage is skipped and recorded.

        Raises:
            StoreUnavailable: the file cannot be read.
            JournalCorrupt: a newer version wrote this.
        """
        try:
            descriptor = regular.descriptor(path)
            try:
                start = self.read_sound(file_id, descriptor, start)
                if os.pread(descriptor, len(EOF_MARKER), start) == EOF_MARKER:
                    self._record_end(file_id, start, EOF_MARKER)
                    return start
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unavailable(path, error) from error
        data = load(path)
        end = self._read_on(file_id, data, start)
        if len(data):  # an empty file was created and never written
            self._record_end(file_id, end, data[end : end + len(EOF_MARKER)])
        return end

    def read_sound(self, file_id: int, descriptor: int, start: int) -> int:
        """Apply the sound batches from an offset on, as far as they follow one another, and return where they end.

        Raises:
            OSError: the file cannot be read.
            JournalCorrupt: a newer version wrote this.
        """
        for data, offset, end, base in sound_batches(descriptor, start):
            self.apply(data, offset, end, file_id, base)
            start = base + end
        return start

    def _read_on(self, file_id: int, data: Buffer, start: int) -> int:
        """Record the damage where neither a sound batch nor an EOF marker is, and apply the records behind it."""
        walk = DataFileWalk(data, file_id, start=start)
        for offset, end in walk.batches():
            begin = offset - BATCH_HEADER_BYTES
            self.apply(data[begin:end], BATCH_HEADER_BYTES, end - begin, file_id, begin)
        self.damages += walk.damages
        return walk.end

    def _record_end(self, file_id: int, end: int, behind: bytes) -> None:
        """Record how a file ends. From the first one on that has an EOF marker, all have to have one."""
        if is_finished(behind):
            self._record_markers(file_id)
            self.unmarked.pop(file_id, None)
        else:
            self.unmarked[file_id] = end

    def _record_markers(self, file_id: int) -> None:
        """Record that this file's writer writes EOF markers."""
        if self._marked_since is None or file_id < self._marked_since:
            self._marked_since = file_id

    def _missing_ends(self, writable: Collection[int]) -> list[Damage]:
        """Return the missing ends of files that another one followed. ActiveMQ has not always written EOF markers."""
        reported = {damage.file_id for damage in self.damages if damage.at_end}
        return [
            missing_end(file_id, end)
            for file_id, end in self.unmarked.items()
            if file_id not in writable
            and file_id not in reported
            and self._marked_since is not None
            and file_id >= self._marked_since
        ]

    def apply(self, data: bytes, offset: int, end: int, file_id: int, base: int = 0) -> None:
        """Apply the records of one sound batch.

        Args:
            data: bytes of the data file.
            offset: where in them the first record begins, right behind the batch control record.
            end: where in them the last one ends.
            file_id: the data file.
            base: where in the file the bytes begin.

        Raises:
            JournalCorrupt: a newer version wrote this.
        """
        self.chains[file_id] = chained(data, offset, end, self.chains.get(file_id, 0))
        place = file_id << FILE_SHIFT | base << OFFSET_SHIFT
        while offset < end:
            offset, added = apply_adds(self.state, data, offset, end, place)
            if added:
                self._counts[CommandType.ADD_MESSAGE] += added
                self._closing.clear()
            if offset < end:
                size, _ = RECORD_HEADER.unpack_from(data, offset)
                payload = data[offset + RECORD_HEADER_BYTES : offset + size]
                self._apply_other(payload, Location(file_id, base + offset))
                offset += size

    def _apply_other(self, payload: bytes, location: Location) -> None:
        """Apply any record, or record that it does not decode."""
        if payload[:1] != _ADD_MESSAGE:
            self.non_add_checksums[location.file_id] = crc32(payload, self.non_add_checksums.get(location.file_id, 0))
        try:
            command = decode(payload)
            if type(command) is Subscribe:
                decode_subscription_info(command.info)
        except UnknownCommand as error:
            raise JournalCorrupt(
                f"{error} in a sound record",
                path=str(self._directory / data_file_name(location.file_id)),
                offset=location.offset,
                hint="a newer version wrote this store: start that one; this one changed nothing in the journal",
            ) from error
        except MalformedData as error:
            length = RECORD_HEADER_BYTES + len(payload)
            self.damages.append(Damage(location.file_id, location.offset, length, f"a record does not decode: {error}"))
            return
        self._counts[payload[0]] += 1
        self.state.apply(command, location)
        if type(command) is Trace:
            self._remember(command)
            if command.message is not None and command.message.startswith(TRACE_PREFIX):
                self._record_markers(location.file_id)
            return
        self._closing.clear()
        if type(command) is RewrittenDataFile:
            self.sources[location.file_id] = command.source_file_id

    def _remember(self, trace: Trace) -> None:
        text = trace.message
        if (
            text is not None
            and not text.startswith((*METADATA_PREFIXES, MARK))
            and len(self._closing) < CLOSING_TRACES_MAX
        ):
            self._closing.append(text)

    def result(self, ends: Mapping[int, int]) -> ReplayResult:
        """End the replay of data files in ascending order; given is where each of them logically ends."""
        file_ids = list(ends)
        writable = self._writable(ends)
        return ReplayResult(
            records={kind: self._counts[kind] for kind in CommandType if self._counts[kind]},
            damages=[
                *(each for each in self.damages if not (each.at_end and each.file_id in writable)),
                *self._missing_ends(writable),
            ],
            torn_tails=[each for each in self.damages if each.at_end and each.file_id in writable],
            last_file_id=file_ids[-1] if file_ids else 0,
            end=ends[file_ids[-1]] if file_ids else 0,
            open_ends={file_id: end for file_id, end in ends.items() if file_id in writable},
            chains=self.chains,
            unfinished=self.state.finish(),
            closing_traces=self._closing,
        )

    def _writable(self, ends: Mapping[int, int]) -> set[int]:
        """Return the files that may have been written last.

        That is the highest one, and the next one below those that an ActiveMQ made by compaction, or in which nothing
        is: their masters have claimed a number, and come no further. A claim may be torn, too.
        """
        writable: set[int] = set()
        damaged = {damage.file_id for damage in self.damages if damage.reason != UNBEGUN}
        for file_id in reversed(ends):
            writable.add(file_id)
            is_claim = not ends[file_id] and file_id not in damaged
            if not is_claim and file_id not in self.state.compacted:
                break
        return writable


def chained(data: Buffer, offset: int, end: int, chain: int) -> int:
    """Return the checksum of a file's batches so far, with one more that was found sound.

    A control record has the checksum of its batch, so the control records are enough; without it, the bytes are taken.
    """
    return crc32(data[offset - BATCH_HEADER_BYTES : offset if has_checksum(data, offset) else end], chain)


def flaw(content: bytes, chain: int) -> int | None:
    """Return the offset from which on a data file differs from what was replayed; None when it does not.

    Args:
        content: the file up to its logical end.
        chain: the `chained` checksum of the batches that were replayed.
    """
    walk, found = DataFileWalk(content, 0), 0
    for offset, end in walk.batches():
        found = chained(content, offset, end, found)
    if found == chain:
        return None
    return walk.damages[0].offset if walk.damages else 0


def _is_journal(path: Path) -> bool:
    beginning = _beginning(path)
    if beginning.startswith((BATCH_MAGIC, EOF_MARKER)) or BATCH_MAGIC.startswith(beginning[: len(BATCH_MAGIC)]):
        return True
    return not beginning.strip(b"\0") or load(path).find(BATCH_MAGIC) >= 0


def is_compacted(path: Path) -> bool:
    """Return True if a data file begins with a `RewrittenDataFile`; not yet, as long as nothing is in it."""
    beginning = _beginning(path)
    first_payload = BATCH_HEADER_BYTES + RECORD_HEADER_BYTES
    return beginning.startswith(BATCH_MAGIC) and beginning[first_payload:] == bytes([CommandType.REWRITTEN_DATA_FILE])


def _beginning(path: Path) -> bytes:
    """Return a file's bytes as far as the first command's type, or fewer when there are not as many."""
    try:
        with open(path, "rb", opener=regular.opener) as file:
            return file.read(BATCH_HEADER_BYTES + RECORD_HEADER_BYTES + 1)
    except OSError as error:
        raise unavailable(path, error) from error
