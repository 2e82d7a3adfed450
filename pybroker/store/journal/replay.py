"""Recovery: a journal's files in, the state they amount to out; and the bodies of what is alive, when asked for.

Files are replayed in ascending order of their ids, and nothing is skipped: ActiveMQ passes over a compacted file
whose source still exists, but applying its acks and commits a second time changes nothing.

Damage never ends a replay. It is collected, so that the caller can tell the operator what was lost; see
`ReplayResult` for the one kind that is normal. Nothing is changed on disk.

Source: ActiveMQ 5.17, `MessageDatabase.recover` without an index.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import JournalCorrupt
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import routing
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.journal.commands import (
    AddMessage,
    CommandType,
    MalformedRecord,
    Subscribe,
    Trace,
    UnknownCommand,
    UpdateMessage,
    decode,
)
from pybroker.store.journal.contents import Entry
from pybroker.store.journal.format import (
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    EOF_MARKER,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    USER_RECORD,
    Location,
    data_file_name,
)
from pybroker.store.journal.reader import Damage, DataFileWalk, data_files, load, unavailable
from pybroker.store.journal.state import SEQUENCES, StoreState

CLOSING_TRACES_MAX = 4096
"""Remarks at the journal's end that are kept; more than a clean stop ever writes."""
OPEN_FILES_MAX = 16
"""Data files a `BodyReader` keeps open: dispatch order goes through them one after another, per priority class."""
READ_AHEAD_BYTES = 256 * 1024
"""What one read of a `BodyReader` fetches: some hundred messages of a kilobyte, at the price of one seek."""

Progress = Callable[[int, int, int], None]
"""Called after each file with files done, files in all, records so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """What a replay met.

    Attributes:
        records: records applied, by command type.
        damages: bytes that should have been usable, and are not: something was lost.
        torn_tails: unusable bytes where the last write may have been going on. Normal after a crash: nothing in
            them was ever acknowledged. ActiveMQ may have been writing below compacted files with higher ids.
        last_file_id: the highest file id, 0 when there is no file.
        end: the logical end of that file.
        unfinished: transactions in `state.inflight` that need a `Rollback`.
        closing: texts of the `Trace` records behind which nothing else follows, the state's own aside.
    """

    records: Mapping[CommandType, int]
    damages: Sequence[Damage]
    torn_tails: Sequence[Damage]
    last_file_id: int
    end: int
    unfinished: Sequence[TransactionId]
    closing: Sequence[str]


def inspect(directory: Path) -> dict[int, Path]:
    """Return a directory's data files by id, after a look at whether they are a KahaDB journal at all.

    One recognisable file is enough: damage is for the replay to report.

    Raises:
        StoreUnavailable: the directory or a file cannot be read.
        JournalCorrupt: there are data files, and none of them has anything to do with KahaDB.
    """
    files = data_files(directory)
    if files and not any(_is_journal(path) for path in files.values()):
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
    if any(_is_compacted(path) for path in files.values()):
        state.expect_compacted_files()
    run = _Replay(state)
    for done, (file_id, path) in enumerate(files.items(), 1):
        run.read(file_id, path)
        if progress is not None:
            progress(done, len(files), sum(run.counts))
    return run.result(list(files))


class _Replay:
    def __init__(self, state: StoreState) -> None:
        self.counts = [0] * len(CommandType)
        self._state = state
        self._damages: list[Damage] = []
        self._closing: list[str] = []
        self._end = 0

    def read(self, file_id: int, path: Path) -> None:
        apply = self._state.apply
        counts = self.counts
        walk = DataFileWalk(load(path), file_id)
        for location, payload in walk:
            try:
                command = decode(payload)
                if type(command) is Subscribe:
                    decode_subscription_info(command.info)
            except UnknownCommand as error:
                raise JournalCorrupt(
                    f"{error} in a sound record",
                    path=str(path),
                    offset=location.offset,
                    hint="a newer version wrote this store: start that one; this one changed nothing in the journal",
                ) from error
            except (MalformedRecord, MalformedOpenWire) as error:
                length = RECORD_HEADER_BYTES + len(payload)
                self._damages.append(Damage(file_id, location.offset, length, f"a record does not decode: {error}"))
                continue
            counts[payload[0]] += 1
            apply(command, location)
            if type(command) is Trace:
                self._remember(command)
            elif self._closing:
                self._closing.clear()
        self._damages += walk.damages
        self._end = walk.end

    def _remember(self, trace: Trace) -> None:
        text = trace.message
        if text is not None and not text.startswith(SEQUENCES) and len(self._closing) < CLOSING_TRACES_MAX:
            self._closing.append(text)

    def result(self, file_ids: Sequence[int]) -> ReplayResult:
        writable = self._writable(file_ids)
        return ReplayResult(
            records={kind: self.counts[kind] for kind in CommandType if self.counts[kind]},
            damages=[each for each in self._damages if not (each.at_end and each.file_id in writable)],
            torn_tails=[each for each in self._damages if each.at_end and each.file_id in writable],
            last_file_id=file_ids[-1] if file_ids else 0,
            end=self._end,
            unfinished=self._state.finish(),
            closing=self._closing,
        )

    def _writable(self, file_ids: Sequence[int]) -> set[int]:
        """Return the files that may have been written last: the highest, and the next one below compacted ones."""
        writable: set[int] = set()
        for file_id in reversed(file_ids):
            writable.add(file_id)
            if file_id not in self._state.compacted:
                break
        return writable


class BodyReader(AbstractContextManager["BodyReader"]):
    """Reads stored messages back from where the state says they are.

    It reads ahead, so going through a destination in dispatch order costs few reads.

    Attributes:
        damages: what `messages` had to leave out.
    """

    def __init__(self, directory: Path) -> None:
        """Prepare to read data files of that directory; none is opened before it is needed."""
        self.damages: list[Damage] = []
        self._directory = directory
        self._descriptors: OrderedDict[int, int] = OrderedDict()
        self._window = b""
        self._window_start = Location(0, 0)

    def messages(
        self, state: StoreState, destination: Destination, subscription_key: str | None = None
    ) -> Iterator[Message]:
        """Yield a destination's messages in dispatch order, those included whose acknowledgement is prepared.

        Raises:
            StoreUnavailable: a data file cannot be read.
        """
        return self.bodies(state.entries(destination, subscription_key, include_hidden=True))

    def bodies(self, entries: Iterable[Entry]) -> Iterator[Message]:
        """Yield messages; one that cannot be read back is left out and reported in `damages`.

        Raises:
            StoreUnavailable: a data file cannot be read.
        """
        for entry in entries:
            try:
                yield self.message(entry)
            except JournalCorrupt as error:
                file_id, offset = entry.location
                self.damages.append(Damage(file_id, offset, entry.size, str(error)))

    def message(self, entry: Entry) -> Message:
        """Return one message.

        Raises:
            JournalCorrupt: its record is not there any more, or is not a message.
            StoreUnavailable: its data file cannot be read.
        """
        try:
            command = decode(self._payload(entry.location))
            if isinstance(command, UpdateMessage):
                command = command.message
            if isinstance(command, AddMessage) and command.message_id == entry.message_id:
                return routing(command.data)
        except (MalformedRecord, MalformedOpenWire) as error:
            raise self._corrupt(f"a message does not decode: {error}", entry.location) from error
        raise self._corrupt("another record where a message should be", entry.location)

    def close(self) -> None:
        """Close the data files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def _payload(self, location: Location) -> bytes:
        header = self._bytes(location, RECORD_HEADER_BYTES)
        if len(header) == RECORD_HEADER_BYTES:
            size, kind = RECORD_HEADER.unpack(header)
            if kind == USER_RECORD and size >= RECORD_HEADER_BYTES:
                record = self._bytes(location, size)
                if len(record) == size:
                    return record[RECORD_HEADER_BYTES:]
        raise self._corrupt("no record where a message should be", location)

    def _bytes(self, location: Location, length: int) -> bytes:
        """Return that many bytes from a location on, or fewer where the file ends."""
        file_id, offset = location
        start = offset - self._window_start.offset
        if file_id != self._window_start.file_id or start < 0 or start + length > len(self._window):
            self._window = self._read(file_id, offset, max(length, READ_AHEAD_BYTES))
            self._window_start = location
            start = 0
        return self._window[start : start + length]

    def _read(self, file_id: int, offset: int, length: int) -> bytes:
        path = self._directory / data_file_name(file_id)
        try:
            return os.pread(self._descriptor(file_id, path), length, offset)
        except OSError as error:
            raise unavailable(path, error) from error

    def _descriptor(self, file_id: int, path: Path) -> int:
        descriptor = self._descriptors.get(file_id)
        if descriptor is None:
            if len(self._descriptors) >= OPEN_FILES_MAX:
                os.close(self._descriptors.popitem(last=False)[1])
            descriptor = self._descriptors[file_id] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return descriptor

    def _corrupt(self, message: str, location: Location) -> JournalCorrupt:
        return JournalCorrupt(
            message,
            path=str(self._directory / data_file_name(location.file_id)),
            offset=location.offset,
            hint="the file was changed by someone else, or the disk is failing: check it, and restore a copy",
        )


def _is_journal(path: Path) -> bool:
    beginning = _beginning(path)
    if beginning.startswith((BATCH_MAGIC, EOF_MARKER)) or BATCH_MAGIC.startswith(beginning[: len(BATCH_MAGIC)]):
        return True
    return not beginning.strip(b"\0") or load(path).find(BATCH_MAGIC) >= 0


def _is_compacted(path: Path) -> bool:
    beginning = _beginning(path)
    first_payload = BATCH_HEADER_BYTES + RECORD_HEADER_BYTES
    return beginning.startswith(BATCH_MAGIC) and beginning[first_payload:] == bytes([CommandType.REWRITTEN_DATA_FILE])


def _beginning(path: Path) -> bytes:
    """Return a file's bytes as far as the first command's type, or fewer when there are not as many."""
    try:
        with path.open("rb") as file:
            return file.read(BATCH_HEADER_BYTES + RECORD_HEADER_BYTES + 1)
    except OSError as error:
        raise unavailable(path, error) from error
