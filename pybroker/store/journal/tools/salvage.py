"""Rescues every intact record of a damaged journal into a new directory, and lists what was lost. The source stays.

Each data file becomes one of the same id with the same records in the same order, in sound batches. So a recovery sees
the records in the same order, and compacted files still name their sources. Records that do not decode, or are of a
newer version, are left out; both would stop a recovery.

```text
source   | batch | ????? | batch |      db-3.log
             |       |       |
             |    records that decode, marked as unproven; with `strict` none
             v       v       v
target   | batch of all of them | EOF |  db-3.log
```

A compacted file's first record is changed so that its source no longer replaces it: ActiveMQ then reads what follows.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.store.journal.commands import (
    CommandType,
    RewrittenDataFile,
    decode,
    encode,
)
from pybroker.store.journal.compaction import encode_data_file
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.format import Location, encode_record
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.reader import unavailable
from pybroker.store.journal.tools.dump import dumped
from pybroker.store.journal.tools.journal_snapshot import DataFile, JournalSnapshot, Progress
from pybroker.store.journal.tools.scan import Gap, Record, RecordIntegrity, flaw


@dataclass(frozen=True, slots=True, kw_only=True)
class LostBytes:
    """Bytes that were left out.

    Attributes:
        location: their location in the source.
        size: how many.
        reason: the reason, in words.
        is_damage: False for a torn tail, of which nothing was ever acknowledged.
        about: the record's description, see `dump`.
    """

    location: Location
    size: int
    reason: str
    is_damage: bool = True
    about: dict[str, Any] = field(default_factory=dict[str, Any])

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {
            "kind": "lost" if self.is_damage else "torn tail",
            "file": self.location.file_id,
            "offset": self.location.offset,
            "size": self.size,
            "reason": self.reason,
            **({"about": self.about} if self.about else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RescuedRecord:
    """A record out of a damaged stretch.

    Attributes:
        record: the record, as it is in the source.
    """

    record: Record

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {"kind": "rescued", "about": dumped(self.record).as_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvagedFile:
    """A data file that was written.

    Attributes:
        file_id: its id, the same as in the source.
        records: how many it has, by command type.
        size: its bytes; 0 when there was nothing to write, and no file.
    """

    file_id: int
    records: dict[str, int]
    size: int

    def as_json(self) -> dict[str, Any]:
        """Return it as an object for JSON."""
        return {"kind": "file", "file": self.file_id, "records": self.records, "size": self.size}


def prepare_target(target: Path, *sources: Path) -> None:
    """Create a directory for a salvage, or check that it is empty.

    Raises:
        StoreUnavailable: it is not, or cannot be made, or lies inside a source.
    """
    hint = "name a new or an empty directory outside the damaged store"
    resolved = target.resolve()
    for source in sources:
        if resolved == source.resolve() or source.resolve() in resolved.parents:
            raise StoreUnavailable(f"{target} is inside the store {source}", path=str(target), hint=hint)
    try:
        target.mkdir(parents=True, exist_ok=True)
        is_empty = not any(target.iterdir())
    except FileExistsError as error:
        raise StoreUnavailable(f"{target} is no directory", path=str(target), hint=hint) from error
    except OSError as error:
        raise unavailable(target, error) from error
    if not is_empty:
        raise StoreUnavailable(f"{target} is not empty", path=str(target), hint=hint)


def salvage(
    snapshot: JournalSnapshot, target: Path, *, strict: bool = False, progress: Progress | None = None
) -> Iterator[LostBytes | RescuedRecord | SalvagedFile]:
    """Write a journal's records into a directory; yield each file written, after its losses.

    Each file is on disk when it is yielded.

    Args:
        snapshot: the source.
        target: an empty directory, see `prepare_target`.
        strict: leave out records that are not proven.
        progress: receives the progress.

    Raises:
        StoreUnavailable: the source cannot be read, or the target not written.
    """
    files = JournalFiles(target)
    done = 0
    for file in snapshot.files.values():
        kept: list[Record] = []
        for item in _items(snapshot, file, strict=strict):
            if isinstance(item, Record):
                kept.append(item)
                if item.integrity is not RecordIntegrity.SOUND:
                    yield RescuedRecord(record=item)
            else:
                yield item
        yield _written(files, file.file_id, kept)
        done += file.size
        if progress is not None:
            progress(done, snapshot.size)


def _items(snapshot: JournalSnapshot, file: DataFile, *, strict: bool) -> Iterator[Record | LostBytes]:
    """Yield the records to keep of a file and its losses, by offset."""
    for item in snapshot.scan(file.file_id):
        if isinstance(item, Gap):
            yield from _losses(item)
        elif strict and item.integrity is RecordIntegrity.UNPROVEN:
            yield _lost(item, "its batch is damaged, perhaps here")
        else:
            reason = _objection(item)
            yield item if reason is None else _lost(item, reason)


def _losses(gap: Gap) -> Iterator[LostBytes]:
    """Yield the parts of a damaged stretch that hold no record which decodes."""
    file_id, start, length, reason, _ = gap.damage
    if gap.is_torn or not gap.rescued:
        yield LostBytes(
            location=Location(file_id, start),
            size=length,
            reason=reason,
            is_damage=not gap.is_torn,
        )
        return
    offset = gap.first
    for record in gap.rescued:
        if record.location.offset > offset:
            yield LostBytes(location=Location(file_id, offset), size=record.location.offset - offset, reason=reason)
        offset = record.location.offset + record.size
    if offset < start + length:
        yield LostBytes(location=Location(file_id, offset), size=start + length - offset, reason=reason)


def _objection(record: Record) -> str | None:
    """Return the reason why a record would stop a recovery, if it would."""
    try:
        return flaw(decode(record.payload))
    except MalformedRecord as error:
        return str(error)


def _lost(record: Record, reason: str) -> LostBytes:
    return LostBytes(location=record.location, size=record.size, reason=reason, about=dumped(record).as_json())


def _written(files: JournalFiles, file_id: int, records: list[Record]) -> SalvagedFile:
    counts = Counter(CommandType(record.payload[0]) for record in records)
    record_counts = {kind.name: counts[kind] for kind in CommandType if counts[kind]}
    if not records:
        return SalvagedFile(file_id=file_id, records=record_counts, size=0)
    pieces = encode_data_file(encode_record(_own_source(record.payload)) for record in records)
    try:
        files.replace(file_id, pieces)
    except OSError as error:
        path = files.path(file_id)
        raise StoreUnavailable(
            f"{path} cannot be written: {error.strerror or error}",
            path=str(path),
            hint="free space or name another target; the source is as it was",
        ) from error
    return SalvagedFile(file_id=file_id, records=record_counts, size=sum(map(len, pieces)))


def _own_source(payload: bytes) -> bytes:
    if payload[0] == CommandType.REWRITTEN_DATA_FILE:
        command = decode(payload)
        assert isinstance(command, RewrittenDataFile), "what the type says"
        return encode(command._replace(skip_if_source_exists=False))
    return payload
