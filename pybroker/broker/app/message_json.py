"""A message as one line of JSON, exact in both directions: `consume` and `browse` write it, `produce` reads it.

```json
{"type": "map", "headers": {"JMSPriority": 4}, "properties": {"region": "eu"}, "body": {"grams": 250}}
```

| `type`            | `body`                                                          |
|-------------------|-----------------------------------------------------------------|
| `text`            | the text; null for a null text                                  |
| `bytes`, `object` | base64, and `"encoding": "base64"`; an object's is Java's serialization |
| `map`             | names and values                                                |
| `stream`          | a list of values                                                |
| `blob`            | `url`, `mime_type`, `deleted_by_broker`                         |
| `message`         | null: it has no body                                            |

A value, of a property, a map or a stream, is a JSON value if there is an equal one: null, true, false, a string, a
list, a number without a point for Java's Integer and one with a point for its Double. Any other has its type:
`{"type": "long", "value": 17}`. The types are byte, short, long, float, char, bytes (base64), map, and double for
`"NaN"`, `"Infinity"` and `"-Infinity"`.

Headers have JMS's names. `JMSMessageID`, `JMSRedelivered` and `JMSXUserID` are set by the broker: they are written, and
ignored when a message is read.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pybroker.broker.domain.destination import Destination, parse
from pybroker.broker.domain.errors import BrokerError, InvalidDestination
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, Value
from pybroker.client.arguments import MessageHeaders
from pybroker.client.messages import Body, Kind, Message

ENCODING: Final = "base64"

_KEYS: Final = frozenset(("type", "headers", "properties", "body", "encoding"))

_INT: Final = (-(1 << 31), (1 << 31) - 1)
_LONG: Final = (-(1 << 63), (1 << 63) - 1)
_PRIORITY: Final = (0, 9)


class InvalidInput(BrokerError):
    """Input that is not a message, or not a part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A message to send.

    Attributes:
        destination: the destination; None if it is given elsewhere.
        body: its body.
        headers: the headers and properties, by the parameters of the client's `send`.
    """

    destination: Destination | None
    body: Body
    headers: MessageHeaders


# ---------------------------------------------------------------- writing


def as_json(message: Message) -> dict[str, Any]:
    """Return a received message as an object for JSON.

    Raises:
        UnreadableMessage: its body or its properties are damaged.
    """
    properties = {name: write_value(value) for name, value in message.properties.items()}
    return {"type": message.kind, "headers": headers(message), "properties": properties, **body(message)}


def headers(message: Message) -> dict[str, Any]:
    """Return a message's JMS headers, without those that are not set."""
    optional = {
        "JMSCorrelationID": message.correlation_id,
        "JMSReplyTo": None if message.reply_to is None else str(message.reply_to),
        "JMSType": message.type,
        "JMSXGroupID": message.group_id,
        "JMSXGroupSeq": message.group_sequence if message.group_id is not None or message.group_sequence else None,
    }
    return {
        "JMSMessageID": message.id,
        "JMSDestination": str(message.destination),
        "JMSDeliveryMode": "PERSISTENT" if message.persistent else "NON_PERSISTENT",
        "JMSPriority": message.priority,
        "JMSTimestamp": message.timestamp,
        "JMSExpiration": message.expiration,
        "JMSRedelivered": message.redelivered,
        **{name: value for name, value in optional.items() if value is not None},
    }


def body(message: Message) -> dict[str, Any]:
    """Return a message's body and its encoding.

    Raises:
        UnreadableMessage: it is damaged.
    """
    match message.body:
        case bytes() as data:
            return {"body": _base64(data), "encoding": ENCODING}
        case Mapping() as entries if message.kind is not Kind.BLOB:
            return {"body": {name: write_value(value) for name, value in entries.items()}}
        case list() as values:
            return {"body": [write_value(value) for value in values]}
        case other:
            return {"body": other}


def dumps(found: object) -> bytes:
    """Return an object as a line of JSON, in ASCII, which also allows half a surrogate pair."""
    return json.dumps(found, allow_nan=False).encode("ascii")


def write_value(value: Value) -> Any:
    """Return a property's or a body's value as an object for JSON."""
    match value:
        case Byte() | Short() | Long() | Char():
            return {"type": type(value).__name__.lower(), "value": str(value) if type(value) is Char else int(value)}
        case Float():
            return {"type": "float", "value": _number(value)}
        case float() if not math.isfinite(value):
            return {"type": "double", "value": _number(value)}
        case bytes():
            return {"type": "bytes", "value": _base64(value)}
        case Mapping():
            return {"type": "map", "value": {name: write_value(each) for name, each in value.items()}}
        case list() | tuple():
            return [write_value(each) for each in value]
        case _:
            return value


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(value)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# ---------------------------------------------------------------- reading


def from_json(line: str | bytes) -> Parcel:
    """Return the message that a line of JSON describes.

    Raises:
        InvalidInput: it is not a message.
    """
    try:
        return _parcel(_object(json.loads(line), "a message"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"it is not JSON: {error}") from error


def _parcel(fields: dict[str, Any]) -> Parcel:
    if unknown := fields.keys() - _KEYS:
        raise InvalidInput(f"a message has {', '.join(sorted(_KEYS))}, not {sorted(unknown)[0]!r}")
    found: dict[str, Any] = {}
    destination: Destination | None = None
    for name, value in _object(fields.get("headers", {}), "headers").items():
        if name == "JMSDestination":
            destination = read_destination(name, value)
        elif name in _HEADERS:
            key, read = _HEADERS[name]
            found[key] = read(name, value)
        elif name not in _OF_THE_BROKER:
            raise InvalidInput(f"there is no header {name!r}: an application's own belongs to the properties")
    if properties := _object(fields.get("properties", {}), "properties"):
        found["properties"] = {name: read_value(value) for name, value in properties.items()}
    kind = _kind(fields)
    return Parcel(
        destination=destination, body=_body(kind, fields), headers=cast("MessageHeaders", {**found, "kind": kind})
    )


def _kind(fields: Mapping[str, Any]) -> Kind:
    match fields.get("type"), fields.get("body"):
        case str() as name, _ if name in Kind.__members__.values():
            return Kind(name)
        case None, None:
            return Kind.MESSAGE
        case None, str() if "encoding" not in fields:
            return Kind.TEXT
        case None, str():
            return Kind.BYTES
        case None, dict():
            return Kind.MAP
        case None, list():
            return Kind.STREAM
        case found, _:
            raise InvalidInput(f"type: one of {', '.join(Kind)}, not {found!r}")


def _body(kind: Kind, fields: Mapping[str, Any]) -> Body:
    if fields.get("encoding", ENCODING) != ENCODING:
        raise InvalidInput(f"encoding: {ENCODING}, not {fields['encoding']!r}")
    match kind, fields.get("body"):
        case ((Kind.TEXT | Kind.OBJECT | Kind.MESSAGE), None):
            return None
        case Kind.TEXT, str() as text:
            return text
        case ((Kind.BYTES | Kind.OBJECT), str() as text):
            return _bytes("body", text)
        case Kind.MAP, dict():
            return _map("body", fields["body"])
        case Kind.STREAM, list():
            return [read_value(value) for value in fields["body"]]
        case Kind.BLOB, dict():
            return _object(fields["body"], "body")
        case _, other:
            raise InvalidInput(f"a {kind} message with a body of type {type(other).__name__}")


def read_value(value: Any) -> Value:
    """Return the value of a property or body from an object of JSON.

    Raises:
        InvalidInput: it is not a value.
    """
    match value:
        case bool() | str() | None:
            return value
        case int():
            number = _integer("a number", value, _LONG)
            return number if _INT[0] <= number <= _INT[1] else Long(number)
        case float():
            return value
        case list():
            return [read_value(each) for each in cast("list[Any]", value)]  # type: ignore[redundant-cast]  # for pyright
        case {"type": str() as name, "value": inner, **more} if name in _TYPED and not more:
            return _TYPED[name](name, inner)
        case _:
            raise InvalidInput(f'a value written as {{"type": …, "value": …}} has one of {", ".join(_TYPED)}')


def _double(name: str, value: Any) -> float:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(f"{name}: a number, NaN, Infinity or -Infinity, not {value!r}")
    return float(value)


def _char(name: str, value: Any) -> Char:
    if not isinstance(value, str) or len(value.encode("utf-16-be", "surrogatepass")) != 2:
        raise InvalidInput(f"{name}: one UTF-16 unit, not {value!r}")
    return Char(value)


def _bytes(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(_text(name, value), validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"{name}: not base64: {error}") from error


def _map(name: str, value: Any) -> dict[str, Value]:
    return {key: read_value(each) for key, each in _object(value, name).items()}


_TYPED: Final[Mapping[str, Callable[[str, Any], Value]]] = {
    "byte": lambda name, value: Byte(_integer(name, value, (-128, 127))),
    "short": lambda name, value: Short(_integer(name, value, (-(1 << 15), (1 << 15) - 1))),
    "long": lambda name, value: Long(_integer(name, value, _LONG)),
    "float": lambda name, value: Float(_double(name, value)),
    "double": _double,
    "char": _char,
    "bytes": _bytes,
    "map": _map,
}


def _integer(name: str, value: Any, limits: Sequence[int]) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not limits[0] <= value <= limits[1]:
        raise InvalidInput(f"{name}: a whole number from {limits[0]} to {limits[1]}, not {value!r}")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: a text, not {value!r}")
    return value


def read_destination(name: str, value: Any) -> Destination:
    """Return the destination of `queue://A`, `topic://A`, STOMP's `/queue/A`, `/topic/A`, or plain `A`.

    Raises:
        InvalidInput: it is not valid; the text begins with `name`.
    """
    text = _text(name, value)
    for kind in ("queue", "topic"):
        if text.startswith(f"/{kind}/"):
            text = f"{kind}://{text.removeprefix(f'/{kind}/')}"
    try:
        return parse(text)
    except InvalidDestination as error:
        raise InvalidInput(f"{name}: {error}") from error


def _is_persistent(name: str, value: Any) -> bool:
    if value not in ("PERSISTENT", "NON_PERSISTENT"):
        raise InvalidInput(f"{name}: PERSISTENT or NON_PERSISTENT, not {value!r}")
    return bool(value == "PERSISTENT")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what}: a JSON object, not {type(value).__name__}")
    return cast("dict[str, Any]", value)


_HEADERS: Final[Mapping[str, tuple[str, Callable[[str, Any], object]]]] = {
    "JMSDeliveryMode": ("persistent", _is_persistent),
    "JMSPriority": ("priority", lambda name, value: _integer(name, value, _PRIORITY)),
    "JMSTimestamp": ("timestamp", lambda name, value: _integer(name, value, _LONG)),
    "JMSExpiration": ("expiration", lambda name, value: _integer(name, value, _LONG)),
    "JMSCorrelationID": ("correlation_id", _text),
    "JMSReplyTo": ("reply_to", read_destination),
    "JMSType": ("type", _text),
    "JMSXGroupID": ("group_id", _text),
    "JMSXGroupSeq": ("group_sequence", lambda name, value: _integer(name, value, _INT)),
}
"""JMS headers: the name of each in the client's `send`, and the function that reads its value."""

_OF_THE_BROKER: Final = frozenset(("JMSMessageID", "JMSRedelivered", "JMSXUserID", "JMSXDeliveryCount"))


def read_header(text: str, into: dict[str, Any]) -> None:
    """Add `NAME=TEXT` or `NAME:=JSON` to a message's headers or properties.

    Raises:
        InvalidInput: it is neither, or the value does not suit the header.
    """
    name, separator, value = text.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":")
    if not separator or not name:
        raise InvalidInput(f"{text!r} is not NAME=TEXT or NAME:=JSON")
    name = _STOMP_NAMES.get(name, name)
    if name in _HEADERS:
        key, read = _HEADERS[name]
        into[key] = read(name, _whole(value) if read not in (_text, read_destination, _is_persistent) else value)
        return
    if name in _OF_THE_BROKER:
        raise InvalidInput(f"{name} is set by the broker")
    try:
        found = read_value(json.loads(value)) if is_json else value
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{name}: {value!r} is not JSON: {error}") from error
    into.setdefault("properties", {})[name] = found


def _whole(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


_STOMP_NAMES: Final[Mapping[str, str]] = {
    "priority": "JMSPriority",
    "expires": "JMSExpiration",
    "timestamp": "JMSTimestamp",
    "correlation-id": "JMSCorrelationID",
    "reply-to": "JMSReplyTo",
    "type": "JMSType",
}
"""STOMP's names of these headers."""
