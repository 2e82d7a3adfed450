"""Finds the commands' fields in many records at once, for the usual shapes of frequent commands.

```text
add     | transaction 0A? | destination 12 | message id 1A | message 22 | priority 28? | supported 30? |
remove  | transaction 0A? | destination 12 | message id 1A | ack 22?    | subscription 2A?             |
prepare, commit, rollback | transaction 0A |
trace   | text 0A?        |
```

Other commands, and these in another shape, are odd: for `rows`. See `journal.commands` for the fields' meaning.
"""

from dataclasses import dataclass

import numpy as np

from pybroker.store.columns.chunks import Bytes, Longs
from pybroker.store.columns.lanes import Flags, Lanes, Window
from pybroker.store.columns.texts import Places
from pybroker.store.journal.commands import CommandType
from pybroker.store.journal.format import RECORD_HEADER_BYTES
from pybroker.store.journal.protobuf import SIZE_PREFIX

_HEAD_BYTES = 4
"""Bytes of a destination before its name: `08 type 12 length`."""
_DESTINATION_TYPES = 4
_LONG_VARINT = 0x80
"""The first value whose varint has more than one byte."""
# As plain numbers: numpy converts an enumeration's member more slowly.
_TRACE, _ADD, _REMOVE = (int(kind) for kind in (CommandType.TRACE, CommandType.ADD_MESSAGE, CommandType.REMOVE_MESSAGE))
_ENDINGS = (CommandType.PREPARE, CommandType.COMMIT, CommandType.ROLLBACK)
_IS_USUAL = np.isin(np.arange(256), (_TRACE, _ADD, _REMOVE, *_ENDINGS))
"""Per command type."""


@dataclass(slots=True, eq=False)
class FieldPlaces:
    """Places of the fields of records, per record.

    Attributes:
        kind: command type.
        odd: of an unusual shape; all other fields are undefined then.
        is_add: it stores a message.
        transaction: the field with its tag, so the whole of a commit's fields.
        trace: a trace's text.
        destination_type: KahaDB's number.
        destination: its name.
        message_id: as text.
        subscription: its key.
        message: the message, from its data type on.
        ack: the acknowledgement, from its data type on; a recorded one may be empty.
    """

    kind: Bytes
    odd: Flags
    is_add: Flags
    transaction: Places
    trace: Places
    destination_type: Bytes
    destination: Places
    message_id: Places
    subscription: Places
    message: Places
    ack: Places

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.kind)


def locate(window: Window, records: Longs, ends: Longs) -> FieldPlaces:
    """Return the places of these records' fields."""
    # One straight walk through the three shapes: cut into smaller functions it would pass a dozen arrays around.
    raw = window.bytes_
    payloads = records + RECORD_HEADER_BYTES
    kind = raw[payloads]
    is_add = kind == _ADD
    is_remove = kind == _REMOVE
    is_trace = kind == _TRACE
    moves = is_add | is_remove
    lanes = Lanes(window, np.minimum(payloads + 1, ends), ends)
    lanes.require((lanes.at < ends) & _IS_USUAL[kind])
    length = lanes.varint()
    lanes.require(lanes.at + length == ends)

    transaction_begin = lanes.at
    has_first, length = lanes.tagged(0x0A)
    trace = Places(*lanes.run(length), has_first & is_trace)
    transaction = Places(transaction_begin, lanes.at, has_first & ~is_trace)
    lanes.require(has_first | moves | is_trace)

    destination_type, destination = _destination(window, lanes, moves)

    has_id, length = lanes.tagged(0x1A)
    lanes.require(has_id == moves)
    message_id = Places(*lanes.run(length), moves)

    has_object, length = lanes.tagged(0x22)
    lanes.require(has_object | ~is_add)
    lanes.require(~has_object | moves)
    prefix = window.ints(lanes.at)
    begin, end = lanes.run(length)
    is_empty = has_object & is_remove & (length == 0)
    lanes.require(~has_object | is_empty | ((length >= SIZE_PREFIX.size) & (prefix == length - SIZE_PREFIX.size)))
    begin = np.minimum(begin + SIZE_PREFIX.size, end)

    for tag in (0x28, 0x30):
        has_number, _ = lanes.tagged(tag)
        lanes.require(~has_number | is_add)
    subscribed, length = lanes.tagged(0x2A)
    lanes.require(~subscribed | is_remove)
    subscription = Places(*lanes.run(length), subscribed)
    lanes.require_end()

    sound = ~lanes.odd
    return FieldPlaces(
        kind,
        lanes.odd,
        is_add & sound,
        transaction.only(sound),
        trace.only(sound),
        destination_type,
        destination.only(sound),
        message_id.only(sound),
        subscription.only(sound),
        Places(begin, end, has_object & is_add & sound),
        Places(begin, end, has_object & is_remove & sound),
    )


def _destination(window: Window, lanes: Lanes, where: Flags) -> tuple[Bytes, Places]:
    """Take a destination from the lanes that must have one; return its type and its name."""
    found, length = lanes.tagged(0x12)
    lanes.require(found == where)
    begin, end = lanes.run(length)
    raw, kind = window.bytes_, window.bytes_[begin + 1]
    name_bytes = length - _HEAD_BYTES
    fits = (name_bytes >= 0) & (name_bytes < _LONG_VARINT) & (raw[begin + 3] == name_bytes)
    fits &= (raw[begin] == 0x08) & (kind < _DESTINATION_TYPES) & (raw[begin + 2] == 0x12)
    lanes.require(~where | fits)
    return kind, Places(np.minimum(begin + _HEAD_BYTES, end), end, where)
