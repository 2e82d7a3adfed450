"""Converts a stored message to JSON: JMS headers, properties, and a readable body.

| message     | `type`    | `body`                                                                  |
|-------------|-----------|-------------------------------------------------------------------------|
| text        | `text`    | the text                                                                |
| map, stream | `map` ... | an object, a list; bytes in them as `{"encoding": "base64", "bytes": …}` |
| bytes       | `bytes`   | base64, and `encoding` says so                                          |
| object      | `object`  | its Java serialization, base64                                          |
| blob        | `blob`    | its URL                                                                 |
| no body     | `message` | null                                                                    |

A compressed body is shown uncompressed. One that does not decode is shown as stored, with a `problem`.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode
from pybroker.broker.domain.openwire.values import Value

ENCODING = "base64"


def message_as_json(data: bytes) -> dict[str, Any]:
    """Return type, headers, properties and body of a message (OpenWire v11, from its data type on)."""
    try:
        fields = decode(data)
        properties = {name: plain(value) for name, value in fields.properties.items()}
    except MalformedOpenWire as error:
        return {"type": None, "problem": str(error), "body": _base64(data), "encoding": ENCODING}
    return {
        "type": fields.type.name.lower(),
        "headers": headers(fields),
        "properties": properties,
        **_body(fields),
    }


def headers(fields: OpenWireMessage) -> dict[str, Any]:
    """Return the JMS headers that a message has."""
    optional = {
        "JMSCorrelationID": fields.correlation_id,
        "JMSReplyTo": None if fields.reply_to is None else str(fields.reply_to),
        "JMSType": fields.jms_type,
        "JMSXGroupID": fields.group_id,
        "JMSXGroupSeq": fields.group_sequence if fields.group_id is not None else None,
        "JMSXUserID": fields.user_id,
    }
    return {
        "JMSMessageID": None if fields.message_id is None else str(fields.message_id),
        "JMSDestination": None if fields.destination is None else str(fields.destination),
        "JMSDeliveryMode": "PERSISTENT" if fields.persistent else "NON_PERSISTENT",
        "JMSPriority": fields.priority,
        "JMSTimestamp": fields.timestamp,
        "JMSExpiration": fields.expiration,
        "JMSRedelivered": fields.redelivery_counter > 0,
        **{name: value for name, value in optional.items() if value is not None},
    }


def plain(value: Value) -> Any:
    """Return a property's or a body's value as JSON can hold it."""
    match value:
        case bytes():
            return {"encoding": ENCODING, "bytes": _base64(value)}
        case str():
            return str(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case bool() | int() | None:
            return value
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case Sequence():
            return [plain(each) for each in value]


def _body(fields: OpenWireMessage) -> dict[str, Any]:
    try:
        return _readable(fields)
    except MalformedOpenWire as error:
        return {"problem": str(error), "body": _base64(fields.content or b""), "encoding": ENCODING}


def _readable(fields: OpenWireMessage) -> dict[str, Any]:
    match fields.type:
        case MessageType.TEXT:
            return {"body": fields.text()}
        case MessageType.MAP:
            return {"body": {name: plain(value) for name, value in fields.map().items()}}
        case MessageType.STREAM:
            return {"body": [plain(value) for value in fields.stream()]}
        case MessageType.BYTES | MessageType.OBJECT:
            return {"body": _base64(fields.body_bytes()), "encoding": ENCODING}
        case MessageType.BLOB:
            return {"body": fields.remote_blob_url}
        case MessageType.MESSAGE:
            return {"body": None}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
