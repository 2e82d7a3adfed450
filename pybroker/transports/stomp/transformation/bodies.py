"""The header `transformation`: which bodies are transformed, and the headers of the result.

Source: ActiveMQ 5.17's STOMP transport.

```text
SUBSCRIBE             map               object               advisory
jms-xml, jms-json     jms-map-…         jms-object-…         jms-advisory-…     body and header of MESSAGE
any other below       as it is          as it is             jms-advisory-…
none                  empty body        empty body           jms-advisory-json

SEND                  jms-map-…: a MapMessage     jms-object-…: an ObjectMessage     others: text as it is, and an error
```

A failure never loses a message: the header `transformation-error` has the reason, and the body is sent unchanged.
ActiveMQ closes the connection if it fails to render an object, and in mode auto the message is lost.
"""

from collections.abc import Mapping
from typing import Final

from pybroker.broker.domain.openwire.body import BODY_BYTES_MAX as INFLATED_BYTES_MAX
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.values import Value, decode_map, encode_map, has_more_values
from pybroker.transports.stomp.transformation.advisory import tree_of_command
from pybroker.transports.stomp.transformation.java_object import read_object, write_object
from pybroker.transports.stomp.transformation.json_text import from_json, to_json
from pybroker.transports.stomp.transformation.map_values import map_of, tree_of, value_of
from pybroker.transports.stomp.transformation.tree import (
    BODY_BYTES_MAX,
    NODES_MAX,
    Element,
    NotTransformable,
    check_count,
    check_size,
)
from pybroker.transports.stomp.transformation.xml_text import from_xml, to_xml

TRANSFORMATION: Final = "transformation"
ERROR: Final = "transformation-error"
STREAM_ERROR: Final = "A StreamMessage has no form in XML or JSON"
ADVISORY_TYPE: Final = "Advisory"
"""The JMSType of an advisory."""

_BYTE: Final = "jms-byte"
_GENERAL: Final[frozenset[str]] = frozenset({"jms-xml", "jms-json"})
_READ: Final[frozenset[str]] = frozenset({"jms-map-xml", "jms-map-json", "jms-object-xml", "jms-object-json"})
KNOWN: Final[frozenset[str]] = _READ | _GENERAL | {"jms-advisory-xml", "jms-advisory-json", _BYTE}
"""ActiveMQ's names; any other is passed on without effect."""
_KINDS: Final[Mapping[MessageType, str]] = {
    MessageType.MAP: "map",
    MessageType.OBJECT: "object",
    MessageType.MESSAGE: "advisory",
}


# ---------------------------------------------------------------- MESSAGE


def render(
    fields: OpenWireMessage, requested: str | None, body_bytes_max: int = INFLATED_BYTES_MAX
) -> tuple[bytes, dict[str, str]] | None:
    """Return a message's body in the requested form, and its headers; None if it is not to be transformed.

    Args:
        fields: the message.
        requested: the header of SUBSCRIBE; None without one.
        body_bytes_max: the limit to an inflated body.

    Raises:
        MalformedOpenWire: the message's content does not decode.
    """
    kind = _KINDS.get(fields.type)
    if requested is not None and requested not in KNOWN:
        return None
    if fields.type is MessageType.STREAM and requested is not None:
        return b"", {TRANSFORMATION: requested, ERROR: STREAM_ERROR}
    if kind is None or (kind == "advisory" and fields.jms_type != ADVISORY_TYPE):
        return None
    if requested is None:
        form = f"jms-{kind}-{'json' if kind == 'advisory' else 'xml'}"
    else:
        form = f"jms-{kind}-{requested[4:]}" if requested in _GENERAL else requested
    headers = {TRANSFORMATION: form}
    try:
        tree = _tree(fields)
    except NotTransformable as error:
        body = fields.body_bytes(body_bytes_max)
        headers |= {ERROR: str(error), "content-length": str(len(body))}
        return body, headers
    text = to_json(tree) if form.endswith("json") else to_xml(tree)
    return text.encode(errors="replace"), headers


def _tree(fields: OpenWireMessage) -> Element:
    if fields.type is MessageType.MESSAGE:
        data = fields.data_structure
        check_size(len(data or b""))
        return tree_of_command(data)
    check_size(len(fields.content or b""))
    try:
        body = fields.body_bytes(BODY_BYTES_MAX)
    except MalformedOpenWire as error:
        raise NotTransformable(str(error)) from error
    if fields.type is MessageType.MAP:
        return tree_of(_map_of(body))
    return tree_of(read_object(body) if body else None)


def _map_of(body: bytes) -> dict[str, Value]:
    if has_more_values(body, NODES_MAX):
        check_count(NODES_MAX + 1)
    return decode_map(body)


# ---------------------------------------------------------------- SEND


def read(transformation: str, body: bytes) -> tuple[MessageType, bytes] | None:
    """Return the type and content of the message of a SEND's body; None if it is not to be transformed.

    Raises:
        NotTransformable: the body cannot be transformed.
    """
    if transformation == _BYTE or transformation not in KNOWN:
        return None
    if transformation not in _READ:
        raise NotTransformable(f"Unknown transformation: {transformation}")
    check_size(len(body))
    tree = from_json(body) if transformation.endswith("json") else from_xml(body)
    try:
        if transformation.startswith("jms-map"):
            return MessageType.MAP, encode_map(map_of(tree))
        return MessageType.OBJECT, write_object(value_of(tree))
    except UnencodableOpenWire as error:
        raise NotTransformable(str(error)) from error
