"""The `xid` column: what of a row waits for the outcome of a prepared transaction. Pure.

Base64 of:

```text
+------+----------+----------+-----------+---------------+-----------+------------------+
| mark | sequence | priority | format id | global length | global id | branch qualifier |
| u8   | i64      | u8       | i32       | i16           |           | (the rest)       |
+------+----------+----------+-----------+---------------+-----------+------------------+
```

The mark is `+` on a message that the transaction sent, `-` on one that it consumed, and 0 on a durable subscription
that it acknowledged for. Only there sequence and priority mean something: the `last_acked_id` to set at the commit, and
in which row.

Source: ActiveMQ 5.17, `JDBCPersistenceAdapter`, `TransactionContext`.
"""

import binascii
from base64 import b64decode, b64encode
from enum import Enum
from struct import Struct
from typing import NamedTuple

from pybroker.broker.domain.errors import MalformedData, ResourceLimit
from pybroker.broker.domain.transaction import XATransactionId

TEXT_LENGTH_MAX = 250
"""Length of the column, in characters."""
SENT_PREFIX = "K"
"""Prefix of the column on a message that was sent: Base64 of a `+`."""

_HEAD = Struct(">cqBih")


class MarkKind(Enum):
    """Operations of a transaction; the values are the column's first byte."""

    SENT = b"+"
    CONSUMED = b"-"
    ACKNOWLEDGED = b"\0"


class MalformedXid(MalformedData):
    """A column that no ActiveMQ has written."""


class Mark(NamedTuple):
    """A column's meaning.

    Attributes:
        transaction: the branch.
        kind: what it did.
        sequence: of a durable subscription: the last acknowledged id from the commit on; else 0.
        priority: and the priority of the subscription's row.
    """

    transaction: XATransactionId
    kind: MarkKind
    sequence: int = 0
    priority: int = 0


def encode(mark: Mark) -> str:
    """Return the column's text.

    Raises:
        ResourceLimit: the transaction's ids are too long for the column.
    """
    format_id, global_id, branch = mark.transaction
    if len(global_id) + len(branch) > TEXT_LENGTH_MAX // 4 * 3 - _HEAD.size:
        raise ResourceLimit(
            "the transaction's ids are longer than the database's tables allow: use at most 64 bytes each"
        )
    head = _HEAD.pack(mark.kind.value, mark.sequence, mark.priority, format_id, len(global_id))
    return b64encode(head + global_id + branch).decode()


def key_of(transaction: XATransactionId) -> str:
    """Return what our own tables name a transaction by: what ActiveMQ's put on a message that it consumed.

    Raises:
        ResourceLimit: as `encode`.
    """
    return encode(Mark(transaction, MarkKind.CONSUMED))


def decode(text: str) -> Mark:
    """Return the column's meaning.

    Raises:
        MalformedXid: it has none.
    """
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedXid(f"no Base64: {text!r}") from error
    if len(data) < _HEAD.size:
        raise MalformedXid(f"{len(data)} bytes where {_HEAD.size} belong at least")
    kind, sequence, priority, format_id, length = _HEAD.unpack_from(data)
    if not 0 <= length <= len(data) - _HEAD.size:
        raise MalformedXid(f"a global id of {length} bytes in {len(data)}")
    middle = _HEAD.size + length
    transaction = XATransactionId(format_id, data[_HEAD.size : middle], data[middle:])
    try:
        return Mark(transaction, MarkKind(kind), sequence, priority)
    except ValueError as error:
        raise MalformedXid(f"begins with {kind!r}") from error
