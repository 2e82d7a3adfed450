"""The data source `kahadb` as a stream: follows a journal that is being written, and forgets nothing across restarts.

An offset has, per journal, the end read of each data file, and the files known to hold more:

```text
{"/mnt/shared/kahadb": {"read": {"6": 33554432, "7": 311073}, "behind": [7]}}
```

One place for the whole journal would not do: an ActiveMQ goes on writing to a file after it has made one with a higher
number. Files that are gone leave the offset with the next batch that has something in it.

What is read are whole, sound batches: one that is still being written is read when all of it is there. Damage is
stepped over, and is treated by the mode once its file is no longer written to.

A file that was collected before all of it was read is a loss, and ends the stream unless `failOnDataLoss` is false. It
is known by one that was behind, by the newest one, or by a gap in the numbers of those that came since.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pybroker import regular
from pybroker.broker.domain.errors import ConfigError, StoreError
from pybroker.spark_jobs.options import EARLIEST, LATEST, Options
from pybroker.spark_jobs.output import JournalPartition, OutputColumns, set_imports_aside
from pybroker.store.columns.files import Hop, Piece, growing, list_files
from pybroker.store.columns.table import read
from pybroker.store.journal.format import BATCH_HEADER_BYTES, EOF_MARKER, Location
from pybroker.store.journal.reader import DataFileWalk, load, sound_batches, unavailable

logger = logging.getLogger(__name__)

UNLIMITED: Final = 2**63 - 1
QUIET_SECONDS: Final = 60
"""A batch that is not whole after so long without a write stays so."""


class DataLoss(StoreError):
    """Data files were collected before the stream had read them."""

    def __init__(self, directory: str, file_ids: Sequence[int]) -> None:
        names = ", ".join(f"db-{file_id}.log" for file_id in file_ids)
        super().__init__(
            f"{directory}: {names}: collected before all of it was read; let the broker keep its files for longer"
            " (archiveDataLogs), or set failOnDataLoss to false to go on without them"
        )
        self.file_ids = file_ids


class JournalOffset(TypedDict):
    """The position up to which a journal was read.

    Attributes:
        read: per data file, where its next batch begins.
        behind: data files that are known to hold more.
    """

    read: dict[str, int]
    behind: list[int]


Offset = dict[str, JournalOffset]


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says how far the journals go, and reads what lies between two such places."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._output = OutputColumns(schema)
        self._target: dict[str, dict[int, int]] | None = None

    def initialOffset(self) -> Offset:
        """Return where a stream without a checkpoint begins."""
        options = self._options
        return {
            directory: _initial(options.starting_position, self._files(directory)) for directory in options.directories
        }

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of `maxBytesPerTrigger`."""
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far the journals go now: this query ends there."""
        self._target = {}
        for directory in self._options.directories:
            files = self._files(directory)
            written = growing(files)
            self._target[directory] = {
                file_id: _end(path, file_id, file_id in written) for file_id, path in files.items()
            }

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> Offset:
        """Return how far to read next; the start itself when there is nothing more."""
        space = limit.max_bytes if isinstance(limit, ReadMaxBytes) else UNLIMITED
        found: Offset = {}
        for directory in self._options.directories:
            before = _offset_of(start, directory)
            found[directory], taken = self._advance(directory, before, space)
            space = max(space - taken, 0)
        return found

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """Return the pieces between two offsets."""
        found: list[InputPartition] = []
        for directory in end:
            before, after = _offset_of(start, directory)["read"], _offset_of(end, directory)["read"]
            files = self._files(directory)
            for name, stop in sorted(after.items(), key=lambda item: int(item[0])):
                begin = before.get(name, 0)
                if begin < stop:
                    path = files.get(int(name), Path(directory) / f"db-{name}.log")
                    found.extend(self._pieces(directory, path, int(name), begin, stop))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a piece's rows."""
        if not isinstance(partition, JournalPartition):
            return
        piece, options = partition.piece, self._options
        try:
            for batch in read(piece, self._output.columns, mode=options.mode, must_exist=options.fail_on_data_loss):
                yield self._output(batch)
        except FileNotFoundError:
            raise DataLoss(piece.directory, [piece.file_id]) from None
        set_imports_aside()

    def _files(self, directory: str) -> dict[int, Path]:
        return list_files(Path(directory), archive=self._options.archive)

    def _advance(self, directory: str, before: JournalOffset, space: int) -> tuple[JournalOffset, int]:
        """Return how far one journal is to be read next, and how many bytes that is."""
        files = self._files(directory)
        self._check_loss(directory, before, files)
        written = growing(files)
        target = None if self._target is None else self._target.get(directory, {})
        positions: dict[str, int] = {}
        behind: list[int] = []
        taken = 0
        for file_id, path in files.items():
            start = before["read"].get(str(file_id), 0)
            stop = UNLIMITED if target is None else target.get(file_id, 0)
            found = scan(path, file_id, start, space - taken, file_id in written, stop)
            taken += found.end - start
            if found.end:
                positions[str(file_id)] = found.end
            if found.has_more:
                behind.append(file_id)
        return ({"read": positions, "behind": behind}, taken) if taken else (before, 0)

    def _check_loss(self, directory: str, before: JournalOffset, files: Mapping[int, Path]) -> None:
        lost = _lost(before, files)
        if not lost:
            return
        error = DataLoss(directory, lost)
        if self._options.fail_on_data_loss:
            raise error
        logger.warning("%s", error)

    def _pieces(self, directory: str, path: Path, file_id: int, begin: int, end: int) -> list[JournalPartition]:
        cuts = [begin]
        try:
            with open(path, "rb", buffering=0, opener=regular.opener) as file:
                for offset in Hop(file.fileno(), begin, end):
                    if offset - cuts[-1] >= self._options.partition_bytes:
                        cuts.append(offset)
        except FileNotFoundError:
            pass  # the task finds that out, and reports it
        except OSError as error:
            raise unavailable(path, error) from error
        ends = [*cuts[1:], end]
        return [
            JournalPartition(Piece(directory, str(path), file_id, start, stop))
            for start, stop in zip(cuts, ends, strict=True)
        ]


# ---------------------------------------------------------------- offsets


def _offset_of(offset: Mapping[str, object], directory: str) -> JournalOffset:
    """Return a journal's part of an offset; a journal that was not there before begins at its first record."""
    return cast("JournalOffset", offset.get(directory, {"read": {}, "behind": []}))


def _lost(before: JournalOffset, files: Mapping[int, Path]) -> list[int]:
    """Return the data files that went away with something in them that was not read, as far as that can be known."""
    known = [int(name) for name in before["read"]]
    if not known:
        return [file_id for file_id in before["behind"] if file_id not in files]
    newest = max(known)
    suspects = {*before["behind"], *range(newest, max(files, default=newest) + 1)}
    return sorted(suspects - files.keys())


def _initial(position: str | Location, files: Mapping[int, Path]) -> JournalOffset:
    """Return the offset of a position."""
    if position == EARLIEST:
        return {"read": {}, "behind": []}
    written = growing(files)
    if position == LATEST:
        ends = {file_id: _end(path, file_id, file_id in written) for file_id, path in files.items()}
    else:
        location = cast("Location", position)
        _check_batch(location, files)
        ends = {file_id: path.stat().st_size for file_id, path in files.items() if file_id < location.file_id}
        ends[location.file_id] = location.offset
    return {"read": {str(file_id): end for file_id, end in ends.items() if end}, "behind": []}


def _check_batch(location: Location, files: Mapping[int, Path]) -> None:
    path = files.get(location.file_id)
    if path is not None:
        with open(path, "rb", buffering=0, opener=regular.opener) as file:
            hop = Hop(file.fileno(), 0, location.offset)
            for _ in hop:
                pass
        if hop.reached == location.offset:
            return
    raise ConfigError(
        f"no batch begins at {location}" if path else f"there is no data file db-{location.file_id}.log",
        setting="startingPosition",
        hint="column batch says where batches begin",
    )


def _end(path: Path, file_id: int, is_growing: bool) -> int:
    """Return where a data file ends now, so that all batches there are begin before it."""
    return scan(path, file_id, 0, UNLIMITED, True).end if is_growing else path.stat().st_size


# ---------------------------------------------------------------- how far a data file goes


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of scanning a data file.

    Attributes:
        end: where the next batch would begin.
        has_more: there is one.
    """

    end: int
    has_more: bool = False


def scan(path: Path, file_id: int, start: int, space: int, is_growing: bool, stop: int = UNLIMITED) -> ScanResult:
    """Return how far a data file can be read from a batch on.

    Args:
        path: the file.
        file_id: its id.
        start: where to begin.
        space: how many bytes to take at most; the last batch may be longer.
        is_growing: its broker may be writing to it.
        stop: batches that begin here or behind do not count.

    Raises:
        StoreUnavailable: it cannot be read.
    """
    end = start
    try:
        descriptor = regular.descriptor(path)
    except FileNotFoundError:
        return ScanResult(start)  # collected in this moment: the next scan decides if that is a loss
    except OSError as error:
        raise unavailable(path, error) from error
    try:
        while True:
            for _, first, last, base in sound_batches(descriptor, end):
                if base + first - BATCH_HEADER_BYTES >= stop:
                    return ScanResult(end)
                if end - start >= space:
                    return ScanResult(end, has_more=True)
                end = base + last
            behind = _behind_damage(descriptor, path, file_id, end, is_growing)
            if behind == end or end >= stop:
                return ScanResult(end)
            end = behind
    except OSError as error:
        raise unavailable(path, error) from error
    finally:
        os.close(descriptor)


def _behind_damage(descriptor: int, path: Path, file_id: int, end: int, is_growing: bool) -> int:
    """Return where to go on when no sound batch is at an offset; the offset itself when there is nothing to go on with.

    What looks like damage in a file that is being written may be a batch of which a part is there, so there it counts
    as damage only when the file has not grown for a while.
    """
    following = os.pread(descriptor, BATCH_HEADER_BYTES, end)
    if not following or EOF_MARKER.startswith(following[: len(EOF_MARKER)]):
        return end
    if is_growing and time.time() - os.fstat(descriptor).st_mtime < QUIET_SECONDS:
        return end
    walk = DataFileWalk(load(path), file_id, start=end)
    batch = next(iter(walk.batches()), None)
    if batch is not None:
        return batch[0] - BATCH_HEADER_BYTES
    return end if is_growing else max((damage.offset + damage.length for damage in walk.damages), default=end)
