"""Reads stored messages back from their locations in the journal, a page or a whole store at a time.

Dispatch order is nearly journal order, so one read of the disk gives some hundred messages. A reader is short-lived: it
keeps the bytes it has read, and does not see later writes behind them. Nothing is changed on disk.

A message that cannot be read, or was changed on disk, is left out and reported in `damages`; a file that cannot be
opened is an error, because its messages may be intact.
"""

import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from pybroker import regular
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import JournalCorrupt, MalformedData
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.prefix_cache import PrefixCache
from pybroker.store.journal.commands import AddMessage, CommandType, UpdateMessage, decode
from pybroker.store.journal.contents import Entry
from pybroker.store.journal.format import (
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    USER_RECORD,
    Location,
    data_file_name,
)
from pybroker.store.journal.protobuf import SIZE_PREFIX, varint
from pybroker.store.journal.reader import Damage, unavailable
from pybroker.store.journal.state import StoreState

Place = tuple[str, int, int, int]
"""The location of a stored message: its id, the number of its data file, the record's offset, the message's size."""

Elsewhere = Callable[[Place], Message | None]

OPEN_FILES_MAX = 16
"""Most data files kept open: dispatch order goes through them one after another, per priority class."""
READ_AHEAD_BYTES = 256 * 1024
"""Bytes fetched by one read: some hundred messages of a kilobyte for one seek."""

EXACT_BYTES_MIN = 1 << 20
"""The length from which a message is read into memory of its own: cut out of what was read ahead it would be copied."""

_ADD_MESSAGE = int(CommandType.ADD_MESSAGE)
_AFTER_MESSAGE_BYTES = 4
_header_at = RECORD_HEADER.unpack_from
_size_at = SIZE_PREFIX.unpack_from

_LOST = frozenset({errno.EIO, errno.EBADMSG, errno.ENODATA, errno.EUCLEAN})
"""Errors of a disk that cannot read a sector. A retry does not help, and the next sector may be sound."""


class BodyReader(AbstractContextManager["BodyReader"]):
    """Reads stored messages back.

    Attributes:
        damages: the messages that were left out.
    """

    def __init__(
        self, directory: Path, *, read_ahead: int = READ_AHEAD_BYTES, elsewhere: Elsewhere | None = None
    ) -> None:
        """Prepare to read data files of that directory; none is opened before it is needed.

        Args:
            directory: the journal.
            read_ahead: smallest number of bytes that one read fetches.
            elsewhere: returns a damaged message from elsewhere, or None.
        """
        self.damages: list[Damage] = []
        self._directory = directory
        self._read_ahead = read_ahead
        self._elsewhere = elsewhere
        self._descriptors: OrderedDict[int, int] = OrderedDict()
        self._prefix_cache = PrefixCache()
        self._window = b""
        self._window_file_id = self._window_offset = 0

    def messages(
        self, state: StoreState, destination: Destination, subscription_key: str | None = None
    ) -> Iterator[Message]:
        """Yield a destination's messages in dispatch order, also those whose acknowledgement is prepared.

        Raises:
            StoreUnavailable: a data file cannot be read.
        """
        return self.bodies(state.entries(destination, subscription_key, include_hidden=True))

    def bodies(self, entries: Iterable[Entry]) -> Iterator[Message]:
        """Yield messages; one that cannot be read back is left out and reported in `damages`.

        Raises:
            StoreUnavailable: a data file cannot be read.
        """
        return self.page((each.message_id, each.location.file_id, each.location.offset, each.size) for each in entries)

    def page(self, places: Iterable[Place]) -> Iterator[Message]:
        """Yield messages as `bodies` does, by id, file id, offset and size: this runs for every message paged in.

        Raises:
            StoreUnavailable: a data file cannot be read.
        """
        for message_id, file_id, offset, size in places:
            try:
                message = self._message(message_id, file_id, offset, size)
            except JournalCorrupt as error:
                found = None if self._elsewhere is None else self._elsewhere((message_id, file_id, offset, size))
                if found is not None:
                    yield found
                    continue
                self.damages.append(Damage(file_id, offset, size, f"message {message_id}: {error}"))
            else:
                yield message

    def message(self, entry: Entry) -> Message:
        """Return one message.

        Raises:
            JournalCorrupt: its record is gone, or is not a message.
            StoreUnavailable: its data file cannot be read.
        """
        return self._message(entry.message_id, *entry.location, entry.size)

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

    def _message(self, message_id: str, file_id: int, offset: int, size: int) -> Message:
        data = self._exact_data(message_id, file_id, offset, size) if size >= EXACT_BYTES_MIN else None
        try:
            if data is None:
                start, end = self._record(file_id, offset)
                data = _usual_data(self._window, start, end, message_id.encode(), size)
                if data is None:
                    data = self._unusual_data(start, end, message_id, Location(file_id, offset))
            return self._prefix_cache.route(data, message_id)
        except MalformedData as error:
            raise self._corrupt(f"a message does not decode: {error}", Location(file_id, offset)) from error

    def _exact_data(self, message_id: str, file_id: int, offset: int, size: int) -> bytes | None:
        """Return a large message's marshalled bytes, read from an `AddMessage` of the usual shape; else None."""
        head = self._read(Location(file_id, offset), self._read_ahead)
        if len(head) < RECORD_HEADER_BYTES:
            return None
        length, kind = _header_at(head, 0)
        begin = length - _AFTER_MESSAGE_BYTES - size
        if kind != USER_RECORD or not _has_usual_head(head, 0, begin, message_id.encode(), size):
            return None
        end = self._read(Location(file_id, offset + begin + size), _AFTER_MESSAGE_BYTES, read_ahead=0)
        if not _has_usual_end(end, 0):
            return None
        data = self._read(Location(file_id, offset + begin), size, read_ahead=0)
        return data if len(data) == size else None

    def _unusual_data(self, start: int, end: int, message_id: str, location: Location) -> bytes:
        """Return a message's marshalled bytes from its record in the window."""
        command = decode(self._window[start + RECORD_HEADER_BYTES : end])
        if isinstance(command, UpdateMessage):
            command = command.message
        if isinstance(command, AddMessage) and command.message_id == message_id:
            return command.data
        raise self._corrupt("another record where a message should be", location)

    def _record(self, file_id: int, offset: int) -> tuple[int, int]:
        """Load a record into the window; return its bounds there."""
        start = offset - self._window_offset
        window = self._window
        if file_id != self._window_file_id or start < 0 or start + RECORD_HEADER_BYTES > len(window):
            start, window = self._load(Location(file_id, offset), RECORD_HEADER_BYTES)
        if start + RECORD_HEADER_BYTES <= len(window):
            size, kind = _header_at(window, start)
            if kind == USER_RECORD and size > RECORD_HEADER_BYTES:
                if start + size > len(window):
                    start, window = self._load(Location(file_id, offset), size)
                if start + size <= len(window):
                    return start, start + size
        raise self._corrupt("no record where a message should be", Location(file_id, offset))

    def _load(self, location: Location, length: int) -> tuple[int, bytes]:
        """Load that many bytes from a location on into the window, or fewer where the file ends."""
        self._window = self._read(location, length)
        self._window_file_id, self._window_offset = location
        return 0, self._window

    def _read(self, location: Location, length: int, *, read_ahead: int | None = None) -> bytes:
        """Read ahead from a location on; only the bytes needed if the disk cannot read further ones."""
        ahead = self._read_ahead if read_ahead is None else read_ahead
        path = self._directory / data_file_name(location.file_id)
        try:
            descriptor = self._descriptor(location.file_id, path)
            try:
                return os.pread(descriptor, max(length, ahead), location.offset)
            except OSError as error:
                if error.errno not in _LOST:
                    raise
            return os.pread(descriptor, length, location.offset)
        except OSError as error:
            if error.errno in _LOST:
                raise self._corrupt(f"the disk does not give it back: {error.strerror}", location) from error
            raise unavailable(path, error) from error

    def _descriptor(self, file_id: int, path: Path) -> int:
        descriptor = self._descriptors.get(file_id)
        if descriptor is None:
            if len(self._descriptors) >= OPEN_FILES_MAX:
                os.close(self._descriptors.popitem(last=False)[1])
            descriptor = self._descriptors[file_id] = regular.descriptor(path)
        return descriptor

    def _corrupt(self, message: str, location: Location) -> JournalCorrupt:
        return JournalCorrupt(
            message,
            path=str(self._directory / data_file_name(location.file_id)),
            offset=location.offset,
            hint="the file was changed by someone else, or the disk is failing: check it, and restore a copy",
        )


def _usual_data(window: bytes, start: int, end: int, message_id: bytes, size: int) -> bytes | None:
    """Return a message's marshalled bytes, cut out of an `AddMessage` of the usual shape; else None.

    The size in the state gives every offset from the record's end, so hardly anything is decoded:

    ```text
    header | u8 1 | … | 1A n message id | 22 length | size | message | 28 priority | 30 supported
                                                     `- 4 -'`- size -'`---------- 4 -----------'
    ```
    """
    stop = end - _AFTER_MESSAGE_BYTES
    begin = stop - size
    if _has_usual_head(window, start, begin, message_id, size) and _has_usual_end(window, stop):
        return window[begin:stop]
    return None


def _has_usual_end(window: bytes, stop: int) -> bool:
    """Return True if an `AddMessage` ends in the usual shape behind its message."""
    return len(window) > stop + 2 and window[stop] == 0x28 and window[stop + 2] == 0x30


def _has_usual_head(window: bytes, start: int, begin: int, message_id: bytes, size: int) -> bool:
    """Return True if an `AddMessage` from `start` on is in the usual shape up to its message, which begins there."""
    length = size + SIZE_PREFIX.size
    id_end = begin - SIZE_PREFIX.size - 1 - (2 if 0x80 <= length < 0x4000 else len(varint(length)))
    id_start = id_end - len(message_id)
    return (
        id_start - 2 > start + RECORD_HEADER_BYTES
        and begin <= len(window)
        and window[start + RECORD_HEADER_BYTES] == _ADD_MESSAGE
        and window[id_end] == 0x22
        and window[id_start - 2] == 0x1A
        and window[id_start:id_end] == message_id
        and _size_at(window, begin - SIZE_PREFIX.size)[0] == size
    )
