"""Bodies of messages as bodies of AMQP messages.

Source: ActiveMQ 5.17, AMQP transport. What a body was in AMQP, if it came so, it becomes again:

```text
Text       amqp-value string or null; data, none
Bytes      data; amqp-value binary, none
Map        amqp-value map
Stream     amqp-value list; sequence
Object     data; amqp-value binary
others     none; advisories about connections and removals: amqp-value map
```

Unlike in ActiveMQ, a Stream may hold byte arrays, and a text that is no UTF-8 is sent as data.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from pybroker.broker.domain.amqp.sections import AmqpBodyKind
from pybroker.broker.domain.amqp.values import AmqpValue, Long
from pybroker.broker.domain.openwire import commands
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.marshal.transcode import STORE
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.values import Value
from pybroker.transports.amqp import names
from pybroker.transports.amqp.names import OriginalEncoding

_TEXT_LENGTH_BYTES: Final = 4


class AmqpBody(NamedTuple):
    """The body of an AMQP message, as `AmqpMessage` has it."""

    kind: AmqpBodyKind
    value: AmqpValue


_NO_BODY: Final = AmqpBody(AmqpBodyKind.NONE, None)


def amqp_body(fields: OpenWireMessage, properties: Mapping[str, Value], bytes_max: int) -> AmqpBody:
    """Return the body of a message.

    Args:
        fields: the message.
        properties: its properties.
        bytes_max: the limit to an inflated body.

    Raises:
        MalformedOpenWire: it does not decode.
    """
    encoding = properties.get(names.ORIGINAL_ENCODING)
    match fields.type:
        case MessageType.TEXT:
            return _text(fields, encoding, bytes_max)
        case MessageType.BYTES:
            if encoding == OriginalEncoding.NONE and not fields.content:
                return _NO_BODY
            return _binary(fields.body_bytes(bytes_max), encoding)
        case MessageType.OBJECT:
            return _binary(fields.body_bytes(bytes_max), encoding)
        case MessageType.MAP:
            return AmqpBody(AmqpBodyKind.VALUE, cast("AmqpValue", fields.map()))
        case MessageType.STREAM:
            values = cast("list[AmqpValue]", fields.stream())
            if encoding == OriginalEncoding.SEQUENCE:
                return AmqpBody(AmqpBodyKind.SEQUENCE, [values])
            return AmqpBody(AmqpBodyKind.VALUE, values)
        case _:
            return _advisory(fields)


def _binary(data: bytes, encoding: Value) -> AmqpBody:
    if encoding == OriginalEncoding.VALUE_BINARY:
        return AmqpBody(AmqpBodyKind.VALUE, data)
    return AmqpBody(AmqpBodyKind.DATA, [data])


def _text(fields: OpenWireMessage, encoding: Value, bytes_max: int) -> AmqpBody:
    if encoding == OriginalEncoding.NONE and not fields.content:
        return _NO_BODY
    try:
        text = fields.text_utf8(bytes_max)
    except MalformedOpenWire:
        # ActiveMQ stores a STOMP client's text without decoding it.
        return AmqpBody(AmqpBodyKind.DATA, [fields.body_bytes(bytes_max)[_TEXT_LENGTH_BYTES:]])
    if encoding == OriginalEncoding.DATA:
        return AmqpBody(AmqpBodyKind.DATA, [text or b""])
    return AmqpBody(AmqpBodyKind.VALUE, None if text is None else text.decode())


# ---------------------------------------------------------------- advisories


def advisory_type(fields: OpenWireMessage) -> str | None:
    """Return the name of the command that an advisory is about. Raises `MalformedOpenWire`."""
    return None if fields.data_structure is None else type(STORE.decode(fields.data_structure)).__name__


def _advisory(fields: OpenWireMessage) -> AmqpBody:
    if fields.data_structure is None:
        return _NO_BODY
    command: object = STORE.decode(fields.data_structure)
    if isinstance(command, commands.ConnectionInfo):
        return AmqpBody(AmqpBodyKind.VALUE, _connection(command))
    if isinstance(command, commands.RemoveInfo):
        return AmqpBody(AmqpBodyKind.VALUE, _removal(command.object_id))
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
