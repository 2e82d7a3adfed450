"""The lean path of a replay: runs of `AddMessage` records, which are most of a journal, go straight into the state.

Of a message the state keeps only its id, location and size, so no payload, no message and no
command is made here: the bytes are looked at in place. Adds that follow one another are mostly for the same queue, and
then begin with the same bytes; comparing them takes a tenth of the time that decoding takes.

```text
u8 1 | length | 12 n destination | 1A | n message id | 22 | length | size, message | 28 priority | 30 supported
              `------ head ----------´               `------- as in `commands.usual_add` --------------------´
```

What is not in the usual shape, or damaged, or is another command, ends the run, and is for `commands.decode`.
"""

from struct import Struct
from struct import error as StructError

from pybroker.broker.domain.destination import Destination
from pybroker.store.journal.commands import CommandType, UsualAdd, destination_field, usual_add
from pybroker.store.journal.contents import FILE_SHIFT, OFFSET_SHIFT, SIZE_SHIFT, PriorityClass, pack_priority
from pybroker.store.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES
from pybroker.store.journal.malformed import MalformedRecord
from pybroker.store.journal.protobuf import SIZE_PREFIX, read_varint
from pybroker.store.journal.state import StoreState

_ADD_MESSAGE = int(CommandType.ADD_MESSAGE)
_USUAL_END = b"\x28\x04\x30\x00"
"""Priority 4, which the store does not mind."""
_DEFAULT = int(PriorityClass.DEFAULT)
_header_at = RECORD_HEADER.unpack_from
_record_at = Struct(">iBBBB").unpack_from
"""Header, command type, and as much of the length as nearly all have."""
_RECORD_AT_BYTES = 8
_size_at = SIZE_PREFIX.unpack_from


def apply_adds(state: StoreState, data: bytes, offset: int, end: int, place: int) -> tuple[int, int]:
    """Apply the adds in the usual shape with which a stretch of records begins.

    Args:
        state: what they are applied to.
        data: bytes of a data file.
        offset: where in them the first record begins.
        end: where in them the last one ends.
        place: packed location of the bytes' beginning.

    Returns:
        Where in `data` the first record begins that was not applied, and how many were.
    """
    count = 0
    while offset < end:
        size, _ = _header_at(data, offset)
        found = _usual_add(data, offset + RECORD_HEADER_BYTES, offset + size)
        if found is None:
            break
        destination, message_id, _, length, priority, supported = found
        order = pack_priority(priority, supported != 0)
        state.add(destination, message_id, place + (offset << OFFSET_SHIFT | length << SIZE_SHIFT | order))
        offset += size
        count += 1
        if destination.is_queue and offset < end:
            offset, more = _apply_alike(state, data, offset, end, place, destination)
            count += more
    return offset, count


def _usual_add(data: bytes, start: int, end: int) -> UsualAdd | None:
    """Return a record's fields if it is an add in the usual shape."""
    try:
        if data[start] != _ADD_MESSAGE:
            return None
        length, position = read_varint(data, start + 1)
        return usual_add(data, position, end) if position + length == end else None
    except (IndexError, UnicodeDecodeError, MalformedRecord):
        return None


def _apply_alike(
    state: StoreState, data: bytes, offset: int, end: int, place: int, queue: Destination
) -> tuple[int, int]:
    """Apply adds as long as they are for the same queue, of priority 4, and new; return as `apply_adds` does."""
    # One loop without calls: this is where a cold start spends its time.
    head = destination_field(queue) + b"\x1a"
    head_bytes = len(head)
    messages = state.queue_messages(queue)
    record = state.sequences.record
    file_id = place >> FILE_SHIFT
    count = 0
    try:
        while offset < end:
            size, _, kind, length, high = _record_at(data, offset)
            record_end = offset + size
            position = offset + _RECORD_AT_BYTES
            if length < 0x80:
                position -= 1
            elif high < 0x80:  # nearly always: a length of two bytes
                length += (high << 7) - 0x80
            else:
                length, position = read_varint(data, position - 2)
            if (
                position + length != record_end
                or kind != _ADD_MESSAGE
                or not data.startswith(head, position)
                or not data.startswith(_USUAL_END, record_end - len(_USUAL_END))
            ):
                break
            position += head_bytes + 1
            text_end = position + data[position - 1]
            if data[position - 1] >= 0x80 or data[text_end] != 0x22:
                break
            message_id = data[position:text_end].decode()
            position = text_end + 2
            length = data[position - 1]
            if length >= 0x80:
                high = data[position]
                if high < 0x80:
                    length += (high << 7) - 0x80
                    position += 1
                else:
                    length, position = read_varint(data, position - 1)
            if position + length + len(_USUAL_END) != record_end or message_id in messages:
                break
            length -= SIZE_PREFIX.size
            if length < 0 or _size_at(data, position)[0] != length:
                break
            messages[message_id] = place + (offset << OFFSET_SHIFT | length << SIZE_SHIFT | _DEFAULT)
            record(message_id, file_id)
            count += 1
            offset = record_end
    except (IndexError, UnicodeDecodeError, StructError):
        pass  # It is damaged; `decode` reports how.
    if count:
        state.usage.acquire(file_id, count)
    return offset, count
