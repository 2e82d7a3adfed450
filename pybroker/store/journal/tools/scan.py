"""Yields every readable record of a data file, also those inside damaged batches, in the order of the file.

`reader.DataFileWalk` yields a batch whole or not at all, as recovery must. Here the stretches that it skips are
searched:

```text
 sound batch | damaged stretch ....................... | sound batch
             | control | record | ?????? | record |
                         |                 `- found again by the pattern of a record that decodes
                         `- at its place behind the control record, and decodes
```

A record out of a damaged stretch counts when it decodes to the last byte, the OpenWire object in it included, and has
the same message id inside and outside. It is *proven* when the batch's checksum fits after all (the control record was
hit, and not what follows). Otherwise its bytes may be wrong in places where any byte makes sense, such as a text.
"""

import enum
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from pybroker.broker.domain.errors import BrokerError
from pybroker.broker.domain.openwire import message as openwire
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.objects import decode_subscription_info
from pybroker.store.journal.commands import (
    AddMessage,
    AddScheduledJob,
    Command,
    CommandType,
    Subscribe,
    UpdateMessage,
    decode,
)
from pybroker.store.journal.format import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    BATCH_MAGIC,
    EOF_MARKER,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    USER_RECORD,
    Location,
)
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.protobuf import read_varint
from pybroker.store.journal.reader import Buffer, Damage, DataFileWalk, is_finished

_RECORD_PATTERN = re.compile(rb"\x01[\x00-%c]" % max(CommandType), re.DOTALL)
"""Pattern of record type and command type; the bytes around it decide if it is one."""
_VARINT_BYTES_MAX = 5
_CHECKSUM_MAX = 2**32
_SECTOR_BYTES = 512
_NO_SECTOR = bytes(_SECTOR_BYTES)


class RecordIntegrity(enum.Enum):
    """Trust in a record's bytes."""

    SOUND = "sound"
    """Its batch is sound. Recovery takes these and no others."""
    PROVEN = "proven"
    """Its batch is damaged, but not here: the checksum fits."""
    UNPROVEN = "unproven"
    """Its batch is damaged, perhaps here; but it decodes."""


class Record(NamedTuple):
    """A user record.

    Attributes:
        location: where its header begins.
        payload: the encoded command.
        integrity: how far its bytes can be trusted.
    """

    location: Location
    payload: bytes
    integrity: RecordIntegrity = RecordIntegrity.SOUND

    @property
    def size(self) -> int:
        """Bytes in the file, header included."""
        return RECORD_HEADER_BYTES + len(self.payload)


class Gap(NamedTuple):
    """A damaged stretch, with what could be found in it.

    Attributes:
        damage: as recovery reports it.
        rescued: records out of it, in order; a scan also gives them one by one, behind the gap.
        lost_bytes: bytes of it that belong to none of them, its control record aside.
        is_torn: an unfinished write explains it, and the file may have been written last. Nothing in it was ever
            acknowledged, and nothing is rescued.
        beginning: its first bytes, where a control record should be.
        first: where its records begin: behind the control record, if there is one.
    """

    damage: Damage
    rescued: tuple[Record, ...]
    lost_bytes: int
    is_torn: bool
    beginning: bytes
    first: int


class Scan:
    """One scan of a data file: iterate for its records and gaps.

    Attributes:
        batch_count: sound batches met so far.
        unchecked_count: how many of them have no checksum.
        odd_checksums: offsets of batches with a checksum that no broker writes, which goes unchecked.
    """

    def __init__(self, data: Buffer, file_id: int, *, is_writable: bool = True) -> None:
        """Prepare a scan of a file's bytes.

        Args:
            data: the bytes.
            file_id: the file.
            is_writable: it may have been written last. In other files nothing counts as torn.
        """
        self.batch_count = 0
        self.unchecked_count = 0
        self.odd_checksums: list[int] = []
        self._data = data
        self._is_writable = is_writable
        self._walk = DataFileWalk(data, file_id)
        self._reported_count = 0

    @property
    def end(self) -> int:
        """The logical end, once the scan is over."""
        return self._walk.end

    @property
    def is_finished(self) -> bool:
        """True if an EOF marker, or a truncated one, is at the logical end, once the scan is over."""
        return is_finished(self._data[self._walk.end : self._walk.end + len(EOF_MARKER)])

    @property
    def stray_bytes(self) -> int:
        """Number of bytes from the logical end on, preallocated ones included."""
        return len(self._data) - self._walk.end

    def __iter__(self) -> Iterator[Record | Gap]:
        """Yield what the file holds, by offset; a gap comes before the records that were rescued from it."""
        walk = self._walk
        batch = -1
        for location, payload in walk:
            if walk.end != batch:  # it moves once all of a batch was given
                batch = walk.end
                self._note_batch(batch)
                yield from self._gaps()
            yield Record(location, payload)
        yield from self._gaps()

    def _note_batch(self, offset: int) -> None:
        _, _, checksum = BATCH_HEADER.unpack_from(self._data, offset)
        self.batch_count += 1
        if checksum == 0:
            self.unchecked_count += 1
        elif checksum < 0:
            self.odd_checksums.append(offset)

    def _gaps(self) -> Iterator[Record | Gap]:
        damages = self._walk.damages[self._reported_count :]
        self._reported_count += len(damages)
        for damage in damages:
            gap = _gap(self._data, damage, self._is_writable)
            yield gap
            yield from gap.rescued


def flaw(command: Command) -> str | None:
    """Return the flaw of the OpenWire object in a command, which the command's encoding does not show."""
    return flaws(command)[0]


def flaws(command: Command) -> tuple[str | None, str | None]:
    """Return the flaw of the object in a command, and that of its properties, which a client may have sent so."""
    try:
        match command:
            case AddMessage(data=data) | UpdateMessage(message=AddMessage(data=data)) | AddScheduledJob(payload=data):
                return None, _property_flaw(openwire.decode(data, with_content=False))
            case Subscribe(info=info):
                decode_subscription_info(info)
            case _:
                pass
    except MalformedOpenWire as error:
        return str(error), None
    return None, None


def _property_flaw(message: openwire.OpenWireMessage) -> str | None:
    try:
        _ = message.properties
    except MalformedOpenWire as error:
        return str(error)
    return None


# ---------------------------------------------------------------- damaged stretches


def _gap(data: Buffer, damage: Damage, is_writable: bool) -> Gap:
    start, end = damage.offset, damage.offset + damage.length
    if damage.at_end:
        end = _extended(data, end)
    beginning = bytes(data[start : start + BATCH_HEADER_BYTES])
    first, proven_end = _batch_bounds(data, start, end)
    if is_writable and damage.at_end and not proven_end and _is_torn(data, start, end):
        return Gap(damage, (), damage.length, True, beginning, first)
    rescued = tuple(_rescued(data, damage.file_id, first, end, proven_end))
    lost_bytes = start + damage.length - first - sum(record.size for record in rescued)
    return Gap(damage, rescued, max(lost_bytes, 0), False, beginning, first)


def _extended(data: Buffer, end: int) -> int:
    """Return the greatest possible end of a stretch at the end of a file: zeros behind it may be a record's."""
    marker = data.find(EOF_MARKER, end)
    return len(data) if marker < 0 else marker


def _batch_bounds(data: Buffer, start: int, end: int) -> tuple[int, int]:
    """Return the offset of a damaged batch's first record, and the end that its checksum proves (0: none)."""
    first = start + BATCH_HEADER_BYTES
    if first > len(data) or not _resembles_control_record(bytes(data[start:first])):
        return start, 0
    _, length, checksum = BATCH_HEADER.unpack_from(data, start)
    if 0 < checksum < _CHECKSUM_MAX:
        declared = [first + length] if 0 < length <= end - first else []
        for candidate in (*declared, *_chain_ends(data, first, end)):
            if zlib.adler32(memoryview(data)[first:candidate]) == checksum:
                return first, candidate
    return first, 0


def _resembles_control_record(header: bytes) -> bool:
    """Return True if bytes are a control record in spite of a few that are wrong."""
    same = [ours for ours, found in zip(BATCH_MAGIC, header, strict=False) if ours == found]
    return len(same) * 2 > len(BATCH_MAGIC)


def _chain_ends(data: Buffer, first: int, end: int) -> Iterator[int]:
    """Yield where a chain of records' headers from `first` on leads to the end of the stretch or an EOF marker."""
    offset = first
    while size := _record_size(data, offset, end):
        offset += size
        if offset == end or data[offset : offset + len(EOF_MARKER)] == EOF_MARKER:
            yield offset


def _record_size(data: Buffer, offset: int, end: int) -> int:
    """Return the size that the header at an offset gives, 0 when it is no record's header."""
    if offset + RECORD_HEADER_BYTES > end:
        return 0
    size, kind = RECORD_HEADER.unpack_from(data, offset)
    return size if kind == USER_RECORD and RECORD_HEADER_BYTES < size <= end - offset else 0


def _rescued(data: Buffer, file_id: int, offset: int, end: int, proven_end: int) -> Iterator[Record]:
    """Yield the records in a stretch that decode."""
    while offset < end:
        size = _record_size(data, offset, end)
        if size:
            record = _record(data, file_id, offset, size, proven_end)
            if record is not None:
                yield record
                offset += size
                continue
            # A header that leads to another one is believed: the damage is in this record, which is not looked into,
            # since a message may well contain what looks like a record.
            if offset + size == end or _record_size(data, offset + size, end):
                offset += size
                continue
        found = _next_record(data, file_id, offset + 1, end)
        if found is None:
            return
        offset = found


def _record(data: Buffer, file_id: int, offset: int, size: int, proven_end: int) -> Record | None:
    payload = data[offset + RECORD_HEADER_BYTES : offset + size]
    if not _is_credible(payload):
        return None
    return Record(
        Location(file_id, offset),
        payload,
        RecordIntegrity.PROVEN if offset + size <= proven_end else RecordIntegrity.UNPROVEN,
    )


def _is_credible(payload: bytes) -> bool:
    """Return True if a payload is a command whose parts agree with one another."""
    try:
        command = decode(payload)
    except MalformedRecord:
        return False
    if flaws(command) != (None, None):
        return False
    if isinstance(command, UpdateMessage):
        command = command.message
    if not isinstance(command, AddMessage):
        return True
    message_id = openwire.decode(command.data).message_id
    return message_id is not None and str(message_id) == command.message_id


def _next_record(data: Buffer, file_id: int, start: int, end: int) -> int | None:
    """Return where the next record that decodes begins."""
    position = start + 4
    while (match := _RECORD_PATTERN.search(data, position, end)) is not None:
        offset = match.start() - 4
        size = _record_size(data, offset, end)
        if size and _length_fits(data, offset, size) and _record(data, file_id, offset, size, 0) is not None:
            return offset
        position = match.start() + 1
    return None


def _length_fits(data: Buffer, offset: int, size: int) -> bool:
    """Return True if a record's own length agrees with its command's: rules out nearly everything, at little cost."""
    command = offset + RECORD_HEADER_BYTES
    try:
        head = bytes(data[command + 1 : command + 1 + _VARINT_BYTES_MAX])
        length, behind = read_varint(head, 0)
    except (IndexError, BrokerError):
        return False
    return RECORD_HEADER_BYTES + 1 + behind + length == size


# ---------------------------------------------------------------- torn or changed


def _is_torn(data: Buffer, start: int, end: int) -> bool:
    """Return True if a last write that was cut short explains a stretch at the end of a file.

    What a write did not reach is as it was before: the EOF marker of the last write, then zeros, or the file's end. A
    batch that is all there, down to the EOF marker behind it, was changed later; and so was a beginning that is
    neither a control record, nor zeros, nor the one and behind it the others.
    """
    header = bytes(data[start : start + BATCH_HEADER_BYTES])
    if len(header) < BATCH_HEADER_BYTES:
        return BATCH_MAGIC.startswith(header[: len(BATCH_MAGIC)])
    magic, length, _ = BATCH_HEADER.unpack(header)
    if magic != BATCH_MAGIC:
        return not header.strip(b"\0") or _is_cut_in_header(data, start, end)
    first = start + BATCH_HEADER_BYTES
    declared = first + max(length, 0)
    for behind in (declared, *_chain_ends(data, first, end)):
        if behind > first and data[behind : behind + len(EOF_MARKER)] == EOF_MARKER:
            return _has_hole(data, start, behind)
    return True


def _is_cut_in_header(data: Buffer, start: int, end: int) -> bool:
    """Return True if a stretch is the first bytes of a control record, and from there on what was there before."""
    written = 0
    while data[start + written] == BATCH_MAGIC[written]:  # it ends: the caller has found a difference
        written += 1
    before = bytes(data[start + written : end]).removeprefix(EOF_MARKER[written:])
    return not before.strip(b"\0")


def _has_hole(data: Buffer, start: int, end: int) -> bool:
    """Return True if a whole sector of a stretch is zeros, as where a write never came."""
    first = -(-start // _SECTOR_BYTES) * _SECTOR_BYTES
    return any(bytes(data[at : at + _SECTOR_BYTES]) == _NO_SECTOR for at in range(first, end, _SECTOR_BYTES))
