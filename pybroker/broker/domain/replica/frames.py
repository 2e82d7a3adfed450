"""Frames of the replication stream: bytes to values and back.

```text
+----------+---------+------------+---------------------------+-----------+
| length   | type u8 | sequence   | payload                   | seal      |    length: of all behind it
| u32      |         | u64        | …                         | 4 or 16   |    seal: CRC-32 or HMAC over type, sequence
+----------+---------+------------+---------------------------+-----------+    and payload
```

| type         | from     | payload                                                                     |
|--------------|----------|-----------------------------------------------------------------------------|
| 1 HELLO      | follower | JSON text, manifest                                                         |
| 2 PLAN       | master   | JSON text, plan                                                             |
| 3 FETCHED    | master   | journal u8, file u32, offset u32, left u32, bytes                           |
| 4 LIVE       | master   | nothing; the sequence is the last one that was sent                         |
| 5 BEGIN      | master   | journal u8, file u32                                                        |
| 6 BATCH      | master   | as FETCHED                                                                  |
| 7 CUT        | master   | journal u8, file u32, length u32                                            |
| 8 REPLACE    | master   | journal u8, file u32, length u32, CRC-32 u32, offset u32, bytes             |
| 9 REMOVE     | master   | journal u8, files u32 …                                                     |
| 10 PING      | master   | clock u64, confirmed u64                                                    |
| 11 CONFIRM   | follower | written u64, clock u64, flags u8; the sequence is the last one that is synced |
| 12 LEAVE     | follower | a sentence                                                                  |
| 13 HANDOVER  | master   | a sentence                                                                  |
| 14 REFUSED   | either   | a sentence                                                                  |
| 15 MEASURE   | master   | (journal u8, file u32, length u32) …                                        |
| 16 MEASURED  | follower | CRC-32 u32 …                                                                |
| 17 STATUS    | follower | nothing                                                                     |
| 18 REPORT    | master   | a JSON text, see `reports`                                                  |
| 19 VERIFY    | follower | nothing                                                                     |
| 20 COMPARE   | master   | journal u8, file u32, offset u32, length u32, left u64                      |
| 21 COMPARED  | follower | there u8, CRC-32 u32                                                        |
| 22 VERIFIED  | master   | a JSON text, see `reports`                                                  |
| 23 REPAIR    | follower | (journal u8, file u32) …                                                    |
| 24 READ      | master   | journal u8, file u32, offset u32                                            |
| 25 RECORD    | follower | left u32, bytes                                                             |

A text has its length as u32 before it. FETCHED and BATCH hold whole batches with `left` 0; only one that is too long
for a frame comes in pieces, and `left` is what is missing of it. An operation in pieces has one sequence.

STATUS may come before HELLO. COMPARE asks for the checksum of a part of a data file as it is at this place of the
stream; `left` is what is still to be compared behind it. The answers come in the order of the questions. REPAIR has
the master send files as a whole, and compare the stores again.

READ asks for a record that the master's own disk does not give back. RECORD has it, with its header, in pieces if it is
long, of which `left` bytes follow; it is empty if there is none in a sound batch.

Each type has a limit of its own, which is checked before the frame's bytes are gathered. A peer that was not
authenticated has not come so far (see `pybroker.transports.replica.handshake`).

Source: specification of replication, 4.1.
"""

import enum
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from pybroker.broker.domain.big_endian import (
    BYTE_AND_THREE_UNSIGNED_INTS,
    BYTE_AND_TWO_UNSIGNED_INTS,
    BYTE_AND_UNSIGNED_INT,
    BYTE_AND_UNSIGNED_LONG,
    UNSIGNED_INT,
)
from pybroker.broker.domain.replica.frame_texts import (
    TEXT_BYTES_MAX,
    encode_text,
    member_of,
    number_of,
    split_text,
    string_of,
    text_values,
)
from pybroker.broker.domain.replica.manifest import (
    MANIFEST_BYTES_MAX,
    MANIFEST_FILES_MAX,
    MalformedFrame,
    Manifest,
    as_journal,
    decode_manifest,
    encode_manifest,
)
from pybroker.broker.domain.replica.operations import (
    BeginFile,
    CutFile,
    Journal,
    Operation,
    RemoveFiles,
    ReplaceFile,
    WriteBatch,
)
from pybroker.broker.domain.replica.plan import PLAN_BYTES_MAX, PlanEntry, Prefix, decode_plan, encode_plan
from pybroker.broker.domain.replica.ports import FollowerWishes, RegisterSnapshot, ReplicaMember
from pybroker.broker.domain.replica.reports import DIFFERENCES_MAX, ClusterReport, ComparisonResult
from pybroker.broker.domain.replica.seals import FrameSeal, is_equal

PROTOCOL_VERSION: Final = 1
PROTOCOL_VERSION_MIN: Final = 1
"""A member also speaks the version before its own, if there is one: members are upgraded one after the other."""

FRAME_BYTES_MAX: Final = 8 << 20
PIECE_BYTES: Final = 1 << 20
"""Bytes of a batch, or of a file, in one frame: longer ones are divided."""

SENTENCE_BYTES_MAX: Final = 4 << 10

REPORT_BYTES_MAX: Final = 64 << 10

HEADER: Final = BYTE_AND_UNSIGNED_LONG
_PIECE: Final = BYTE_AND_THREE_UNSIGNED_INTS
_FILE: Final = BYTE_AND_UNSIGNED_INT
_CUT: Final = BYTE_AND_TWO_UNSIGNED_INTS
_REPLACE: Final = struct.Struct(">BIIII")
_PING: Final = struct.Struct(">QQ")
_CONFIRM: Final = struct.Struct(">QQB")
_COMPARE: Final = struct.Struct(">BIIIQ")
_COMPARED: Final = BYTE_AND_UNSIGNED_INT

Payload = bytes | memoryview


class FrameType(enum.IntEnum):
    """Types of frames."""

    HELLO = 1
    PLAN = 2
    FETCHED = 3
    LIVE = 4
    BEGIN = 5
    BATCH = 6
    CUT = 7
    REPLACE = 8
    REMOVE = 9
    PING = 10
    CONFIRM = 11
    LEAVE = 12
    HANDOVER = 13
    REFUSED = 14
    MEASURE = 15
    MEASURED = 16
    STATUS = 17
    REPORT = 18
    VERIFY = 19
    COMPARE = 20
    COMPARED = 21
    VERIFIED = 22
    REPAIR = 23
    READ = 24
    RECORD = 25


FROM_FOLLOWER: Final[Mapping[int, int]] = {
    FrameType.HELLO: 4 + TEXT_BYTES_MAX + MANIFEST_BYTES_MAX,
    FrameType.CONFIRM: _CONFIRM.size,
    FrameType.LEAVE: SENTENCE_BYTES_MAX,
    FrameType.REFUSED: SENTENCE_BYTES_MAX,
    FrameType.MEASURED: UNSIGNED_INT.size * MANIFEST_FILES_MAX,
    FrameType.STATUS: 0,
    FrameType.VERIFY: 0,
    FrameType.COMPARED: _COMPARED.size,
    FrameType.REPAIR: _FILE.size * DIFFERENCES_MAX,
    FrameType.RECORD: UNSIGNED_INT.size + PIECE_BYTES,
}
"""The types that a master takes, with the most bytes of their payloads."""

FROM_MASTER: Final[Mapping[int, int]] = {
    FrameType.PLAN: 4 + TEXT_BYTES_MAX + PLAN_BYTES_MAX,
    FrameType.FETCHED: _PIECE.size + PIECE_BYTES,
    FrameType.LIVE: 0,
    FrameType.BEGIN: _FILE.size,
    FrameType.BATCH: _PIECE.size + PIECE_BYTES,
    FrameType.CUT: _CUT.size,
    FrameType.REPLACE: _REPLACE.size + PIECE_BYTES,
    FrameType.REMOVE: 1 + UNSIGNED_INT.size * MANIFEST_FILES_MAX,
    FrameType.PING: _PING.size,
    FrameType.HANDOVER: SENTENCE_BYTES_MAX,
    FrameType.REFUSED: SENTENCE_BYTES_MAX,
    FrameType.MEASURE: _CUT.size * MANIFEST_FILES_MAX,
    FrameType.REPORT: REPORT_BYTES_MAX,
    FrameType.COMPARE: _COMPARE.size,
    FrameType.VERIFIED: REPORT_BYTES_MAX,
    FrameType.READ: _CUT.size,
}
"""The types that a follower takes, with the most bytes of their payloads."""


# ---------------------------------------------------------------- values


class Hello(NamedTuple):
    """A follower's introduction.

    Attributes:
        version_min: the lowest version of the protocol that it speaks.
        version_max: the highest.
        member: who it is.
        revision: of the register, as it knows it; 0 for unknown.
        manifest: its data files, everything in which is synced.
    """

    version_min: int
    version_max: int
    member: ReplicaMember
    revision: int
    manifest: Manifest


def agreed_version(hello: Hello) -> int:
    """Return the highest version of the protocol that a follower and this master speak; 0 if there is none."""
    version = min(hello.version_max, PROTOCOL_VERSION)
    return version if version >= max(hello.version_min, PROTOCOL_VERSION_MIN) else 0


class MasterPlan(NamedTuple):
    """A master's answer to `Hello`.

    Attributes:
        version: of the protocol from here on.
        epoch: the master's.
        member: who it is.
        register: as it knows it.
        entries: what the follower does with its data files.
    """

    version: int
    epoch: int
    member: ReplicaMember
    register: RegisterSnapshot
    entries: Sequence[PlanEntry]


class BatchPiece(NamedTuple):
    """Bytes for the end of a data file: whole batches, or a piece of one.

    Attributes:
        journal: its journal.
        file_id: the data file.
        offset: where these bytes go.
        left: bytes of a batch in pieces that follow these; 0: it ends here.
        content: the bytes.
        is_live: an operation, and not a part of the catch-up.
    """

    journal: Journal
    file_id: int
    offset: int
    left: int
    content: Payload
    is_live: bool


class ReplacePiece(NamedTuple):
    """A piece of a data file's new content.

    Attributes:
        journal: its journal.
        file_id: the data file.
        length: of the whole new content, its EOF marker included.
        crc: the CRC-32 of that.
        offset: where this piece begins in it; 0 begins a new copy.
        content: the piece.
    """

    journal: Journal
    file_id: int
    length: int
    crc: int
    offset: int
    content: Payload


class StreamLive(NamedTuple):
    """The end of the catch-up: everything up to the frame's sequence was sent, and operations follow."""


class Ping(NamedTuple):
    """A sign of life of the master.

    Attributes:
        clock: its clock in nanoseconds, for `Confirm`.
        committed: the sequence up to which it has confirmed to clients.
    """

    clock: int
    committed: int


class Confirm(NamedTuple):
    """A follower's confirmation: everything up to the frame's sequence is synced.

    Attributes:
        written: up to this sequence it is at least written.
        clock: of the latest ping that was taken; 0 before the first.
        has_promised: with that ping it promised not to stand for a lease.
        is_short_of_space: its disk is full, and its reserve is being used.
        wishes: its permission and its wish to become the master.
    """

    written: int
    clock: int
    has_promised: bool
    is_short_of_space: bool = False
    wishes: FollowerWishes = FollowerWishes()


class Leave(NamedTuple):
    """A follower asks to be taken out of the in-sync set, and waits for the end of the connection."""

    sentence: str


class HandOver(NamedTuple):
    """The master has released the cluster to this follower."""

    sentence: str


class RefusedFrame(NamedTuple):
    """The last frame of a connection, with the reason."""

    sentence: str


class Measure(NamedTuple):
    """A question for checksums of the beginnings of a follower's files."""

    prefixes: Sequence[Prefix]


class Measured(NamedTuple):
    """The answer to `Measure`, in its order."""

    checksums: Sequence[int]


class StatusRequest(NamedTuple):
    """A follower's request for a `StatusReport`."""


class StatusReport(NamedTuple):
    """The state of the cluster, as the answer to `StatusRequest`."""

    report: ClusterReport


class VerifyRequest(NamedTuple):
    """A follower asks the master to compare their stores."""


class Compare(NamedTuple):
    """A master's request for the checksum of a part of a follower's file.

    Attributes:
        journal: its journal.
        file_id: the data file.
        offset: where the part begins.
        length: its length.
        left: bytes that are to be compared behind it.
    """

    journal: Journal
    file_id: int
    offset: int
    length: int
    left: int


class Compared(NamedTuple):
    """A follower's checksum, as the answer to `Compare`.

    Attributes:
        crc: the CRC-32; None: the file is not there, or shorter.
    """

    crc: int | None


class Verified(NamedTuple):
    """The result of a comparison, which the master sends at its end."""

    result: ComparisonResult


class RepairRequest(NamedTuple):
    """A follower asks for whole files, and another comparison."""

    files: Sequence[tuple[Journal, int]]


class ReadRecord(NamedTuple):
    """A master's request for a record that its own disk does not give back.

    Attributes:
        journal: its journal.
        file_id: the data file.
        offset: where the record begins.
    """

    journal: Journal
    file_id: int
    offset: int


class RecordPiece(NamedTuple):
    """A piece of a follower's copy of a record, as the answer to `ReadRecord`.

    Attributes:
        left: bytes of the record that follow in other pieces.
        content: the piece; empty: the follower has no such record in a sound batch.
    """

    left: int
    content: Payload


FrameBody = (
    Hello
    | MasterPlan
    | BatchPiece
    | ReplacePiece
    | BeginFile
    | CutFile
    | RemoveFiles
    | StreamLive
    | Ping
    | Confirm
    | Leave
    | HandOver
    | RefusedFrame
    | Measure
    | Measured
    | StatusRequest
    | StatusReport
    | VerifyRequest
    | Compare
    | Compared
    | Verified
    | RepairRequest
    | ReadRecord
    | RecordPiece
)


class StreamFrame(NamedTuple):
    """A frame.

    Attributes:
        sequence: of an operation; of CONFIRM and LIVE, the last one; 0 of others.
        body: the rest.
    """

    sequence: int
    body: FrameBody


# ---------------------------------------------------------------- bytes to frames


class StreamDecoder:
    """Turns the bytes of one direction of a connection into frames.

    It gathers no more than the largest frame that its peer may send.
    """

    def __init__(self, limits: Mapping[int, int], seal: FrameSeal) -> None:
        """Begin.

        Args:
            limits: the types that may come, with the most bytes of their payloads.
            seal: makes the ends that the frames must have.
        """
        self._limits = limits
        self._seal = seal
        self._buffer = bytearray()
        """The beginning of a frame whose rest has not come."""
        self._missing_to = 0
        """The length that the buffer must have before there is more to see."""

    def receive(self, data: Payload) -> list[StreamFrame]:
        """Return the frames that these bytes complete.

        Raises:
            MalformedFrame: a frame is too long, of another type, damaged, or has another payload than its type. None of
                the frames of this call are returned.
        """
        view = memoryview(data)
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._missing_to:
                return []
            view, self._buffer = memoryview(self._buffer), bytearray()
        frames: list[StreamFrame] = []
        at, size = 0, len(view)
        while (end := self._end(view, at)) <= size:
            frames.append(self._frame(view[at + 4 : end]))
            at = end
        if at < size:
            self._buffer += view[at:]
            self._missing_to = end - at
        return frames

    def _end(self, view: memoryview, at: int) -> int:
        """Return where the frame at `at` ends, as far as that is known: behind the bytes if not all of it is there."""
        if len(view) < at + 5:
            return len(view) + 1
        length: int
        (length,) = UNSIGNED_INT.unpack_from(view, at)
        kind = view[at + 4]
        limit = self._limits.get(kind)
        if limit is None:
            raise MalformedFrame(f"a frame of type {kind}, which does not come from this side")
        if not HEADER.size + self._seal.byte_count <= length <= HEADER.size + limit + self._seal.byte_count:
            raise MalformedFrame(f"a frame of type {kind} with {length} bytes")
        return at + 4 + length

    def _frame(self, view: memoryview) -> StreamFrame:
        content = view[: -self._seal.byte_count]
        if not is_equal(self._seal.next((content,)), view[len(content) :]):
            raise MalformedFrame("a frame is damaged: its checksum differs")
        kind, sequence = HEADER.unpack_from(content)
        try:
            return StreamFrame(sequence, _body(_TYPES[kind], content[HEADER.size :]))
        except struct.error as error:
            raise MalformedFrame(f"a frame of type {kind} has a payload of another length") from error


_TYPES: Final[Mapping[int, FrameType]] = {int(each): each for each in FrameType}


_WISHES: Final = tuple(FollowerWishes(may_stand=not each & 1, wants_to_serve=bool(each & 2)) for each in range(4))
"""By the bits 2 and 3 of a confirmation's flags."""


def _body(kind: FrameType, payload: memoryview) -> FrameBody:
    """Return a frame's value. Bytes of files are copied: the buffer is used again."""
    match kind:
        case FrameType.FETCHED | FrameType.BATCH:
            journal, file_id, offset, left = _PIECE.unpack_from(payload)
            content = bytes(payload[_PIECE.size :])
            return BatchPiece(as_journal(journal), file_id, offset, left, content, kind is FrameType.BATCH)
        case FrameType.PING:
            return Ping(*_PING.unpack(payload))
        case FrameType.CONFIRM:
            written, clock, flags = _CONFIRM.unpack(payload)
            return Confirm(written, clock, bool(flags & 1), bool(flags & 2), _WISHES[flags >> 2 & 3])
        case FrameType.BEGIN:
            journal, file_id = _FILE.unpack(payload)
            return BeginFile(as_journal(journal), file_id)
        case FrameType.CUT:
            journal, file_id, length = _CUT.unpack(payload)
            return CutFile(as_journal(journal), file_id, length)
        case FrameType.REPLACE:
            journal, file_id, length, crc, offset = _REPLACE.unpack_from(payload)
            return ReplacePiece(as_journal(journal), file_id, length, crc, offset, bytes(payload[_REPLACE.size :]))
        case FrameType.REMOVE:
            return _remove(payload)
        case FrameType.LIVE:
            return StreamLive()
        case FrameType.HELLO:
            return _hello(payload)
        case FrameType.PLAN:
            return _plan(payload)
        case FrameType.LEAVE:
            return Leave(_sentence(payload))
        case FrameType.HANDOVER:
            return HandOver(_sentence(payload))
        case FrameType.REFUSED:
            return RefusedFrame(_sentence(payload))
        case FrameType.MEASURE:
            return Measure([(as_journal(number), file_id, end) for number, file_id, end in _CUT.iter_unpack(payload)])
        case FrameType.MEASURED:
            return Measured([crc for (crc,) in UNSIGNED_INT.iter_unpack(payload)])
        case _:
            return _about_comparisons(kind, payload)


def _about_comparisons(kind: FrameType, payload: memoryview) -> FrameBody:
    """Return the value of a frame about the state of the cluster, or about a comparison."""
    match kind:
        case FrameType.STATUS:
            return StatusRequest()
        case FrameType.REPORT:
            return StatusReport(ClusterReport.decode(bytes(payload)))
        case FrameType.VERIFY:
            return VerifyRequest()
        case FrameType.COMPARE:
            journal, file_id, offset, length, left = _COMPARE.unpack(payload)
            return Compare(as_journal(journal), file_id, offset, length, left)
        case FrameType.COMPARED:
            is_there, crc = _COMPARED.unpack(payload)
            return Compared(crc if is_there else None)
        case FrameType.VERIFIED:
            return Verified(ComparisonResult.decode(bytes(payload)))
        case FrameType.REPAIR:
            return RepairRequest([(as_journal(number), file_id) for number, file_id in _FILE.iter_unpack(payload)])
        case FrameType.READ:
            journal, file_id, offset = _CUT.unpack(payload)
            return ReadRecord(as_journal(journal), file_id, offset)
        case FrameType.RECORD:
            (left,) = UNSIGNED_INT.unpack_from(payload)
            return RecordPiece(left, bytes(payload[UNSIGNED_INT.size :]))
        case _:
            raise MalformedFrame(f"a frame of type {kind}")


def _remove(payload: memoryview) -> RemoveFiles:
    journal = as_journal(payload[0]) if payload else as_journal(-1)
    file_ids = [file_id for (file_id,) in UNSIGNED_INT.iter_unpack(payload[1:])]
    if file_ids != sorted(set(file_ids)):
        raise MalformedFrame("the data files to be removed are not in ascending order")
    return RemoveFiles(journal, file_ids)


def _hello(payload: memoryview) -> Hello:
    text, rest = split_text(payload)
    values = text_values(text)
    version_min, version_max = number_of(values, "version_min"), number_of(values, "version_max")
    return Hello(version_min, version_max, member_of(values), number_of(values, "revision"), decode_manifest(rest))


def _plan(payload: memoryview) -> MasterPlan:
    text, rest = split_text(payload)
    values = text_values(text)
    election = string_of(values, "election") if "election" in values else ""
    register = RegisterSnapshot(number_of(values, "revision"), string_of(values, "register").encode(), election)
    version, epoch = number_of(values, "version"), number_of(values, "epoch")
    return MasterPlan(version, epoch, member_of(values), register, decode_plan(rest))


def _sentence(payload: memoryview) -> str:
    return bytes(payload).decode(errors="replace")


# ---------------------------------------------------------------- frames to bytes


def encode_frame(seal: FrameSeal, frame: StreamFrame) -> bytes:
    """Return a frame's bytes."""
    kind, pieces = _payload(frame.body)
    return b"".join(sealed(seal, kind, frame.sequence, pieces))


def sealed(seal: FrameSeal, kind: int, sequence: int, pieces: Sequence[Payload]) -> Sequence[Payload]:
    """Return a frame in pieces: its payload is not copied."""
    content = (HEADER.pack(kind, sequence), *pieces)
    length = sum(map(len, content)) + seal.byte_count
    return (UNSIGNED_INT.pack(length), *content, seal.next(content))


def encode_operation(seal: FrameSeal, sequence: int, operation: Operation) -> Iterator[Sequence[Payload]]:
    """Return the frames of an operation, each in pieces: one, or for a long batch or file several."""
    match operation:
        case WriteBatch(journal, file_id, offset, content):
            for at, left, pieces in divided(content):
                yield sealed(
                    seal, FrameType.BATCH, sequence, (_PIECE.pack(journal, file_id, offset + at, left), *pieces)
                )
        case ReplaceFile(journal, file_id, content):
            yield from encode_replacement(seal, sequence, journal, file_id, content)
        case BeginFile() | CutFile() | RemoveFiles():
            kind, payload = _payload(operation)
            yield sealed(seal, kind, sequence, payload)
        case _:
            assert_never(operation)


def encode_replacement(
    seal: FrameSeal, sequence: int, journal: Journal, file_id: int, content: Sequence[Payload]
) -> Iterator[Sequence[Payload]]:
    """Return the frames of a data file's new content."""
    length, crc = sum(map(len, content)), 0
    for piece in content:
        crc = zlib.crc32(piece, crc)
    for at, _, pieces in divided(content):
        head = _REPLACE.pack(journal, file_id, length, crc, at)
        yield sealed(seal, FrameType.REPLACE, sequence, (head, *pieces))


def divided(content: Sequence[Payload]) -> Iterator[tuple[int, int, Sequence[Payload]]]:
    """Divide bytes for frames.

    Yields:
        Where a part begins, how many bytes follow it, and its pieces, which are at most `PIECE_BYTES` together.
    """
    left = sum(map(len, content))
    if left <= PIECE_BYTES:
        yield 0, 0, content
        return
    at, size = 0, 0
    pieces: list[Payload] = []
    for piece in content:
        view = memoryview(piece)
        while view:
            part = view[: PIECE_BYTES - size]
            view = view[len(part) :]
            pieces.append(part)
            size += len(part)
            if size in (PIECE_BYTES, left):
                left -= size
                yield at, left, pieces
                at, size, pieces = at + size, 0, []


def _payload(body: FrameBody) -> tuple[FrameType, Sequence[Payload]]:
    """Return a frame's type, and its payload in pieces."""
    match body:
        case BatchPiece(journal, file_id, offset, left, content, is_live):
            kind = FrameType.BATCH if is_live else FrameType.FETCHED
            return kind, (_PIECE.pack(journal, file_id, offset, left), content)
        case Ping():
            return FrameType.PING, (_PING.pack(*body),)
        case Confirm(written, clock, has_promised, is_short_of_space, (may_stand, wants_to_serve)):
            flags = has_promised | is_short_of_space << 1 | (not may_stand) << 2 | wants_to_serve << 3
            return FrameType.CONFIRM, (_CONFIRM.pack(written, clock, flags),)
        case BeginFile():
            return FrameType.BEGIN, (_FILE.pack(*body),)
        case CutFile():
            return FrameType.CUT, (_CUT.pack(*body),)
        case ReplacePiece(journal, file_id, length, crc, offset, content):
            return FrameType.REPLACE, (_REPLACE.pack(journal, file_id, length, crc, offset), content)
        case RemoveFiles(journal, file_ids):
            return FrameType.REMOVE, (bytes([journal]), *map(UNSIGNED_INT.pack, file_ids))
        case StreamLive():
            return FrameType.LIVE, ()
        case Hello(version_min, version_max, member, revision, manifest):
            values = {"version_min": version_min, "version_max": version_max, "revision": revision}
            return FrameType.HELLO, (*encode_text(values, member), encode_manifest(manifest))
        case MasterPlan(version, epoch, member, register, plan):
            values = {"version": version, "epoch": epoch, "revision": register.revision}
            record = {"register": register.content.decode(), "election": register.election}
            return FrameType.PLAN, (
                *encode_text(values | record, member),
                encode_plan(plan),
            )
        case Leave(sentence):
            return FrameType.LEAVE, (sentence.encode()[:SENTENCE_BYTES_MAX],)
        case HandOver(sentence):
            return FrameType.HANDOVER, (sentence.encode()[:SENTENCE_BYTES_MAX],)
        case RefusedFrame(sentence):
            return FrameType.REFUSED, (sentence.encode()[:SENTENCE_BYTES_MAX],)
        case Measure(prefixes):
            return FrameType.MEASURE, (*(_CUT.pack(*each) for each in prefixes),)
        case Measured(checksums):
            return FrameType.MEASURED, (*map(UNSIGNED_INT.pack, checksums),)
        case StatusRequest():
            return FrameType.STATUS, ()
        case StatusReport(report):
            return FrameType.REPORT, (report.encode(),)
        case VerifyRequest():
            return FrameType.VERIFY, ()
        case Compare():
            return FrameType.COMPARE, (_COMPARE.pack(*body),)
        case Compared(checksum):
            return FrameType.COMPARED, (_COMPARED.pack(checksum is not None, checksum or 0),)
        case Verified(result):
            return FrameType.VERIFIED, (result.encode(),)
        case RepairRequest(files):
            return FrameType.REPAIR, (*(_FILE.pack(*each) for each in files),)
        case ReadRecord():
            return FrameType.READ, (_CUT.pack(*body),)
        case RecordPiece(left, content):
            return FrameType.RECORD, (UNSIGNED_INT.pack(left), content)
        case _:
            assert_never(body)
