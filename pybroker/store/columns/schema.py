"""The columns of the table that a KahaDB journal is read as: names, types, and meanings.

One row per user record of the journal, in the order in which they lie there. A column's layer is the part that must be
decoded for it. Columns that no query requests are neither decoded nor checked.

| layer      | what is read                                             | what it costs                      |
|------------|----------------------------------------------------------|------------------------------------|
| PLACE      | batch control records and record headers                 | next to nothing                    |
| RECORD     | the command's own fields: destination, message id, …     | little                             |
| ACK        | the consumer's acknowledgement inside a removal          | little                             |
| MESSAGE    | the message's headers                                    | about as much as all of the above  |
| PROPERTIES | its properties                                           | as much again                      |
| BODY       | its content, uncompressed, as text or bytes              | depends on its size                |
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa


class Layer(IntEnum):
    """The part of a record that has to be decoded for a column."""

    PLACE = 0
    RECORD = 1
    ACK = 2
    MESSAGE = 3
    PROPERTIES = 4
    BODY = 5


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: as in SQL.
        type: its Arrow type; every column may be null.
        layer: the part that must be decoded for it.
        meaning: its meaning, with units, in one sentence or two.
        on_request: left out unless it is named.
    """

    name: str
    type: pa.DataType
    layer: Layer
    meaning: str
    on_request: bool = False

    @property
    def field(self) -> pa.Field:
        """The column as Arrow has it."""
        return pa.field(self.name, self.type)


INSTANT: Final = pa.timestamp("us", "UTC")
"""The type of all times: Spark has no other. The journal's own times are whole milliseconds."""
TEXTS: Final = pa.map_(pa.string(), pa.string())

JOB: Final = pa.struct(
    [
        pa.field("scheduler", pa.string()),
        pa.field("id", pa.string()),
        pa.field("start", INSTANT),
        pa.field("end", INSTANT),
        pa.field("execution", INSTANT),
        pa.field("next_execution", INSTANT),
        pa.field("cron", pa.string()),
        pa.field("delay_ms", pa.int64()),
        pa.field("period_ms", pa.int64()),
        pa.field("repeat", pa.int32()),
        pa.field("count", pa.int32()),
    ]
)
"""Fields of the records of a scheduler's journal; which of them a record has depends on the command."""

_TEXT = pa.string()
_INT = pa.int32()
_LONG = pa.int64()
_BOOL = pa.bool_()
_BYTES = pa.binary()

COLUMNS: Final = (
    # ---- where it lies
    Column("directory", _TEXT, Layer.PLACE, "The directory that was read, as it was given."),
    Column("file", _INT, Layer.PLACE, "Id of the data file: 7 for `db-7.log`."),
    Column("offset", _LONG, Layer.PLACE, "Where in the file the record's header begins, in bytes."),
    Column("position", _LONG, Layer.PLACE, "`file * 2^32 + offset`: order by it, never by a time."),
    Column("batch", _LONG, Layer.PLACE, "Offset of the batch's control record: what was written at once has one."),
    Column("size", _LONG, Layer.PLACE, "Bytes of the record with its header; of damage, how many were skipped."),
    Column("checksum", _TEXT, Layer.PLACE, "Of the batch: `ok`, `none` (it has none), `bad`."),
    # ---- what it is
    Column(
        "record_type",
        _TEXT,
        Layer.RECORD,
        "The command: `add_message`, `remove_message` (an acknowledgement), `commit`, …; `unknown` for one that this"
        " version does not know, null for damage.",
    ),
    Column(
        "time",
        INSTANT,
        Layer.RECORD,
        "When the broker wrote it, as far as that is known within the data file; see `time_source`.",
    ),
    Column(
        "time_source",
        _TEXT,
        Layer.RECORD,
        "`broker_in`: the message's own time of arrival; `mark`: the last time mark before it, at most a second off;"
        " `estimate`: the last arrival before it, so no later than this; null: nothing is known.",
    ),
    Column("transaction", _TEXT, Layer.RECORD, "Its transaction, as ActiveMQ writes ids: `TX:…` or `XID:…`."),
    Column("destination_type", _TEXT, Layer.RECORD, "`queue`, `topic`, `temp-queue`, `temp-topic`."),
    Column("destination", _TEXT, Layer.RECORD, "Physical name of the destination."),
    Column("message_id", _TEXT, Layer.RECORD, "`<connection>:<session>:<producer>:<sequence>`: acks name it."),
    Column("subscription", _TEXT, Layer.RECORD, "Durable subscription, `<client id>:<name>`."),
    Column("selector", _TEXT, Layer.RECORD, "Of a `subscribe`: the subscription's selector."),
    Column("retroactive", _BOOL, Layer.RECORD, "Of a `subscribe`: it also gets what others have pending."),
    Column(
        "trace", _TEXT, Layer.RECORD, "Text of a `trace` record: the broker's start, time marks, pybroker's metadata."
    ),
    Column("source_file", _INT, Layer.RECORD, "Of a `rewritten_data_file`: the file whose acks were copied here."),
    Column("job", JOB, Layer.RECORD, "Of a scheduler's record: the job it is about."),
    # ---- the acknowledgement
    Column(
        "ack_type",
        _TEXT,
        Layer.ACK,
        "`standard`, `individual`, `poison`, `expired`, `unmatched` (the selector did not), …; null where"
        " the broker did not record the acknowledgement.",
    ),
    Column("consumer_id", _TEXT, Layer.ACK, "Who acknowledged, `<connection>:<session>:<consumer>`."),
    Column("ack_cause", _TEXT, Layer.ACK, "Of a `poison` ack: exception and message."),
    # ---- the message's headers
    Column("message_type", _TEXT, Layer.MESSAGE, "`text`, `bytes`, `map`, `object`, `stream`, `blob`, `message`."),
    Column("producer_id", _TEXT, Layer.MESSAGE, "`<connection>:<session>:<producer>`."),
    Column("producer_sequence", _LONG, Layer.MESSAGE, "The producer's own count of its messages."),
    Column("original_destination", _TEXT, Layer.MESSAGE, "Where it was sent first: `queue://…`, `topic://…`."),
    Column("timestamp", INSTANT, Layer.MESSAGE, "JMSTimestamp: when it was sent, by the producer's clock."),
    Column("broker_in", INSTANT, Layer.MESSAGE, "When a broker got it, by that broker's clock, if recorded."),
    Column("expiration", INSTANT, Layer.MESSAGE, "JMSExpiration; null for never."),
    Column("priority", _INT, Layer.MESSAGE, "JMSPriority, 0 to 9."),
    Column("persistent", _BOOL, Layer.MESSAGE, "JMSDeliveryMode."),
    Column("redelivery_counter", _INT, Layer.MESSAGE, "How often it had been delivered before, as stored."),
    Column("correlation_id", _TEXT, Layer.MESSAGE, "JMSCorrelationID."),
    Column("reply_to", _TEXT, Layer.MESSAGE, "JMSReplyTo: `queue://…`, `topic://…`, `temp-queue://…`."),
    Column("jms_type", _TEXT, Layer.MESSAGE, "JMSType."),
    Column("group_id", _TEXT, Layer.MESSAGE, "JMSXGroupID."),
    Column("group_sequence", _INT, Layer.MESSAGE, "JMSXGroupSeq."),
    Column("user_id", _TEXT, Layer.MESSAGE, "JMSXUserID: who was logged in."),
    Column("compressed", _BOOL, Layer.MESSAGE, "Whether the content is compressed."),
    Column("body_size", _LONG, Layer.MESSAGE, "Bytes of the content as it is stored."),
    # ---- its properties and its body
    Column("properties", TEXTS, Layer.PROPERTIES, "The properties, their values as text."),
    Column("text", _TEXT, Layer.BODY, "A text message's text; a map's or stream's values as JSON."),
    Column("body", _BYTES, Layer.BODY, "The content of any other message, uncompressed."),
    Column(
        "message",
        _BYTES,
        Layer.RECORD,
        "The whole message as it is stored: OpenWire v11 from its data type on.",
        on_request=True,
    ),
    Column(
        "_corrupt_record",
        _TEXT,
        Layer.PLACE,
        "What is wrong with it; null for a sound record.",
    ),
)
"""The columns in the order in which they are shown."""

BY_NAME: Final = {column.name: column for column in COLUMNS}
DEFAULT_COLUMNS: Final = tuple(column.name for column in COLUMNS if not column.on_request)
CORRUPT: Final = "_corrupt_record"


def arrow_schema(names: tuple[str, ...] = DEFAULT_COLUMNS) -> pa.Schema:
    """Return the Arrow schema of some columns, in the order given.

    Raises:
        KeyError: there is no column of that name.
    """
    return pa.schema([BY_NAME[name].field for name in names])


def layers(names: tuple[str, ...]) -> frozenset[Layer]:
    """Return the layers to decode for these columns."""
    return frozenset(BY_NAME[name].layer for name in names)
