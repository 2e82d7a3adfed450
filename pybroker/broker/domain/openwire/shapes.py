"""The shape of every v11 structure, field kinds only: enough to find the end of one without understanding it.

A loose structure carries no length. A message may nest any other one (`dataStructure`: the subject of an advisory),
which the broker keeps as bytes; to do so it has to know where it ends.

Source: OpenWire v11 marshallers, inherited fields first. One letter per field:

```text
? boolean   b byte   i int   q long   s string   y byte sequence   o object   a object array   t throwable
```
"""

from typing import Final

from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader

BROKER_FIELDS: Final = "oo?iaqs??aqq?"
"""The end of a message, from the data structure on."""
BLOB_FIELDS: Final = "ss?"
_MESSAGE = "i?oooooosis?qboqsyy" + BROKER_FIELDS

SHAPES: Final = {
    2: "i?osas?????qss",  # BrokerInfo
    3: "i?osssa?????s",  # ConnectionInfo
    4: "i?o",  # SessionInfo
    5: "i?o?oii?sss???bao???a",  # ConsumerInfo
    6: "i?ooa?i",  # ProducerInfo
    7: "i?oob",  # TransactionInfo
    8: "i?oobqa",  # DestinationInfo
    9: "i?oss",  # RemoveSubscriptionInfo
    10: "i?",  # KeepAliveInfo
    11: "i?",  # ShutdownInfo
    12: "i?oq",  # RemoveInfo
    14: "i?s",  # ControlCommand
    15: "i?",  # FlushCommand
    16: "i?to",  # ConnectionError
    17: "i?o?oi???",  # ConsumerControl
    18: "i??????ss?y",  # ConnectionControl
    19: "i?oi",  # ProducerAck
    20: "i?ooqso",  # MessagePull
    21: "i?oooi",  # MessageDispatch
    22: "i?ooobooit",  # MessageAck
    23: _MESSAGE,  # ActiveMQMessage
    24: _MESSAGE,  # ActiveMQBytesMessage
    25: _MESSAGE,  # ActiveMQMapMessage
    26: _MESSAGE,  # ActiveMQObjectMessage
    27: _MESSAGE,  # ActiveMQStreamMessage
    28: _MESSAGE,  # ActiveMQTextMessage
    29: _MESSAGE + BLOB_FIELDS,  # ActiveMQBlobMessage
    30: "i?i",  # Response
    31: "i?it",  # ExceptionResponse
    32: "i?io",  # DataResponse
    33: "i?ia",  # DataArrayResponse
    34: "i?ii",  # IntegerResponse
    55: "sosso?",  # SubscriptionInfo
    65: "i?ii",  # ReplayCommand
    90: "i?ooqo",  # MessageDispatchNotification
    91: "oii",  # NetworkBridgeFilter
    100: "s",  # ActiveMQQueue
    101: "s",  # ActiveMQTopic
    102: "s",  # ActiveMQTempQueue
    103: "s",  # ActiveMQTempTopic
    110: "soqq",  # MessageId
    111: "qo",  # LocalTransactionId
    112: "iyy",  # XATransactionId
    120: "s",  # ConnectionId
    121: "sq",  # SessionId
    122: "sqq",  # ConsumerId
    123: "sqq",  # ProducerId
    124: "s",  # BrokerId
}

NESTING_MAX: Final = 16
"""Structures inside one another. An advisory about a message in a transaction takes five."""

_WIDTHS = {"?": 1, "b": 1, "i": 4, "q": 8}
_STACK_FRAME = "sssi"


def read_structure(reader: Reader) -> bytes | None:
    """Take a nullable structure of any type as bytes, from its data type on.

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
        width = _WIDTHS.get(kind)
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
