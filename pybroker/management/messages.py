"""Messages as JSON: decoded from what the store has, and encoded for a send.

Numbers of Java are JSON numbers, bytes are base64. A body of more than `PREVIEW_MAX` is cut in a list, and of more than
`BODY_MAX` always.
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final, cast

from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import BrokerError, InvalidDestination
from pybroker.broker.domain.node_requests import BrowsedRow, RequestFailed
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode
from pybroker.broker.domain.openwire.values import Value, encode_map

PREVIEW_MAX: Final = 1000
"""Characters of a text, bytes of another body, or values of a map or stream."""

BODY_MAX: Final = 16 << 20
"""The limit in bytes to a body that is shown, and to all compressed bodies of a page together once inflated."""

CAUSE_PROPERTY: Final = "dlqDeliveryFailureCause"

_BODY_TYPES: Final = {
    MessageType.TEXT: "text",
    MessageType.BYTES: "bytes",
    MessageType.MAP: "map",
    MessageType.STREAM: "stream",
    MessageType.OBJECT: "object",
}

BODIES: Final = ("none", "preview", "full")
"""How much of a body is wanted."""


def browsed_rows(rows: Sequence[Sequence[Any]]) -> list[BrowsedRow]:
    """Return browsed messages, each with all pieces of its data."""
    found: list[tuple[BrowsedRow, list[str]]] = []
    for row in rows:
        if len(row) == 1:
            found[-1][1].append(row[0])
        else:
            browsed = BrowsedRow(*row)
            found.append((browsed, [browsed.data]))
    return [browsed._replace(data="".join(pieces)) for browsed, pieces in found]


def page_json(rows: Sequence[BrowsedRow], body: str) -> list[dict[str, Any]]:
    """Return browsed messages, as `message_json` does."""
    inflation = Inflation(is_kept=body == "full")
    return [_json_of(row, body, inflation) for row in rows]


def message_json(row: BrowsedRow, body: str) -> dict[str, Any]:
    """Return a browsed message with as much of its body as one of `BODIES` says; takes milliseconds for a large one."""
    return page_json([row], body)[0]


class Inflation:
    """Inflates the bodies of one answer, to `BODY_MAX` together."""

    def __init__(self, *, is_kept: bool) -> None:
        """Begin; `is_kept` is True if the answer has them whole."""
        self._left = BODY_MAX
        self._is_kept = is_kept

    def inflated(self, message: OpenWireMessage) -> OpenWireMessage:
        """Return a message whose content is not compressed.

        Raises:
            MalformedOpenWire: it does not inflate, or to more than may be.
        """
        if not message.compressed:
            return message
        content = message.body_bytes(self._left)
        if self._is_kept:
            self._left -= len(content)
        return replace(message, content=content, compressed=False)


def _json_of(row: BrowsedRow, body: str, inflation: Inflation) -> dict[str, Any]:
    data = base64.b64decode(row.data)
    holder = row.holder
    found: dict[str, Any] = {
        "message_id": row.message_id,
        "position": row.position,
        "state": row.state,
        "redelivery_count": row.redelivery_count,
        "holder": None
        if holder is None
        else dict(zip(("connection_id", "client_id", "consumer_id"), holder, strict=True)),
        "size": row.size,
    }
    try:
        message = decode(data)
        properties = {name: plain(value) for name, value in message.properties.items()}
    except BrokerError as error:
        return found | {"body_type": "damaged", "body": None, "body_is_cut": False, "error": str(error)}
    shown = _body(message, body, inflation) if len(data) == row.size else {"body": None, "body_is_cut": True}
    return found | _headers(message) | {"properties": properties} | shown | _cause(properties)


def _headers(message: OpenWireMessage) -> dict[str, Any]:
    return {
        "destination": _name(message.destination),
        "original_destination": _name(message.original_destination),
        "reply_to": _name(message.reply_to),
        "correlation_id": message.correlation_id,
        "type": message.jms_type,
        "persistent": message.persistent,
        "priority": message.priority,
        "timestamp_ms": message.timestamp,
        "expiration_ms": message.expiration,
        "group_id": message.group_id,
        "group_sequence": message.group_sequence,
        "user": message.user_id,
        "body_type": _BODY_TYPES.get(message.type, "none"),
    }


def _body(message: OpenWireMessage, wanted: str, inflation: Inflation) -> dict[str, Any]:
    if wanted == "none":
        return {"body": None, "body_is_cut": message.content is not None}
    limit = PREVIEW_MAX if wanted == "preview" else BODY_MAX
    try:
        message = inflation.inflated(message)
        match message.type:
            case MessageType.TEXT:
                text = message.text()
                return {"body": text if text is None else text[:limit], "body_is_cut": len(text or "") > limit}
            case MessageType.MAP:
                entries = list(message.map().items())
                shown = {name: plain(value) for name, value in entries[:limit]}
                return {"body": shown, "body_is_cut": len(entries) > limit}
            case MessageType.STREAM:
                values = message.stream()
                return {"body": [plain(value) for value in values[:limit]], "body_is_cut": len(values) > limit}
            case MessageType.BYTES | MessageType.OBJECT:
                content = message.body_bytes()
                return {"body": base64.b64encode(content[:limit]).decode(), "body_is_cut": len(content) > limit}
            case _:
                return {"body": None, "body_is_cut": False}
    except BrokerError as error:
        return {"body": None, "body_is_cut": False, "error": str(error)}


def _cause(properties: Mapping[str, Any]) -> dict[str, Any]:
    cause = properties.get(CAUSE_PROPERTY)
    return {"dead_letter_cause": cause if cause is None else str(cause)}


def plain(value: Value) -> Any:
    """Return a property, or a value of a body, as JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value


def _name(destination: Destination | None) -> str | None:
    return None if destination is None else str(destination)


# ---------------------------------------------------------------- sending


def to_send(destination: Destination, fields: Mapping[str, Any], now_ms: int) -> str:
    """Return a message to send, encoded and in base64.

    Args:
        destination: its destination.
        fields: `body`, `body_type` and headers, as the OpenAPI document has them.
        now_ms: the time, in milliseconds since the epoch.

    Raises:
        RequestFailed: a field cannot be used; names it.
        UnencodableOpenWire: a name or header is too long.
    """
    body_type = fields.get("body_type", "text")
    makers: Mapping[str, Callable[[Any], tuple[MessageType, bytes | None]]] = {
        "text": _text_body,
        "bytes": _bytes_body,
        "map": _map_body,
    }
    if not isinstance(body_type, str) or body_type not in makers:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"body_type is one of {', '.join(makers)}")
    kind, content = makers[body_type](fields.get("body"))
    lives_ms = _whole(fields, "time_to_live_ms", 0, 1 << 53)
    message = OpenWireMessage(
        type=kind,
        destination=destination,
        content=content,
        persistent=_flag(fields, "persistent", default=True),
        priority=_whole(fields, "priority", 4, 9),
        timestamp=now_ms,
        expiration=now_ms + lives_ms if lives_ms else 0,
        correlation_id=_text(fields, "correlation_id"),
        jms_type=_text(fields, "type"),
        reply_to=_reply_to(_text(fields, "reply_to")),
        group_id=_text(fields, "group_id"),
    )
    message.set_properties(_entries(fields.get("properties", {}), "properties"))
    return base64.b64encode(encode(message)).decode()


def _text_body(body: Any) -> tuple[MessageType, bytes | None]:
    if body is not None and not isinstance(body, str):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "the body of a text message is a text, or null")
    return MessageType.TEXT, None if body is None else encode_text(body)


def _bytes_body(body: Any) -> tuple[MessageType, bytes | None]:
    try:
        return MessageType.BYTES, base64.b64decode(body, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, "the body of a bytes message is base64") from error


def _map_body(body: Any) -> tuple[MessageType, bytes | None]:
    return MessageType.MAP, encode_map(_entries(body, "the body of a map message"))


def _entries(value: Any, what: str) -> Mapping[str, Value]:
    """Return properties, or the body of a map message.

    Raises:
        RequestFailed: it is something else.
    """
    entries = cast("dict[str, Value]", value) if isinstance(value, dict) else None
    if entries is None or not all(map(_is_property, entries.values())):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"{what} is an object with texts, numbers, true and false")
    return entries


def _is_property(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return -(1 << 63) <= value < 1 << 63
    return value is None or isinstance(value, str | float | bool)


def _reply_to(name: str | None) -> Destination | None:
    try:
        return None if name is None else parse(name)
    except InvalidDestination as error:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"reply_to: {error}") from error


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"{name} is a text")
    return value


def _flag(fields: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"{name} is true or false")
    return value


def _whole(fields: Mapping[str, Any], name: str, default: int, most: int) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise RequestFailed(HTTPStatus.BAD_REQUEST, f"{name} is a number from 0 to {most}")
    return value
