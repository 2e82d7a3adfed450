"""Follows a journal that another process writes, so that a standby's state is the master's, a few milliseconds late.

A follower only reads. Whoever writes (a pybroker or an ActiveMQ) does not know of it, so it has to make sense of what
it finds in the directory, while it changes:

| what happens to the journal                              | what the follower does                                   |
|----------------------------------------------------------|----------------------------------------------------------|
| a batch is appended                                      | applies it, once it is whole and its checksum fits       |
| a batch is half there                                    | waits: it is read again next time                        |
| a file with a higher id begins                           | reads the one before to its end, and goes on there       |
| a file is deleted                                        | forgets it, if nothing alive is in it                    |
| a file is compacted: replaced by a copy without its adds | checks that the rest is the same, and goes on            |
| a new master seals the last file: a copy, cut at its end | checks that all it has applied is in the copy            |
| an ActiveMQ copies acks behind the end                   | rebuilds: they are out of their order                    |
| anything else                                            | rebuilds                                                 |

To rebuild is to begin again with the first file and an empty state. It is always right, and costs time nobody waits
for, unless the master dies just then. So wherever a follower cannot be sure that its state is what a replay of the
files would give, it says why in one line of the log, and rebuilds. The seal shows why it must look back: a
frozen master that wakes up may still write behind the end that its heir has seen, and the follower may read that
before the heir has replaced the file.

Deleting and compacting follow from records that were on disk before. A directory that is listed first and then read to
the end therefore has all records which justify what was found in the listing; only then it is judged.

At a promotion, with the lock held, `catch_up` reads what is there, and `finish` what is left once no predecessor can
begin another file. Their cost is the tail's, and a look at each file's length and time.
"""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from pybroker.store import regular
from pybroker.store.journal.commands import CommandType, RewrittenDataFile, decode
from pybroker.store.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES, Location, data_file_name
from pybroker.store.journal.listing import Listing
from pybroker.store.journal.reader import DataFileWalk, data_files, load, sound_batches, unavailable
from pybroker.store.journal.replay import Progress, Replay, ReplayResult, chained, inspect, is_compacted
from pybroker.store.journal.state import StoreState

_ADD_MESSAGE = bytes([CommandType.ADD_MESSAGE])

SETTLED_SHARE = 4
"""Records behind an index, one for so many messages in it, from which on it pays to settle it (see `indexed`) before
more are read: each looks messages up."""

logger = logging.getLogger(__name__)


class Signature(NamedTuple):
    """By which a file that nobody writes any more is known to be unchanged."""

    size: int
    modified_ns: int


UNKNOWN = -1
"""Instead of a checksum: equal to none."""

MISSING = Signature(-1, 0)
"""Of a file that is not there."""


@dataclass(slots=True)
class FollowedFile:
    """A data file that was read, or is being read.

    Attributes:
        end: everything before it was applied.
        inode: of the file that was read; 0 when that is not known. A file that still grows must stay that one.
        signature: of a file that is finished; None while it may grow.
    """

    end: int = 0
    inode: int = 0
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where a follower may begin instead of at the journal's first record: what an index holds.

    Attributes:
        state: what the journal amounts to up to there.
        files: the data files it covers. One of them may still grow.
        chains: checksums (see `Replay`) of files that may still grow.
    """

    state: StoreState
    files: dict[int, FollowedFile]
    chains: dict[int, int]


class Step(NamedTuple):
    """What one step of a follower came to.

    Attributes:
        record_count: records it applied.
        is_at_end: nothing was left to read.
    """

    record_count: int
    is_at_end: bool


class _DoubtError(Exception):
    """The state may not be what a replay from the first file would give. The text says why."""


class Follower:
    """The state of a journal that somebody else writes.

    Used by one thread at a time. It opens files for reading, lets go of them at once, and changes nothing.
    """

    def __init__(self, directory: Path, start: Start | None = None) -> None:
        """Begin with a start, or with the first file; nothing is read yet."""
        self.directory = directory
        self.rebuild_count = 0
        """How often it had to begin again."""
        self.listing = Listing()
        """Ids of long queues, see `list_ahead`."""
        self._replay = Replay(directory, StoreState())
        self._files: dict[int, FollowedFile] = {}
        self._unread: list[int] = []
        self._gone: set[int] = set()
        self._changed: set[int] = set()
        self._doubt: str | None = None
        self._copies: set[int] = set()
        self._applied_count = 0
        self._is_begun = False
        self._resumed_at = Location(0, 0)
        if start is not None:
            self._resume(start)

    @property
    def state(self) -> StoreState:
        """What was read amounts to. Another object after a rebuild."""
        return self._replay.state

    @property
    def location(self) -> Location:
        """Where the next record is expected."""
        file_id = max(self._files, default=0)
        return Location(file_id, self._files[file_id].end if file_id else 0)

    @property
    def resumed_at(self) -> Location:
        """Where the index ended that this began with; `0:0` without one, and after a rebuild."""
        return self._resumed_at

    @property
    def finished_files(self) -> dict[int, Signature]:
        """The data files that do not grow any more."""
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

    def advance(self, *, look: bool = True) -> Step:
        """Apply what is new, at most one data file of it.

        Args:
            look: also look at all files, of which some may be deleted or changed. That costs some system calls for
                each; without it only what is appended is noticed.

        Raises:
            StoreUnavailable: the directory or a file cannot be read; try again later.
            JournalCorrupt: it is no journal that this version understands.
        """
        before = self._replay.record_count
        try:
            if self._doubt is not None:
                self._begin_again(self._doubt)
                before = 0
            if look or not self._is_begun or self._has_successor():
                look = True
                self._look()
            is_at_end = self._read()
            if is_at_end and look:
                self._judge()
        except _DoubtError as doubt:
            self._doubt = str(doubt)
            return Step(0, False)
        except BaseException:
            if self._replay.record_count != self._applied_count:  # else nothing came of it, and it can be tried again
                self._doubt = "an error interrupted reading it"
            raise
        return Step(self._replay.record_count - before, is_at_end)

    def list_ahead(self) -> None:
        """List the ids of long queues as they are now: a promotion has only to look at what changes from here on.

        It also settles what an index has brought (see `indexed`): a standby has the time for that.
        """
        self.state.settle()
        self.listing.refresh(self.state, self.location)

    def catch_up(self, progress: Progress | None = None) -> None:
        """Apply all there is now, however many files that takes.

        Raises:
            StoreUnavailable: the directory or a file cannot be read.
            JournalCorrupt: it is no journal that this version understands.
        """
        while not (self.advance().is_at_end and self._doubt is None):
            if self.record_count * SETTLED_SHARE > self.message_count:
                self.state.settle()
            if progress is not None:
                done = len(self._files)
                progress(done, done + len(self._unread), self._replay.record_count)

    def finish(self, progress: Progress | None = None, *, below: int | None = None) -> ReplayResult:
        """Read what is left of a journal that nobody writes any more, and end the replay. `state` is then final.

        Args:
            progress: told how far it has come.
            below: files from this one on are not looked at: the new master's own.

        Raises:
            StoreUnavailable: the directory or a file cannot be read.
            JournalCorrupt: it is no journal that this version understands.
        """
        self.catch_up(progress)
        for file_id in self._unread:  # a file in which nothing is yet
            if below is None or file_id < below:
                self._files[file_id] = FollowedFile()
        for file_id in self._growing():
            self._complete(file_id)
        return self._replay.result({file_id: file.end for file_id, file in sorted(self._files.items())})

    # ------------------------------------------------------------ beginning

    def _resume(self, start: Start) -> None:
        self._replay = Replay(self.directory, start.state)
        self._replay.chains.update(start.chains)
        self._replay.kept.update(dict.fromkeys(start.files, UNKNOWN))
        self._files = start.files
        self._copies = set(start.state.compacted)
        self._replay.sources.update({file_id: self._source(file_id) for file_id in self._copies})
        self._gone = _mentioned(start.state) - self._files.keys()  # deleted while the index was written: to be judged
        self._is_begun = bool(start.files)
        self._resumed_at = self.location

    def _source(self, file_id: int) -> int:
        """Return which file's acknowledgements a copy has; 0 when it does not say so any more."""
        path = self._path(file_id)
        records = DataFileWalk(load(path), file_id) if path.exists() else ()
        for _, payload in records:
            command = decode(payload)
            return command.source_file_id if isinstance(command, RewrittenDataFile) else 0
        return 0

    def _begin(self) -> None:
        """Look for what there is, when nothing was read yet."""
        found = inspect(self.directory)
        self._copies = {file_id for file_id, path in found.items() if is_compacted(path)}
        if self._copies:
            self.state.expect_compacted_files()
        self._unread = list(found)
        self._is_begun = bool(found)

    def _begin_again(self, reason: str) -> None:
        logger.info("%s: reading the journal again from its first file: %s", self.directory, reason)
        self.rebuild_count += 1
        self._doubt = None
        self.listing = Listing()
        self._replay = Replay(self.directory, StoreState())
        self._files = {}
        self._unread = []
        self._gone = set()
        self._changed = set()
        self._applied_count = 0
        self._is_begun = False
        self._resumed_at = Location(0, 0)

    # ------------------------------------------------------------ looking

    def _path(self, file_id: int) -> Path:
        return self.directory / data_file_name(file_id)

    def _has_successor(self) -> bool:
        """Tell whether the file is there that a writer begins next; one with a higher id is found by looking."""
        newest = max((*self._files, *self._unread), default=0)
        return self._path(newest + 1).exists()

    def _look(self) -> None:
        """Note what was added, deleted and changed since the last look."""
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
            raise _DoubtError(f"{data_file_name(self._unread[0])} has appeared below {data_file_name(newest)}")

    def _signature(self, file_id: int) -> Signature:
        """Return a file's signature: `MISSING` when it is gone, which the next listing will say."""
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
        """Read what was appended, or one file more; tell whether that was all."""
        growing = self._growing()
        for file_id in growing:
            self._read_on(file_id)
        if not self._unread:
            return True
        first, *later = self._unread
        kind = self._first_command(first)
        if kind is None and all(self._first_command(file_id) is None for file_id in later):
            return True  # Nobody has written there yet, so the file before may still grow.
        if kind == CommandType.REWRITTEN_DATA_FILE:
            if first not in self._copies:
                raise _DoubtError(f"{data_file_name(first)} repeats acknowledgements out of their order")
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
        """Return the type of a file's first command; None when nothing sound is in it yet."""
        try:
            with open(self._path(file_id), "rb", buffering=0, opener=regular.opener) as file:
                for data, offset, _, _ in sound_batches(file.fileno(), 0):
                    return data[offset + RECORD_HEADER_BYTES]
        except FileNotFoundError:
            pass  # The next listing will say so.
        except OSError as error:
            raise unavailable(self._path(file_id), error) from error
        return None

    def _read_on(self, file_id: int) -> None:
        """Apply what a growing file has now."""
        file = self._files[file_id]
        path = self._path(file_id)
        try:
            with open(path, "rb", buffering=0, opener=regular.opener) as stream:
                self._recognise(file_id, file, os.fstat(stream.fileno()))
                file.end = self._replay.read_sound(file_id, stream.fileno(), file.end)
                self._applied_count = self._replay.record_count
        except FileNotFoundError:
            file.signature = MISSING
        except OSError as error:
            raise unavailable(path, error) from error

    def _recognise(self, file_id: int, file: FollowedFile, found: os.stat_result) -> None:
        """Make sure that a growing file is the one that was read so far, or a copy with all that was read of it."""
        if found.st_ino == file.inode and found.st_size >= file.end:
            return
        read = fingerprint(self._path(file_id), file.end)
        if (read.end, read.chain) != (file.end, self._replay.chains.get(file_id, 0)):
            raise _DoubtError(f"{data_file_name(file_id)} was replaced by a file that does not hold what was read")
        file.inode = found.st_ino

    def _complete(self, file_id: int) -> None:
        """Read a file to its end, which another file's beginning has made final."""
        self._read_on(file_id)
        file = self._files[file_id]
        if file.signature is None:
            signature = self._signature(file_id)
            if signature != MISSING:
                file.end = self._replay.read_file(file_id, self._path(file_id), file.end)
                self._applied_count = self._replay.record_count
            file.signature = signature

    # ------------------------------------------------------------ judging

    def _judge(self) -> None:
        """Decide whether what was found in the listing fits all that was read since."""
        if self._gone:
            self._forget(self._gone)
            self._gone = set()
        for file_id in sorted(self._changed & self._files.keys()):
            self._compare(file_id, self._files[file_id])
        self._changed = set()
        if not self.state.compacted.intersection(self._growing()):
            self.state.finish()  # What is out of order was all read; to remember more would only take room.

    def _forget(self, gone: set[int]) -> None:
        """Forget deleted files, in which nothing may be alive."""
        for file_id in sorted(gone):
            if file_id in self._needed():
                raise _DoubtError(f"{data_file_name(file_id)} is gone, and there was something alive in it")
            if any(source == file_id and copy not in gone for copy, source in self._replay.sources.items()):
                raise _DoubtError(f"{data_file_name(file_id)} is gone, and a copy of its acknowledgements takes over")
        self.state.forget_files(gone)
        if self.state.kept.last_said_by(()):
            raise _DoubtError("a file is gone that alone said that a queue is kept")
        for file_id in gone:
            self._files.pop(file_id, None)
            for noted in (self._replay.chains, self._replay.kept, self._replay.sources, self._replay.unmarked):
                noted.pop(file_id, None)

    def _needed(self) -> set[int]:
        """Return the files without which a replay would not come to this state."""
        state = self.state
        subscribed = {subscription.location.file_id for _, _, subscription in state.subscriptions()}
        return state.usage.live.keys() | state.transaction_files() | subscribed

    def _compare(self, file_id: int, file: FollowedFile) -> None:
        """Find out what was changed about a finished file: nothing that matters, or its dead messages were dropped."""
        signature = self._signature(file_id)
        if signature == MISSING:
            return
        found = fingerprint(self._path(file_id))
        is_same = (found.end, found.chain) == (file.end, self._replay.chains.get(file_id))
        is_compacted_copy = not found.add_count and found.kept == self._replay.kept.get(file_id, 0)
        if not is_same and (not is_compacted_copy or file_id in self._needed()):
            raise _DoubtError(f"{data_file_name(file_id)} was changed")
        file.end, file.signature = found.end, signature
        self._replay.chains[file_id] = found.chain


def _mentioned(state: StoreState) -> set[int]:
    """Return all data files that a state speaks of."""
    mentioned = state.usage.live.keys() | state.usage.references.keys() | state.transaction_files() | state.kept.files
    return mentioned.union(
        state.compacted,
        *state.usage.references.values(),
        *(subscription.files for _, _, subscription in state.subscriptions()),
    )


class Fingerprint(NamedTuple):
    """By which a replaced data file is recognised. See `Replay` for the checksums.

    Attributes:
        end: of the last sound batch that was looked at.
        chain: over the batches.
        kept: over the records but the adds.
        add_count: how many adds there are.
    """

    end: int
    chain: int
    kept: int
    add_count: int


def fingerprint(path: Path, up_to: int | None = None) -> Fingerprint:
    """Return a data file's fingerprint, of all of it or of the batches that begin below an offset.

    Raises:
        StoreUnavailable: the file cannot be read.
    """
    chain = kept = add_count = reached = 0
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
                kept = crc32(payload, kept)
            offset += size
        reached = end
        if up_to is not None and end >= up_to:
            break
    return Fingerprint(reached, chain, kept, add_count)
