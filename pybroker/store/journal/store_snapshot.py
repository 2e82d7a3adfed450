"""The store snapshot: a store's state in a file beside the journal, so that a start need not read all of it.

```text
+----------+---------+---------------+--------+--------+--------------+-------------------------+------+
| PYBINDEX | version | CRC-32 of the | CRC-32 | offset | length       | columns                 | head |
|          |         | columns       | of the head's …, and the head  | of all destinations     | JSON |
| 8 bytes  | u32     | u32           | u32    | u64    | u64          |                         |      |
+----------+---------+---------------+--------+--------+--------------+-------------------------+------+

columns, little-endian, by destination and slice of at most SLICE_MESSAGES messages in their order
+-------------------------+----------------------------+-------------------------------------+---------------+
| message ids             | place in the file          | topics: pending subscriptions, each | their numbers |
| text, one id a line     | n * u64, see contents.pack | n * u32                             | n bytes, each |
+-------------------------+----------------------------+-------------------------------------+---------------+
```

The head has the small parts: which data files the state covers, with length and time; how far into the last of them;
subscriptions, transactions, producers, and the lengths of the columns. A start reads the snapshot and continues at its
end with the follower of a standby, which validates as much: it reads the journal from the beginning if covered files
are gone, changed or unknown, or if the snapshot is damaged or of another version. A snapshot can be deleted at any
time, is never wrong because it is old, and ActiveMQ ignores it.

The columns of a long queue are materialised later: see `snapshot_messages`.

A state of a million messages is copied in some 30 ms on the event loop (lists of references, nothing is converted). A
thread writes it slice by slice, so that the loop waits for one slice at most.
"""

import json
import logging
import os
import sys
import zlib
from array import array
from collections.abc import Callable
from itertools import chain, compress, groupby, repeat
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Literal, NamedTuple

from pybroker import regular
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.journal.contents import FILE_SHIFT, Added, Contents, Removed, Subscription, UnfinishedTransaction
from pybroker.store.journal.follower import FollowedFile, Follower, FollowerStart, Signature, fingerprint
from pybroker.store.journal.format import Location, data_file_name
from pybroker.store.journal.reader import data_files
from pybroker.store.journal.snapshot_messages import Slice, SnapshotMessages
from pybroker.store.journal.state import StoreState

SNAPSHOT_NAME = "pybroker.index"
UNFINISHED_SUFFIX = ".new"
VERSION = 1
SLICE_MESSAGES = 4096
"""Messages per slice: some milliseconds of a thread's work, after which the event loop can run."""

_MAGIC = b"PYBINDEX"
_HEADER = Struct("<8sIII")
_HEAD_PLACE = Struct("<QQ")
_COLUMNS_OFFSET = _HEADER.size + _HEAD_PLACE.size
_MASK_64 = 2**64 - 1
_BIG_ENDIAN = sys.byteorder == "big"

HasSpace = Callable[[int], bool]
"""Returns True if the disk can spare that many more bytes."""

logger = logging.getLogger(__name__)


class UnusableSnapshot(BrokerError):
    """A store snapshot that cannot be used or written, for the reason in the text."""


class _Column(NamedTuple):
    """One destination's messages when the snapshot was taken."""

    ids: list[str]
    packed: list[int]
    counts: list[int]
    pending: list[set[str]]


class StoreSnapshot(NamedTuple):
    """A copy of a state at one moment, while the state goes on changing.

    Attributes:
        covered: where the next record will be: the end of the last batch that the state has applied.
        head: the small parts.
        columns: the messages, by destination.
    """

    covered: Location
    head: dict[str, Any]
    columns: list[_Column]


class WrittenSnapshot(NamedTuple):
    """A snapshot that was written.

    Attributes:
        byte_count: its length.
        files: the data files it covers as a whole.
    """

    byte_count: int
    files: dict[int, Signature]


# ---------------------------------------------------------------- writing


def snapshot(state: StoreState, covered: Location) -> StoreSnapshot:
    """Copy a state that no replay is changing. Quick: 30 ns or so per message."""
    head: dict[str, Any] = {
        "destinations": [_describe(destination, contents) for destination, contents in state.destinations.items()],
        "inflight": [[_name(each), *_transaction(found)] for each, found in state.inflight.items()],
        "prepared": [[_name(each), *_transaction(found)] for each, found in state.prepared.items()],
        "live": list(state.usage.live.items()),
        "references": [[file_id, sorted(answered)] for file_id, answered in state.usage.references.items()],
        "compacted": sorted(state.compacted),
        "sequences": [[producer, *entry] for producer, entry in state.sequences.items()],
        "kept": [[each.name, list(recorded_in)] for each, recorded_in in state.declared.items()],
        "kept_files": sorted(state.declared.files),
    }
    columns = [
        _Column(
            list(contents.messages),
            list(contents.messages.values()),
            list(map(contents.pending_counts.__getitem__, contents.messages)) if contents.is_topic else [],
            [set(each.pending) for each in contents.subscriptions.values()],
        )
        for contents in state.destinations.values()
    ]
    return StoreSnapshot(covered, head, columns)


def write(
    taken: StoreSnapshot, directory: Path, check: Callable[[], None], has_space: HasSpace = lambda byte_count: True
) -> WrittenSnapshot:
    """Write a snapshot and replace the former one by it. All that it covers must be on disk. Blocks.

    Args:
        taken: the copied state.
        directory: the journal's.
        check: the lock's fence, called before the snapshot replaces the former one.
        has_space: called before each slice, since others fill the disk at the same time.

    Raises:
        LockNotHeld: `check` raised it.
        UnusableSnapshot: the journal has changed so much since that it would be of no use, or the disk is too
            full.
        StoreUnavailable: the directory cannot be read.
        OSError: the snapshot cannot be written.
    """
    files = _files(directory, taken.covered)
    if files.pop(taken.covered.file_id, None) is None:
        raise UnusableSnapshot(f"{data_file_name(taken.covered.file_id)} was deleted since")
    head = taken.head | {
        "covered": list(taken.covered),
        "files": [[file_id, *each] for file_id, each in files.items()],
        "chain": _chain(directory, taken.covered),
    }
    path = directory / SNAPSHOT_NAME
    unfinished = path.with_name(SNAPSHOT_NAME + UNFINISHED_SUFFIX)
    try:
        with unfinished.open("wb") as stream:
            byte_count = _write(stream, taken, head, has_space)
            os.fsync(stream.fileno())
        check()
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return WrittenSnapshot(byte_count, files)


def _files(directory: Path, covered: Location) -> dict[int, Signature]:
    """Return the covered data files that exist."""
    found = {file_id: signature(path) for file_id, path in data_files(directory).items() if file_id <= covered.file_id}
    return {file_id: each for file_id, each in found.items() if each is not None}


def signature(path: Path) -> Signature | None:
    """Return a file's signature, None when it is not there."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return Signature(status.st_size, status.st_mtime_ns)


def _chain(directory: Path, covered: Location) -> int:
    file_id, end = covered
    found = fingerprint(directory / data_file_name(file_id), end)
    if found.end != end:
        raise UnusableSnapshot(f"{data_file_name(file_id)} has changed since")
    return found.chain


def _write(stream: BinaryIO, taken: StoreSnapshot, head: dict[str, Any], has_space: HasSpace) -> int:
    """Write header, columns and head; return the length."""
    stream.write(bytes(_COLUMNS_OFFSET))
    checksum = 0
    offset = _COLUMNS_OFFSET
    lengths: list[list[list[Any]]] = []
    for column in taken.columns:
        slices: list[list[Any]] = []
        for start in range(0, len(column.ids), SLICE_MESSAGES):
            described, pieces = _slice(column, start, start + SLICE_MESSAGES)
            _require_space(sum(map(len, pieces)), has_space)
            slices.append(described)
            for piece in pieces:
                stream.write(piece)
                checksum = zlib.crc32(piece, checksum)
                offset += len(piece)
        lengths.append(slices)
    encoded = json.dumps(head | {"slices": lengths}, separators=(",", ":")).encode()
    _require_space(len(encoded), has_space)
    stream.write(encoded)
    place = _HEAD_PLACE.pack(offset, len(encoded))
    stream.seek(0)
    stream.write(_HEADER.pack(_MAGIC, VERSION, checksum, _head_checksum(place, encoded)) + place)
    stream.flush()
    return offset + len(encoded)


def _require_space(byte_count: int, has_space: HasSpace) -> None:
    if not has_space(byte_count):
        raise UnusableSnapshot("the disk has no space to spare")


def _head_checksum(place: bytes, head: bytes) -> int:
    return zlib.crc32(head, zlib.crc32(place))


def _slice(column: _Column, start: int, end: int) -> tuple[list[Any], list[bytes]]:
    """Return the head's entry for a slice of a destination's messages, and its bytes."""
    ids = column.ids[start:end]
    packed = column.packed[start:end]
    text = "\n".join(ids)
    is_plain = text.count("\n") == len(ids) - 1
    pieces = [(text if is_plain else json.dumps(ids)).encode("utf-8", "surrogatepass")]
    pieces.append(_bytes(array("Q", map(int.__and__, packed, repeat(_MASK_64)))))
    if column.counts:
        pieces.append(_bytes(array("I", column.counts[start:end])))
    pieces += [bytes(map(pending.__contains__, ids)) for pending in column.pending]
    files = [
        [file_id, sum(1 for _ in run)] for file_id, run in groupby(map(int.__rshift__, packed, repeat(FILE_SHIFT)))
    ]
    return [len(ids), len(pieces[0]), is_plain, files], pieces


def _bytes(numbers: "array[int]") -> bytes:
    if _BIG_ENDIAN:
        numbers.byteswap()
    return numbers.tobytes()


def _describe(destination: Destination, contents: Contents) -> list[Any]:
    subscriptions = [
        [key, each.info.hex(), list(each.location), sorted(each.files)] for key, each in contents.subscriptions.items()
    ]
    superseded = [[message_id, sorted(files)] for message_id, files in contents.superseded.items()]
    return [int(destination.type), destination.name, contents.is_topic, subscriptions, superseded]


def _transaction(transaction: UnfinishedTransaction) -> list[Any]:
    operations = [
        [int(each.destination.type), each.destination.name, each.message_id, each.packed]
        if isinstance(each, Added)
        else [int(each.destination.type), each.destination.name, each.message_id, each.subscription_key, each.file_id]
        for each in transaction.operations
    ]
    return [operations, sorted(transaction.files)]


def _name(transaction: TransactionId) -> list[Any]:
    if isinstance(transaction, LocalTransactionId):
        return [transaction.connection_id, transaction.value]
    return [transaction.format_id, transaction.global_transaction_id.hex(), transaction.branch_qualifier.hex()]


# ---------------------------------------------------------------- reading


def follower(directory: Path) -> Follower:
    """Return a follower that begins where the directory's snapshot ends, if it has a usable one."""
    try:
        return Follower(directory, read(directory))
    except UnusableSnapshot as error:
        logger.warning("%s: %s is not used, the whole journal is read: %s", directory, SNAPSHOT_NAME, error)
    return Follower(directory)


def read(directory: Path) -> FollowerStart | None:
    """Return a directory's snapshot, None when there is none.

    The follower that continues from there checks that it fits the journal.

    Raises:
        UnusableSnapshot: it is damaged, of another version, or cannot be read.
    """
    try:
        with open(directory / SNAPSHOT_NAME, "rb", opener=regular.opener) as stream:
            head, checksum = _read_head(stream)
            columns = _Columns(stream)
            start = _restore(head, columns)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableSnapshot(f"it cannot be read: {error.strerror}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise UnusableSnapshot(f"it does not make sense: {error!r}") from error
    if columns.checksum != checksum:
        raise UnusableSnapshot("the checksum of its columns does not fit")
    return start


def _read_head(stream: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the head and the checksum of the columns; the stream is at the columns then."""
    header = stream.read(_COLUMNS_OFFSET)
    if len(header) < _COLUMNS_OFFSET or not header.startswith(_MAGIC):
        raise UnusableSnapshot("it is no store snapshot")
    _, version, columns_checksum, checksum = _HEADER.unpack_from(header)
    if version != VERSION:
        raise UnusableSnapshot(f"it has version {version}, and this pybroker reads version {VERSION}")
    offset, length = _HEAD_PLACE.unpack_from(header, _HEADER.size)
    if offset + length != os.fstat(stream.fileno()).st_size:
        raise UnusableSnapshot("its length does not fit")
    stream.seek(offset)
    encoded = stream.read(length)
    if _head_checksum(header[_HEADER.size :], encoded) != checksum:
        raise UnusableSnapshot("the checksum of its head does not fit")
    stream.seek(_COLUMNS_OFFSET)
    head: dict[str, Any] = json.loads(encoded)
    return head, columns_checksum


def _restore(head: dict[str, Any], columns: "_Columns") -> FollowerStart:
    state = StoreState()
    for producer, number, file_id in head["sequences"]:
        state.sequences.record(f"{producer}:{number}", file_id)
    watermarks = state.sequences.watermarks()
    for described, slices in zip(head["destinations"], head["slices"], strict=True):
        kind, name, is_topic, subscriptions, superseded = described
        contents = Contents(is_topic=is_topic)
        for key, info, location, files in subscriptions:
            made = contents.subscriptions[key] = Subscription(bytes.fromhex(info), Location(*location))
            made.files = set(files)
        contents.superseded = {message_id: set(files) for message_id, files in superseded}
        read = [columns.read(contents, *each) for each in slices]
        if len(read) > 1 and not is_topic:
            contents.messages = SnapshotMessages(read, watermarks)
        else:
            contents.messages = dict(chain.from_iterable(each.entries() for each in read))
        state.destinations[Destination(DestinationType(kind), name)] = contents
    state.inflight = _transactions(head["inflight"])
    state.prepared = _transactions(head["prepared"])
    state.usage.live = {file_id: count for file_id, count in head["live"]}
    state.usage.references = {file_id: set(answered) for file_id, answered in head["references"]}
    state.compacted = set(head["compacted"])
    for name, recorded_in in head["kept"]:
        for file_id in recorded_in:
            state.declared.record(Destination(DestinationType.QUEUE, name), file_id)
    state.declared.files = set(head["kept_files"])
    covered = Location(*head["covered"])
    files = {file_id: FollowedFile(signature=Signature(size, modified)) for file_id, size, modified in head["files"]}
    files[covered.file_id] = FollowedFile(end=covered.offset)
    return FollowerStart(state, dict(sorted(files.items())), {covered.file_id: head["chain"]})


class _Columns:
    """Reads columns, one slice after the other.

    Attributes:
        checksum: of what was read.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.checksum = 0

    def read(self, contents: Contents, count: int, text_bytes: int, is_plain: bool, files: list[list[int]]) -> Slice:
        """Read a slice of a destination's messages, with their pending subscriptions, into its contents."""
        text = str(self._take(text_bytes), "utf-8", "surrogatepass")
        ids: list[str] = text.split("\n") if is_plain else json.loads(text)
        found = Slice(ids, self._numbers("Q", count), [(file_id << FILE_SHIFT, run) for file_id, run in files])
        if not count == len(ids) == len(found.places) == sum(run for _, run in files):
            raise ValueError("columns of different lengths")
        if contents.is_topic:
            contents.pending_counts.update(zip(ids, self._numbers("I", count), strict=True))
            for subscription in contents.subscriptions.values():
                subscription.pending.update(compress(ids, self._take(count)))
        return found

    def _take(self, length: int) -> bytes:
        piece = self._stream.read(length)
        self.checksum = zlib.crc32(piece, self.checksum)
        return piece

    def _numbers(self, code: Literal["Q", "I"], count: int) -> "array[int]":
        numbers: array[int] = array(code)
        numbers.frombytes(self._take(count * numbers.itemsize))
        if _BIG_ENDIAN:
            numbers.byteswap()
        return numbers


def _transactions(described: list[Any]) -> dict[Any, UnfinishedTransaction]:
    found: dict[Any, UnfinishedTransaction] = {}
    for name, operations, files in described:
        transaction_id = (
            LocalTransactionId(*name)
            if len(name) == 2
            else XATransactionId(name[0], bytes.fromhex(name[1]), bytes.fromhex(name[2]))
        )
        transaction = found[transaction_id] = UnfinishedTransaction()
        transaction.files = set(files)
        for kind, destination, message_id, *rest in operations:
            where = Destination(DestinationType(kind), destination)
            transaction.operations.append(
                Added(where, message_id, rest[0]) if len(rest) == 1 else Removed(where, message_id, rest[0], rest[1])
            )
    return found
