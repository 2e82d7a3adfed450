"""The one table of where a message's fields stand in the form that is stored: their order, kinds and widths.

It is derived from the declarations in `commands`. Whatever reads, writes, cuts or searches stored bytes without
decoding all of them takes its offsets and structs from here:

- `message`: the full reader and writer
- `routing`, `prefix_cache`, `passed_brokers`, `arrivals` of an OpenWire connection: readers of what routing needs
- `template`, `rerouting`, the `stamp` of a store in a database: writers that leave most bytes as they are
- `spotting`: where the properties are
- `shapes`: where a structure ends
- `headers` of the columns that Spark reads: many messages at once

A nullable field is a flag, with the value behind it if the flag is set. Most messages lack most of theirs, so a run of
fields is first read as if all nullable ones in it were null: then it has a fixed width, and one struct reads it.

Source: OpenWire v11, loose and uncached.
"""

from collections.abc import Collection
from struct import Struct, calcsize
from typing import Final

from pybroker.broker.domain.openwire import ids
from pybroker.broker.domain.openwire.commands import ActiveMQBlobMessage, ActiveMQMessage, MessageAck, Response
from pybroker.broker.domain.openwire.marshal.layouts import LAYOUTS, Layout
from pybroker.broker.domain.openwire.marshal.schema import FieldKind

STORED_VERSION: Final = 11

LETTERS: Final = {
    FieldKind.BOOLEAN: "?",
    FieldKind.BYTE: "b",
    FieldKind.INT: "i",
    FieldKind.LONG: "q",
    FieldKind.STRING: "s",
    FieldKind.BYTES: "y",
    FieldKind.OBJECT: "o",
    FieldKind.ARRAY: "a",
    FieldKind.THROWABLE: "t",
}
"""One per kind of field; those of fixed width are also what `struct` calls them."""
WIDTHS: Final = {letter: calcsize(f">{letter}") for letter in "?biq"}


def packed(*formats: str) -> Struct:
    """Return the struct of formats that follow one another."""
    return Struct(">" + "".join(formats))


class FieldTable:
    """The fields of one structure in wire order.

    Attributes:
        fields: what they are, by name.
    """

    __slots__ = ("fields",)

    def __init__(self, layout: Layout) -> None:
        self.fields = dict(layout.fields_in(STORED_VERSION))

    def names(self, first: str, last: str = "") -> list[str]:
        """Return the names of a run of fields, by default of those from the first on."""
        names = list(self.fields)
        return names[names.index(first) : names.index(last) + 1 if last else None]

    def shape(self, first: str, last: str = "") -> str:
        """Return the kinds of a run of fields, one letter each."""
        return "".join(LETTERS[self.fields[name].kind] for name in self.names(first, last))

    def run(self, first: str, last: str = "", *, shown: Collection[str] | None = None) -> str:
        """Return the format of a run of fields of which the nullable ones are null.

        Args:
            first: where it begins.
            last: where it ends; by default with the structure.
            shown: the fields of fixed width that a reader wants to see, by default all. Null flags it always sees.
        """
        found = ""
        for name, letter in zip(self.names(first, last), self.shape(first, last), strict=True):
            if letter not in WIDTHS:
                found += "B"
            elif shown is None or name in shown:
                found += letter
            else:
                found += f"{WIDTHS[letter]}x"
        return found


MESSAGE: Final = FieldTable(LAYOUTS[ActiveMQMessage.DATA_TYPE])
BLOB: Final = FieldTable(LAYOUTS[ActiveMQBlobMessage.DATA_TYPE])
MESSAGE_ID: Final = FieldTable(LAYOUTS[ids.MESSAGE_ID])
ACK: Final = FieldTable(LAYOUTS[MessageAck.DATA_TYPE])
RESPONSE: Final = FieldTable(LAYOUTS[Response.DATA_TYPE])

FIRST_TYPE: Final = ActiveMQMessage.DATA_TYPE
"""The lowest data type of a message."""
BLOB_TYPE: Final = ActiveMQBlobMessage.DATA_TYPE
"""The highest data type of a message."""

HEAD: Final = packed("B", MESSAGE.run("command_id", "response_required"))
"""The first fields of every command and message: its data type, and the fields of the connection."""
BODY_AT: Final = HEAD.size
"""The offset behind these fields, at which a message's producer id or an acknowledgement's destination begins."""

_SEQUENCES = MESSAGE_ID.run("producer_sequence_id")
SEQUENCES: Final = packed(_SEQUENCES)
"""The last fields of a message id: the sequence numbers of the producer and of the broker."""

HEADERS: Final = packed(MESSAGE.run("original_transaction_id", "jms_type"))
"""The fields between the message id and the content."""
DELIVERY: Final = packed(MESSAGE.run("persistent", "priority"))
MIDDLE: Final = packed(_SEQUENCES, MESSAGE.run("original_transaction_id", "content"), "i")
"""The fields from the sequence numbers to the content's length, for a message that has content."""
BROKER_FIELDS: Final = packed(MESSAGE.run("data_structure"))
"""The fields behind the properties, which only brokers set or use."""
BROKER_FLAGS: Final = packed(MESSAGE.run("data_structure", shown=()))
"""The null flags among them."""
NO_BROKER_FIELDS: Final = (0,) * MESSAGE.run("data_structure", shown=()).count("B")
"""The values of these flags in nearly all messages."""
BROKER_IN_FROM_END: Final = packed(MESSAGE.run("broker_in_time")).size
"""The offset of a message's time of arrival, counted from the end; not for blob messages."""
