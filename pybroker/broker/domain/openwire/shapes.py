"""The shape of every v11 structure, field kinds only: enough to find the end of one without understanding it.

A loose structure carries no length. A message may nest any other one (`dataStructure`: the subject of an advisory),
which the broker keeps as bytes; to do so it has to know where it ends.

Source: OpenWire v11, as `commands` declares it. One letter per field, see `layout`:

```text
? boolean   b byte   i int   q long   s string   y byte sequence   o object   a object array   t throwable
```
"""

from typing import Final

from pybroker.broker.domain.openwire.commands import (
    DiscoveryEvent,
    JournalQueueAck,
    JournalTopicAck,
    JournalTrace,
    JournalTransaction,
    LastPartialCommand,
    PartialCommand,
    WireFormatInfo,
)
from pybroker.broker.domain.openwire.layout import LETTERS, STORED_VERSION, WIDTHS
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS

_NEVER_NESTED = (
    WireFormatInfo,
    DiscoveryEvent,
    JournalTopicAck,
    JournalQueueAck,
    JournalTrace,
    JournalTransaction,
    PartialCommand,
    LastPartialCommand,
)
"""Data types that no message contains."""

SHAPES: Final = {
    data_type: "".join(LETTERS[spec.kind] for _, spec in layout.fields_in(STORED_VERSION))
    for data_type, layout in LAYOUTS.items()
    if layout.since <= STORED_VERSION and not set(layout.types) & set(_NEVER_NESTED)
}
"""The shapes by data type."""

NESTING_MAX: Final = 16
"""Structures inside one another. An advisory about a message in a transaction takes five."""

_STACK_FRAME = "sssi"


def read_structure(reader: Reader) -> bytes | None:
    """Read a nullable structure of any type as bytes, from its data type on.

    Raises:
        MalformedOpenWire: its type is unknown, it is cut short, or nested too deep.
    """
    if not reader.boolean():
        return None
    start = reader.offset
    skip_structure(reader)
    return reader.data[start : reader.offset]


def skip_structure(reader: Reader, levels: int = NESTING_MAX) -> None:
    """Pass over a structure that starts at its data type. Raises `MalformedOpenWire` as `read_structure` does."""
    if levels == 0:
        raise MalformedOpenWire(f"structures nested more than {NESTING_MAX} deep")
    data_type = reader.unsigned_byte()
    shape = SHAPES.get(data_type)
    if shape is None:
        raise MalformedOpenWire(f"unknown data type {data_type} at offset {reader.offset - 1}")
    skip_fields(reader, shape, levels)


def skip_fields(reader: Reader, shape: str, levels: int = NESTING_MAX) -> None:
    """Pass over fields of these kinds. Raises `MalformedOpenWire` as `read_structure` does."""
    for kind in shape:
        width = WIDTHS.get(kind)
        if width is not None:
            reader.take(width)
        elif reader.boolean():
            _skip_present(reader, kind, levels)


def _skip_present(reader: Reader, kind: str, levels: int) -> None:
    match kind:
        case "s":
            reader.take(reader.unsigned_short())
        case "y":
            reader.take(reader.integer())
        case "o":
            skip_structure(reader, levels - 1)
        case "a":
            # Java counts with a signed short; a negative count cannot be.
            for _ in range(_count(reader)):
                if reader.boolean():
                    skip_structure(reader, levels - 1)
        case _:
            _skip_throwable(reader, levels)


def _skip_throwable(reader: Reader, levels: int) -> None:
    while True:
        skip_fields(reader, "ss", levels)
        for _ in range(_count(reader)):
            skip_fields(reader, _STACK_FRAME, levels)
        if not reader.boolean():
            return


def _count(reader: Reader) -> int:
    count = reader.short()
    if count < 0:
        raise MalformedOpenWire(f"an array of {count} elements")
    return count
