"""Bodies of messages as bodies of AMQP messages.

Source: ActiveMQ 5.17, AMQP transport. What a body was in AMQP, if it came so, it becomes again:

```text
Text       amqp-value string or null; data, none
Bytes      data; amqp-value binary, none
Map        amqp-value map
Stream     amqp-value list; sequence
Object     data; amqp-value binary, none
others     none; advisories about connections and removals: amqp-value map
```

Unlike in ActiveMQ, a Stream may hold byte arrays, and a text that is no UTF-8 is sent as data.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from pybroker.broker.domain.amqp.body_heads import NULL_VALUE, binary_value_head, data_head, string_value_head
from pybroker.broker.domain.amqp.sections import AmqpBodyKind, AmqpMessage, encode_message
from pybroker.broker.domain.amqp.values import AmqpValue, Long
from pybroker.broker.domain.openwire import commands
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.transcode import STORE
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.values import Value
from pybroker.transports.amqp import names
from pybroker.transports.amqp.names import OriginalEncoding

_TEXT_LENGTH_BYTES: Final = 4


class EncodedBody(NamedTuple):
    """The sections of a body.

    Attributes:
        head: their first bytes, or all.
        rest: the rest, which is long if the body is.
    """

    head: bytes
    rest: bytes


_NO_BODY: Final = EncodedBody(b"", b"")
_NULL: Final = EncodedBody(NULL_VALUE, b"")


def amqp_body(fields: OpenWireMessage, properties: Mapping[str, Value], bytes_max: int) -> EncodedBody:
    """Return the body of a message.

    Args:
        fields: the message.
        properties: its properties.
        bytes_max: the limit to an inflated body.

    Raises:
        MalformedOpenWire: it does not decode.
        UnencodableAmqp: it has a value that AMQP has no form for.
    """
    encoding = properties.get(names.ORIGINAL_ENCODING)
    match fields.type:
        case MessageType.TEXT:
            return _text(fields, encoding, bytes_max)
        case MessageType.BYTES | MessageType.OBJECT:
            if encoding == OriginalEncoding.NONE and not fields.content:
                return _NO_BODY
            return _binary(fields.body_bytes(bytes_max), encoding)
        case MessageType.MAP:
            return _value(fields.map())
        case MessageType.STREAM:
            values = cast("list[AmqpValue]", fields.stream())
            if encoding == OriginalEncoding.SEQUENCE:
                sequence = AmqpMessage(body_kind=AmqpBodyKind.SEQUENCE, body=[values])
                return EncodedBody(b"", encode_message(sequence))
            return _value(values)
        case _:
            return _advisory(fields)


def _value(value: object) -> EncodedBody:
    message = AmqpMessage(body_kind=AmqpBodyKind.VALUE, body=cast("AmqpValue", value))
    return EncodedBody(b"", encode_message(message))


def _binary(data: bytes, encoding: Value) -> EncodedBody:
    if encoding == OriginalEncoding.VALUE_BINARY:
        return EncodedBody(binary_value_head(len(data)), data)
    return EncodedBody(data_head(len(data)), data)


def _text(fields: OpenWireMessage, encoding: Value, bytes_max: int) -> EncodedBody:
    if encoding == OriginalEncoding.NONE and not fields.content:
        return _NO_BODY
    try:
        text = fields.text_utf8(bytes_max)
    except MalformedOpenWire:
        # ActiveMQ stores a STOMP client's text without decoding it.
        data = fields.body_bytes(bytes_max)[_TEXT_LENGTH_BYTES:]
        return EncodedBody(data_head(len(data)), data)
    if encoding == OriginalEncoding.DATA:
        return EncodedBody(data_head(len(text or b"")), text or b"")
    return _NULL if text is None else EncodedBody(string_value_head(len(text)), text)


# ---------------------------------------------------------------- advisories


def advisory_type(fields: OpenWireMessage) -> str | None:
    """Return the name of the command that an advisory is about. Raises `MalformedOpenWire`."""
    return None if fields.data_structure is None else type(STORE.decode(fields.data_structure)).__name__


def _advisory(fields: OpenWireMessage) -> EncodedBody:
    if fields.data_structure is None:
        return _NO_BODY
    command: object = STORE.decode(fields.data_structure)
    if isinstance(command, commands.ConnectionInfo):
        return _value(_connection(command))
    if isinstance(command, commands.RemoveInfo):
        return _value(_removal(command.object_id))
    return _NO_BODY


def _connection(command: commands.ConnectionInfo) -> dict[AmqpValue, AmqpValue]:
    connection_id = command.connection_id
    return {
        "ConnectionId": None if connection_id is None else connection_id.value,
        "ClientId": command.client_id,
        "ClientIp": command.client_ip,
        "UserName": command.user_name,
        "BrokerMasterConnector": command.broker_master_connector,
        "Manageable": command.manageable,
        "ClientMaster": command.client_master,
        "FaultTolerant": command.fault_tolerant,
        "FailoverReconnect": command.failover_reconnect,
    }


def _removal(removed: object) -> dict[AmqpValue, AmqpValue]:
    if isinstance(removed, commands.ConnectionId):
        return {"ConnectionId": removed.value}
    if isinstance(removed, commands.ConsumerId):
        return {
            "ConsumerId": Long(removed.value),
            "SessionId": Long(removed.session_id),
            "ConnectionId": removed.connection_id,
            "ParentId": Long(removed.session_id),
        }
    return {}
