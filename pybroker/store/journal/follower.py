"""Follows a journal that another process writes, so that a standby's state is the master's, a few milliseconds late.

A follower only reads. The writer (a pybroker or an ActiveMQ) does not know of it, so the follower interprets the
directory while it changes:

| what happens to the journal                              | what the follower does                                   |
|----------------------------------------------------------|----------------------------------------------------------|
| a batch is appended                                      | applies it, once it is whole and its checksum fits       |
| a batch is half there                                    | waits: it is read again next time                        |
| a file with a higher id begins                           | reads the one before to its end, and goes on there       |
| a file is deleted                                        | forgets it, if nothing in it is alive                    |
| a file is compacted: replaced by a copy without its adds | checks that the rest is the same, and goes on            |
| a new master seals the last file: a copy, cut at its end | checks that all it has applied is in the copy            |
| an ActiveMQ copies acks behind the end                   | rebuilds: they are out of their order                    |
| anything else                                            | rebuilds                                                 |

To rebuild is to begin again with the first file and an empty state. It is always correct, and delays no client unless
the master dies at that moment. So whenever a follower cannot be sure that its state is what a replay of the files would
give, it logs the reason in one line and rebuilds. The seal shows why finished files must be checked: a frozen master
that resumes may still write behind the end that the new master has read, and the follower may read that before the
new master has replaced the file.

Files are deleted and compacted because of records that were on disk before. A directory that is scanned first and then
read to the end therefore has all records that justify what the scan found; only then the changes are validated.

At a promotion, with the lock held, `catch_up` reads what is there, and `finish` reads the rest once no former master
can begin another file. They cost the reading of the tail, and a `stat` of each file.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from pybroker import regular
from pybroker.errors import PybrokerError
from pybroker.store.journal.commands import CommandType, RewrittenDataFile, decode
from pybroker.store.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES, Location, data_file_name
from pybroker.store.journal.id_cache import IdCache
from pybroker.store.journal.reader import DataFileWalk, data_files, load, sound_batches, unavailable
from pybroker.store.journal.replay import Progress, Replay, ReplayResult, chained, inspect, is_compacted
from pybroker.store.journal.state import StoreState

_ADD_MESSAGE = bytes([CommandType.ADD_MESSAGE])

MATERIALISE_SHARE = 4
"""With more records to read than a quarter of the messages, the snapshot's messages are materialised first (see
`snapshot_messages`): each record looks messages up."""

logger = logging.getLogger(__name__)


class Signature(NamedTuple):
    """Length and time of a finished file: while both are the same, it is taken as unchanged."""

    size: int
    modified_ns: int


UNKNOWN = -1
"""Stands for a checksum that is not known: equal to none."""

MISSING = Signature(-1, 0)
"""The signature of a file that does not exist."""


@dataclass(slots=True)
class FollowedFile:
    """A data file that was read, or is being read.

    Attributes:
        end: everything before it was applied.
        inode: of the file that was read, 0 if unknown. While a file grows its inode must stay the same.
        signature: of a finished file; None while it may grow.
    """

    end: int = 0
    inode: int = 0
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class FollowerStart:
    """The contents of a store snapshot, from which a follower starts instead of at the journal's first record.

    Attributes:
        state: the store's state at the end of what the snapshot covers.
        files: the data files it covers. One of them may still grow.
        chains: checksums (see `Replay`) of files that may still grow.
    """

    state: StoreState
    files: dict[int, FollowedFile]
    chains: dict[int, int]


class Step(NamedTuple):
    """The result of one step of a follower.

    Attributes:
        record_count: records applied.
        is_at_end: nothing is left to read.
    """

    record_count: int
    is_at_end: bool


class RebuildRequired(PybrokerError):
    """The state may differ from a replay from the first file. The text is the reason."""


class Follower:
    """The state of a journal that another process writes.

    Used by one thread at a time. Opens files only for reading and closes them at once; changes nothing.
    """

    def __init__(self, directory: Path, start: FollowerStart | None = None) -> None:
        """Begin with a snapshot, or with the first file; nothing is read yet."""
        self.directory = directory
        self.rebuild_count = 0
        """How often the state was rebuilt."""
        self.id_cache = IdCache()
        """Ids of long queues, see `cache_ids`."""
        self._replay = Replay(directory, StoreState())
        self._files: dict[int, FollowedFile] = {}
        self._unread: list[int] = []
        self._gone: set[int] = set()
        self._changed: set[int] = set()
        self._rebuild_reason: str | None = None
        self._copies: set[int] = set()
        self._applied_count = 0
        self._is_begun = False
        self._resumed_at = Location(0, 0)
        if start is not None:
            self._resume(start)

    @property
    def state(self) -> StoreState:
        """The store's state after what was read. Another object after a rebuild."""
        return self._replay.state

    @property
    def location(self) -> Location:
        """Where the next record is expected."""
        file_id = max(self._files, default=0)
        return Location(file_id, self._files[file_id].end if file_id else 0)

    @property
    def resumed_at(self) -> Location:
        """The end of the store snapshot that this began with; `0:0` without one, and after a rebuild."""
        return self._resumed_at

    @property
    def finished_files(self) -> dict[int, Signature]:
        """The signatures of the data files that do not grow any more."""
        return {file_id: file.signature for file_id, file in self._files.items() if file.signature is not None}

    @property
    def record_count(self) -> int:
        """Records read so far."""
        return self._replay.record_count

    @property
    def message_count(self) -> int:
        """Messages in the state."""
        return sum(len(contents.messages) for contents in self.state.destinations.values())

    # ------------------------------------------------------------ steps

    def advance(self, *, scan: bool = True) -> Step:
        """Apply new records, of at most one data file.

        Args:
            scan: also check all files for deletions and changes, at some system calls per file; otherwise only
                appended records are noticed.

        Raises:
            StoreUnavailable: the directory or a file cannot be read; try again later.
            JournalCorrupt: it is no journal that this version understands.
        """
        before = self._replay.record_count
        try:
            if self._rebuild_reason is not None:
                self._rebuild(self._rebuild_reason)
                before = 0
            if scan or not self._is_begun or self._has_successor():
                scan = True
                self._scan_directory()
            is_at_end = self._read()
            if is_at_end and scan:
                self._validate()
        except RebuildRequired as reason:
            self._rebuild_reason = str(reason)
            return Step(0, False)
        except BaseException:
            if self._replay.record_count != self._applied_count:  # else nothing came of it, and it can be tried again
                self._rebuild_reason = "an error interrupted reading it"
            raise
        return Step(self._replay.record_count - before, is_at_end)

    def cache_ids(self) -> None:
        """Cache the ids of long queues, so that a promotion only has to add later changes.

        Also materialises the snapshot's messages (see `snapshot_messages`): a standby has the time for that.
        """
        self.state.materialise()
        self.id_cache.refresh(self.state, self.location)

    def catch_up(self, progress: Progress | None = None) -> None:
        """Apply all records there are now, in any number of files.

        Raises:
            StoreUnavailable: the directory or a file cannot be read.
            JournalCorrupt: it is no journal that this version understands.
        """
        while not (self.advance().is_at_end and self._rebuild_reason is None):
            if self.record_count * MATERIALISE_SHARE > self.message_count:
                self.state.materialise()
            if progress is not None:
                done = len(self._files)
                progress(done, done + len(self._unread), self._replay.record_count)

    def finish(self, progress: Progress | None = None, *, below: int | None = None) -> ReplayResult:
        """Read the rest of a journal that no process writes any more, and end the replay. `state` is then final.

        Args:
            progress: receives the progress.
            below: files from this one on, the new master's own, are ignored.

        Raises:
            StoreUnavailable: the directory or a file cannot be read.
            JournalCorrupt: it is no journal that this version understands.
        """
        self.catch_up(progress)
        for file_id in self._unread:  # files that are still empty
            if below is None or file_id < below:
                self._files[file_id] = FollowedFile()
        for file_id in self._growing():
            self._complete(file_id)
        return self._replay.result({file_id: file.end for file_id, file in sorted(self._files.items())})

    # ------------------------------------------------------------ beginning

    def _resume(self, start: FollowerStart) -> None:
        self._replay = Replay(self.directory, start.state)
        self._replay.chains.update(start.chains)
        self._replay.non_add_checksums.update(dict.fromkeys(start.files, UNKNOWN))
        self._files = start.files
        self._copies = set(start.state.compacted)
        self._replay.sources.update({file_id: self._source(file_id) for file_id in self._copies})
        self._gone = _referenced_files(start.state) - self._files.keys()  # deleted while the snapshot was written
        self._is_begun = bool(start.files)
        self._resumed_at = self.location

    def _source(self, file_id: int) -> int:
        """Return the file whose acknowledgements a compacted file has; 0 if it has no such record any more."""
        path = self._path(file_id)
        records = DataFileWalk(load(path), file_id) if path.exists() else ()
        for _, payload in records:
            command = decode(payload)
            return command.source_file_id if isinstance(command, RewrittenDataFile) else 0
        return 0

    def _begin(self) -> None:
        """Find the data files, before anything was read."""
        found = inspect(self.directory)
        self._copies = {file_id for file_id, path in found.items() if is_compacted(path)}
        if self._copies:
            self.state.expect_compacted_files()
        self._unread = list(found)
        self._is_begun = bool(found)

    def _rebuild(self, reason: str) -> None:
        logger.info("%s: reading the journal again from its first file: %s", self.directory, reason)
        self.rebuild_count += 1
        self._rebuild_reason = None
        self.id_cache = IdCache()
        self._replay = Replay(self.directory, StoreState())
        self._files = {}
        self._unread = []
        self._gone = set()
        self._changed = set()
        self._applied_count = 0
        self._is_begun = False
        self._resumed_at = Location(0, 0)

    # ------------------------------------------------------------ scanning

    def _path(self, file_id: int) -> Path:
        return self.directory / data_file_name(file_id)

    def _has_successor(self) -> bool:
        """Return True if the writer's next file exists; one with a higher id is found by a scan."""
        newest = max((*self._files, *self._unread), default=0)
        return self._path(newest + 1).exists()

    def _scan_directory(self) -> None:
        """Record the files added, deleted and changed since the last scan."""
        if not self._is_begun:
            self._begin()
            return
        found = data_files(self.directory)
        for file_id, file in self._files.items():
            if file_id not in found:
                self._gone.add(file_id)
            elif file.signature is not None and self._signature(file_id) != file.signature:
                self._changed.add(file_id)
        newest = max(self._files, default=0)
        self._unread = [file_id for file_id in found if file_id not in self._files]
        if self._unread and self._unread[0] < newest:
            raise RebuildRequired(f"{data_file_name(self._unread[0])} has appeared below {data_file_name(newest)}")

    def _signature(self, file_id: int) -> Signature:
        """Return a file's signature; `MISSING` if it is gone, which the next scan finds too."""
        path = self._path(file_id)
        try:
            found = path.stat()
        except FileNotFoundError:
            return MISSING
        except OSError as error:
            raise unavailable(path, error) from error
        return Signature(found.st_size, found.st_mtime_ns)

    # ------------------------------------------------------------ reading

    def _read(self) -> bool:
        """Read what was appended, or one more file; return True if nothing is left."""
        growing = self._growing()
        for file_id in growing:
            self._read_on(file_id)
        if not self._unread:
            return True
        first, *later = self._unread
        kind = self._first_command(first)
        if kind is None and all(self._first_command(file_id) is None for file_id in later):
            return True  # Nothing is written there yet, so the file before may still grow.
        if kind == CommandType.REWRITTEN_DATA_FILE:
            if first not in self._copies:
                raise RebuildRequired(f"{data_file_name(first)} repeats acknowledgements out of their order")
        else:
            for file_id in growing:
                self._complete(file_id)
        del self._unread[0]
        self._files[first] = FollowedFile()
        self._read_on(first)
        return False

    def _growing(self) -> list[int]:
        """Return the files that may still grow: the newest, and below copies made by an ActiveMQ the next one."""
        return [file_id for file_id, file in sorted(self._files.items()) if file.signature is None]

    def _first_command(self, file_id: int) -> int | None:
        """Return the type of a file's first command; None if it has no sound batch yet."""
        try:
            with open(self._path(file_id), "rb", buffering=0, opener=regular.opener) as file:
                for data, offset, _, _ in sound_batches(file.fileno(), 0):
                    return data[offset + RECORD_HEADER_BYTES]
        except FileNotFoundError:
            pass  # The next scan finds it deleted.
        except OSError as error:
            raise unavailable(self._path(file_id), error) from error
        return None

    def _read_on(self, file_id: int) -> None:
        """Apply the new records of a growing file."""
        file = self._files[file_id]
        path = self._path(file_id)
        try:
            with open(path, "rb", buffering=0, opener=regular.opener) as stream:
                self._check_identity(file_id, file, os.fstat(stream.fileno()))
                file.end = self._replay.read_sound(file_id, stream.fileno(), file.end)
                self._applied_count = self._replay.record_count
        except FileNotFoundError:
            file.signature = MISSING
        except OSError as error:
            raise unavailable(path, error) from error

    def _check_identity(self, file_id: int, file: FollowedFile, found: os.stat_result) -> None:
        """Check that a growing file is the one read so far, or a copy with everything that was read of it."""
        if found.st_ino == file.inode and found.st_size >= file.end:
            return
        read = fingerprint(self._path(file_id), file.end)
        if (read.end, read.chain) != (file.end, self._replay.chains.get(file_id, 0)):
            raise RebuildRequired(f"{data_file_name(file_id)} was replaced by a file that does not hold what was read")
        file.inode = found.st_ino

    def _complete(self, file_id: int) -> None:
        """Read a file to its end, which is final since a later file has begun."""
        self._read_on(file_id)
        file = self._files[file_id]
        if file.signature is None:
            signature = self._signature(file_id)
            if signature != MISSING:
                file.end = self._replay.read_file(file_id, self._path(file_id), file.end)
                self._applied_count = self._replay.record_count
            file.signature = signature

    # ------------------------------------------------------------ validating

    def _validate(self) -> None:
        """Check that the scan's deletions and changes fit everything that was read since."""
        if self._gone:
            self._forget(self._gone)
            self._gone = set()
        for file_id in sorted(self._changed & self._files.keys()):
            self._compare(file_id, self._files[file_id])
        self._changed = set()
        if not self.state.compacted.intersection(self._growing()):
            self.state.finish()  # All records out of order were read; remembering more would only take memory.

    def _forget(self, gone: set[int]) -> None:
        """Forget deleted files; nothing in them may be alive."""
        for file_id in sorted(gone):
            if file_id in self._needed():
                raise RebuildRequired(f"{data_file_name(file_id)} is gone although something in it was alive")
            if any(source == file_id and copy not in gone for copy, source in self._replay.sources.items()):
                raise RebuildRequired(
                    f"{data_file_name(file_id)} is gone, and a copy of its acknowledgements takes over"
                )
        self.state.forget_files(gone)
        if self.state.declared.last_recorded_in(()):
            raise RebuildRequired("the only file that declared a queue is gone")
        for file_id in gone:
            self._files.pop(file_id, None)
            for by_file in (
                self._replay.chains,
                self._replay.non_add_checksums,
                self._replay.sources,
                self._replay.unmarked,
            ):
                by_file.pop(file_id, None)

    def _needed(self) -> set[int]:
        """Return the files without which a replay would not give this state."""
        state = self.state
        subscribed = {subscription.location.file_id for _, _, subscription in state.subscriptions()}
        return state.usage.live.keys() | state.transaction_files() | subscribed

    def _compare(self, file_id: int, file: FollowedFile) -> None:
        """Check that a changed file has the same batches, or only lost its dead messages in a compaction."""
        signature = self._signature(file_id)
        if signature == MISSING:
            return
        found = fingerprint(self._path(file_id))
        is_same = (found.end, found.chain) == (file.end, self._replay.chains.get(file_id))
        is_compacted_copy = not found.add_count and found.non_adds == self._replay.non_add_checksums.get(file_id, 0)
        if not is_same and (not is_compacted_copy or file_id in self._needed()):
            raise RebuildRequired(f"{data_file_name(file_id)} was changed")
        file.end, file.signature = found.end, signature
        self._replay.chains[file_id] = found.chain


def _referenced_files(state: StoreState) -> set[int]:
    """Return all data files that a state refers to."""
    mentioned = (
        state.usage.live.keys() | state.usage.references.keys() | state.transaction_files() | state.declared.files
    )
    return mentioned.union(
        state.compacted,
        *state.usage.references.values(),
        *(subscription.files for _, _, subscription in state.subscriptions()),
    )


class Fingerprint(NamedTuple):
    """Checksums that identify a replaced data file, see `Replay`.

    Attributes:
        end: of the last sound batch that was read.
        chain: over the batches.
        non_adds: over the records but the adds.
        add_count: number of adds.
    """

    end: int
    chain: int
    non_adds: int
    add_count: int


def fingerprint(path: Path, up_to: int | None = None) -> Fingerprint:
    """Return the fingerprint of a data file, or of its batches that begin below an offset.

    Raises:
        StoreUnavailable: the file cannot be read.
    """
    chain = non_adds = add_count = reached = 0
    if up_to == 0:
        return Fingerprint(0, 0, 0, 0)
    data = load(path)
    walk = DataFileWalk(data, 0)
    for offset, end in walk.batches():
        chain = chained(data, offset, end, chain)
        while offset < end and up_to is None:
            size, _ = RECORD_HEADER.unpack_from(data, offset)
            payload = data[offset + RECORD_HEADER_BYTES : offset + size]
            if payload[:1] == _ADD_MESSAGE:
                add_count += 1
            else:
                non_adds = crc32(payload, non_adds)
            offset += size
        reached = end
        if up_to is not None and end >= up_to:
            break
    return Fingerprint(reached, chain, non_adds, add_count)
