"""Where the commands' own fields lie, for many records at once: the usual shapes of the commands a journal is full of.

```text
add     | transaction 0A? | destination 12 | message id 1A | message 22 | priority 28? | supported 30? |
remove  | transaction 0A? | destination 12 | message id 1A | ack 22?    | subscription 2A?             |
prepare, commit, rollback | transaction 0A |
```

Other commands, and these in another shape, are odd: for `rows`. See `journal.commands` for what the fields say.
"""

from dataclasses import dataclass

import numpy as np

from pybroker.store.columns.chunks import Bytes, Longs
from pybroker.store.columns.lanes import Flags, Lanes, Window
from pybroker.store.columns.texts import Places
from pybroker.store.journal.commands import CommandType
from pybroker.store.journal.format import RECORD_HEADER_BYTES
from pybroker.store.journal.protobuf import SIZE_PREFIX

_DESTINATION_HEAD_BYTES = 4
"""Of a destination, what is not its name: `08 type 12 length`."""
_DESTINATION_TYPES = 4
_LONG_VARINT = 0x80
"""From here on a varint has more than one byte."""
_ENDINGS = (CommandType.PREPARE, CommandType.COMMIT, CommandType.ROLLBACK)


@dataclass(slots=True, eq=False)
class Fields:
    """Where the fields of records lie, per record.

    Attributes:
        kind: command type.
        odd: not of a usual shape; nothing else counts then.
        is_add: it stores a message.
        transaction: the field with its tag, so the whole of a commit's fields.
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
    destination_type: Bytes
    destination: Places
    message_id: Places
    subscription: Places
    message: Places
    ack: Places

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.kind)


def locate(window: Window, records: Longs, ends: Longs) -> Fields:
    """Return where the fields of these records lie."""
    # One straight walk through the three shapes: cut into smaller functions it would pass a dozen arrays around.
    raw = window.bytes_
    empty = ends - records <= RECORD_HEADER_BYTES + 1
    kind = raw[records + RECORD_HEADER_BYTES]
    is_add = np.equal(kind, CommandType.ADD_MESSAGE)
    is_remove = np.equal(kind, CommandType.REMOVE_MESSAGE)
    moves = is_add | is_remove
    lanes = Lanes(window, np.minimum(records + RECORD_HEADER_BYTES + 1, ends), ends)
    lanes.require(~empty & (moves | np.isin(kind, _ENDINGS)))
    length = lanes.varint()
    lanes.require(lanes.at + length == ends)

    transaction_begin = lanes.at
    transacted = lanes.optional(0x0A)
    lanes.run(lanes.varint(transacted))
    transaction = Places(transaction_begin, lanes.at, transacted)
    lanes.require(transacted | moves)

    destination_type, destination = _destination(window, lanes, moves)

    lanes.require(lanes.optional(0x1A) == moves)
    message_id = Places(*lanes.run(lanes.varint(moves)), moves)

    has_object = lanes.optional(0x22)
    lanes.require(has_object | ~is_add)
    lanes.require(~has_object | moves)
    length = lanes.varint(has_object)
    prefix = window.ints(lanes.at)
    begin, end = lanes.run(length)
    is_empty = has_object & is_remove & (length == 0)
    lanes.require(~has_object | is_empty | ((length >= SIZE_PREFIX.size) & (prefix == length - SIZE_PREFIX.size)))
    begin = np.minimum(begin + SIZE_PREFIX.size, end)

    for tag in (0x28, 0x30):
        has_number = lanes.optional(tag)
        lanes.require(~has_number | is_add)
        lanes.varint(has_number)
    subscribed = lanes.optional(0x2A)
    lanes.require(~subscribed | is_remove)
    subscription = Places(*lanes.run(lanes.varint(subscribed)), subscribed)
    lanes.require_end()

    sound = ~lanes.odd
    return Fields(
        kind,
        lanes.odd,
        is_add & sound,
        transaction.only(sound),
        destination_type,
        destination.only(sound),
        message_id.only(sound),
        subscription.only(sound),
        Places(begin, end, has_object & is_add & sound),
        Places(begin, end, has_object & is_remove & sound),
    )


def _destination(window: Window, lanes: Lanes, where: Flags) -> tuple[Bytes, Places]:
    """Take a destination from the lanes that must have one; return its type and its name."""
    lanes.require(lanes.optional(0x12) == where)
    length = lanes.varint(where)
    begin, end = lanes.run(length)
    raw, kind = window.bytes_, window.bytes_[begin + 1]
    name_bytes = length - _DESTINATION_HEAD_BYTES
    fits = (name_bytes >= 0) & (name_bytes < _LONG_VARINT) & (raw[begin + 3] == name_bytes)
    lanes.require(~where | fits & (raw[begin] == 0x08) & (kind < _DESTINATION_TYPES) & (raw[begin + 2] == 0x12))
    return kind, Places(np.minimum(begin + _DESTINATION_HEAD_BYTES, end), end, where)
