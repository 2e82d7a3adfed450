"""Conversion of SEND frames to messages, and of messages to MESSAGE frames.

Source: ActiveMQ 5.17's STOMP transport; JMS 1.1, 3.4 and 3.5, for fields and properties.

```text
SEND header                          message
destination … persistent, priority   fields                    (`send_fields`)
JMSXGroupID, JMSType …               the same fields, by JMS's names, after the ones above
message-id, redelivered …            nothing: the broker sets them
any other                            a text property of exactly that name
content-length                       BytesMessage, else TextMessage; `amq-msg-type: text|bytes` overrules it
```

A text body is stored in Java's modified UTF-8, so that JMS clients can read it whatever it contains, and sent in
standard UTF-8. A body without `content-length` that is no UTF-8 becomes a BytesMessage: nothing is lost, and STOMP
clients see no difference. Maps and objects are read from text, and rendered as text, if `transformation` requests it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination, is_advisory
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import (
    BODY_BYTES_MAX,
    encode_text_utf8,
    inflates_within,
    text_pieces,
    utf8_pieces,
)
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode_around_content, view
from pybroker.broker.domain.openwire.template import MessageTemplate
from pybroker.broker.domain.openwire.values import Value
from pybroker.broker.domain.ports import Clock
from pybroker.broker.domain.stomp.codec import FRAME_END, encode_frame
from pybroker.broker.domain.stomp.errors import StompRequestError
from pybroker.broker.domain.stomp.frames import ESCAPERS, Version, readable_name, shortened
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.stomp.destinations import DestinationNames, cache_entry
from pybroker.transports.stomp.rendered import Rendered, shared
from pybroker.transports.stomp.send_fields import FIELDS, JMS_FIELDS, JMS_NAMES, SendFields
from pybroker.transports.stomp.transformation import bodies
from pybroker.transports.stomp.transformation.tree import NotTransformable

_log = logging.getLogger(__name__)

INLINE_BYTES_MAX: Final = 1 << 20
"""Bodies of up to so many bytes are converted at once, in some milliseconds; longer ones in a thread."""

# ---------------------------------------------------------------- SEND


_SESSION_ID = -1
_PRODUCER_VALUE = 1
"""ActiveMQ's number of the one producer of a STOMP connection: `<connection id>:-1:1:<n>`."""


class LargeMessage:
    """The message of a SEND frame with a long body, which a thread builds.

    Attributes:
        is_done: True after `build`.
        body: the frame's body.
    """

    __slots__ = ("_build", "_error", "_message", "body", "is_done")

    def __init__(self, body: bytes, build: Callable[[], Message]) -> None:
        self.body = body
        self.is_done = False
        self._build: Callable[[], Message] | None = build
        self._message: Message | None = None
        self._error: Exception | None = None

    def build(self) -> None:
        """Build it; in a thread. An error is kept for `built`."""
        build, self._build = self._build, None
        try:
            if build is not None:  # else it was dropped
                self._message = build()
        except Exception as error:  # of any kind, it concerns this frame
            self._error = error
        finally:
            self.is_done = True

    def drop(self) -> None:
        """Free the memory, and build nothing if that has not begun: the connection has ended."""
        self._build = self._message = None
        self.body = b""

    def built(self) -> Message:
        """Return the message, after `build`. Raises the error of `build`."""
        if self._error is not None:
            raise self._error
        assert self._message is not None, "it is built first"
        return self._message


class MessageReader:
    """Converts the SEND frames of one connection to messages of one producer.

    Attributes:
        large: the message of the next SEND, if it was built before.
    """

    __slots__ = ("_clock", "_names", "_next_sequence", "_producer_id", "_sequence", "_templates", "large")

    def __init__(
        self, connection_id: str, names: DestinationNames, clock: Clock, next_sequence: Callable[[], int]
    ) -> None:
        self._producer_id = ProducerId(connection_id, _SESSION_ID, _PRODUCER_VALUE)
        self._names = names
        self._clock = clock
        self._next_sequence = next_sequence
        self._sequence = 0
        self._templates: dict[str, MessageTemplate] = {}
        self.large: LargeMessage | None = None

    def read(self, headers: Mapping[str, str], body: bytes, transaction: TransactionId | None) -> Message:
        """Return the message of a SEND frame.

        Raises:
            RequestError: a header is missing or cannot be read.
        """
        if self.large is not None:
            large, self.large = self.large, None
            if large.body is body:
                return large.built()
        template = self._templates.get(headers.get("destination", "")) or self._template(headers)
        fields = self._fields(headers)
        if bodies.TRANSFORMATION in headers and "content-length" not in headers:
            kind, content = _transformed(fields.properties, headers, body)
        else:
            kind, content = _body(headers, body)
        self._sequence += 1
        return self._build(template, fields, kind, content, self._sequence, self._next_sequence(), transaction)

    def prepare(
        self, headers: Mapping[str, str], body: bytes, transaction: TransactionId | None
    ) -> LargeMessage | None:
        """Return the message of a SEND frame with a long body, to be built in a thread; None if `read` must build it.

        Raises:
            RequestError: a header is missing or cannot be read.
        """
        if bodies.TRANSFORMATION in headers and "content-length" not in headers:
            return None
        template = self._templates.get(headers.get("destination", "")) or self._template(headers)
        fields = self._fields(headers)
        self._sequence += 1
        sequence, broker_sequence = self._sequence, self._next_sequence()

        def build() -> Message:
            kind, pieces = _body_pieces(headers, body)
            return self._build(template, fields, kind, b"", sequence, broker_sequence, transaction, pieces)

        return LargeMessage(body, build)

    def _build(
        self,
        template: MessageTemplate,
        fields: SendFields,
        kind: MessageType,
        content: bytes,
        sequence: int,
        broker_sequence: int,
        transaction: TransactionId | None,
        pieces: Sequence[bytes] = (),
    ) -> Message:
        now = self._clock()
        return template.build(
            type=kind,
            sequence=sequence,
            broker_sequence=broker_sequence,
            content=content,
            pieces=pieces,
            properties=fields.properties,
            persistent=fields.persistent,
            timestamp=now if fields.timestamp is None else fields.timestamp,
            expiration=fields.expiration,
            priority=fields.priority,
            correlation_id=fields.correlation_id,
            reply_to=fields.reply_to,
            jms_type=fields.jms_type,
            group_id=fields.group_id,
            group_sequence=fields.group_sequence,
            transaction_id=transaction,
            broker_in_time=now,
        )

    def _template(self, headers: Mapping[str, str]) -> MessageTemplate:
        text = headers.get("destination", "")
        if not text.strip():
            raise StompRequestError(
                "SEND received without a Destination specified!", "Write for example destination:/queue/ORDERS."
            )
        template = MessageTemplate(self._producer_id, self._names.parse(text))
        cache_entry(self._templates, text, template)
        return template

    def _fields(self, headers: Mapping[str, str]) -> SendFields:
        fields = SendFields(self._names)
        properties = fields.properties
        for name, value in headers.items():
            setter = FIELDS.get(name)
            if setter is not None:
                setter(fields, value)
            else:
                properties[name] = value
        if not JMS_NAMES.isdisjoint(properties):
            for name in JMS_NAMES.intersection(properties):
                JMS_FIELDS[name](fields, properties.pop(name))
        if "amq-msg-type" in properties and "content-length" in headers:
            # ActiveMQ keeps it there, and JMS programs may read it.
            properties["content-length"] = headers["content-length"]
        return fields


def _transformed(properties: dict[str, str], headers: Mapping[str, str], body: bytes) -> tuple[MessageType, bytes]:
    """Return type and content as `transformation` requests; if that fails, a property has the reason."""
    try:
        transformed = bodies.read(headers[bodies.TRANSFORMATION], body)
    except NotTransformable as error:
        properties[bodies.ERROR] = str(error)
        transformed = None
    return transformed or _body(headers, body)


def _body(headers: Mapping[str, str], body: bytes) -> tuple[MessageType, bytes]:
    """Return the message's type, and its content in OpenWire's form."""
    requested = headers.get("amq-msg-type")
    if requested is None:
        if "content-length" in headers:
            return MessageType.BYTES, body
        try:
            return MessageType.TEXT, encode_text_utf8(body)
        except UnicodeDecodeError:
            return MessageType.BYTES, body
    match requested.strip().lower():
        case "bytes":
            return MessageType.BYTES, body
        case "text":
            try:
                return MessageType.TEXT, encode_text_utf8(body)
            except UnicodeDecodeError as error:
                raise StompRequestError(
                    "The body of a text message must be UTF-8",
                    f"Byte {error.start} is not; send amq-msg-type:bytes for anything else.",
                ) from error
        case _:
            raise StompRequestError(
                f"Unsupported message type '{shortened(requested)}'", "Write amq-msg-type:text or bytes."
            )


def _body_pieces(headers: Mapping[str, str], body: bytes) -> tuple[MessageType, Sequence[bytes]]:
    """Return what `_body` does for a long body, the content in pieces."""
    requested = headers.get("amq-msg-type")
    if "content-length" not in headers if requested is None else requested.strip().lower() == "text":
        try:
            return MessageType.TEXT, text_pieces(body)
        except UnicodeDecodeError:
            pass  # `_body` answers
    kind, content = _body(headers, body)
    return kind, (content,)


# ---------------------------------------------------------------- MESSAGE

_STANDARD = frozenset(
    {
        "subscription",
        "destination",
        "message-id",
        "ack",
        "expires",
        "priority",
        "timestamp",
        "correlation-id",
        "reply-to",
        "type",
        "JMSXUserID",
        "original-destination",
        "redelivered",
        "persistent",
        "transformation",
        "transformation-error",
        "content-length",
    }
)
"""Headers of MESSAGE that a property may have the name of."""

_BYTES = MessageType.BYTES
_TEXT = MessageType.TEXT
"""Module constants: looking a member up in its enum costs as much as a header, once per message and consumer."""


_INFLATION_MAX: Final = 1032
"""Bytes that one byte of a zlib stream can become."""

_Body = tuple[bytes, dict[str, str]]
"""A frame's body, and the headers that describe its form."""

_LargeBody = tuple[Sequence[bytes], dict[str, str]]
"""The same of a long body, which is in pieces."""

_LINE_CHARS: Final = 64 << 10
"""Characters of header lines that a thread escapes and encodes at once, while it keeps the interpreter."""


class SlowBody:
    """A message whose body or properties take long to decode and to render."""

    __slots__ = ("_error", "_fields", "_made", "_message", "_writer")

    def __init__(self, writer: "MessageWriter", message: Message, fields: OpenWireMessage | None = None) -> None:
        """Render nothing yet.

        Args:
            writer: renders it.
            message: the message.
            fields: its fields; None: they are decoded with the body.
        """
        self._fields = fields
        self._writer = writer
        self._message = message
        self._made: Rendered | None = None
        self._error: Exception | None = None

    def render(self) -> None:
        """Render it, unless it is there for another subscription; in a thread. An error is kept for `rendered`."""
        try:
            self._made = self._writer.render_shared(self._message, self._fields)
        except Exception as error:  # of any kind, it concerns this message
            self._error = error

    def rendered(self) -> Rendered:
        """Return the parts of the frame, after `render`. Raises the error of `render`."""
        if self._error is not None:
            raise self._error
        assert self._made is not None, "it is rendered first"
        return self._made


class MessageWriter:
    """Renders messages for one subscription."""

    __slots__ = (
        "_body_bytes_max",
        "_escape",
        "_form",
        "_heads",
        "_names",
        "_property_names",
        "_saw_bodiless",
        "_subscription_id",
        "_transformation",
        "_version",
    )

    def __init__(
        self,
        names: DestinationNames,
        version: Version,
        *,
        subscription_id: str | None,
        transformation: str | None,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        """Create a writer.

        Args:
            names: the client's names of destinations.
            version: the STOMP version, for its escapes.
            subscription_id: the `subscription` header; None for none.
            transformation: the form of maps, objects and advisories; see `transformation.bodies`.
            body_bytes_max: the limit to an inflated body.
        """
        self._body_bytes_max = body_bytes_max
        self._names = names
        self._version = version
        self._escape = ESCAPERS[version]
        self._subscription_id = subscription_id
        self._transformation = transformation
        self._form = _form(version, transformation)
        self._saw_bodiless = False
        self._heads: dict[Destination, str] = {}
        self._property_names: dict[str, str] = {}

    def write(self, delivery: Delivery, ack: str | None = None) -> bytes | SlowBody:
        """Return the MESSAGE frame of a delivery, or the body that has to be rendered first, as it may take long.

        Args:
            delivery: the delivery.
            ack: the `ack` header; None for none.

        Raises:
            MalformedOpenWire: the message's bytes do not decode.
        """
        message = delivery.message
        if len(message.data) > INLINE_BYTES_MAX:
            return SlowBody(self, message)
        fields = view(message)
        if fields.compressed and _is_slow(fields):
            return SlowBody(self, message, fields)
        rendered = fields.rendered
        if rendered is None or rendered[0] is not self._form:
            properties = fields.properties
            if not _STANDARD.isdisjoint(properties):
                return self._write_overridden(delivery, fields, ack, self.body(message, fields))
            rendered = self._render(message, fields, properties)
        _, lines, body = rendered
        return b"".join((self._frame_head(delivery, fields, ack, lines), body, FRAME_END))

    def write_rendered(self, delivery: Delivery, slow: SlowBody, ack: str | None = None) -> tuple[bytes, ...]:
        """Return the MESSAGE frame of a delivery whose body is rendered now, in pieces.

        Raises:
            MalformedOpenWire: the message's bytes do not decode.
        """
        made = slow.rendered()
        fields = made.fields
        if made.overriding:
            optional, size = _optional_headers(fields, {}), sum(map(len, made.pieces))
            head = self._overridden_head(delivery, fields, ack, made.overriding, optional, made.headers, size)
        else:
            head = self._frame_head(delivery, fields, ack, "")
        return (head, *made.lines, *made.pieces, FRAME_END)

    def _frame_head(self, delivery: Delivery, fields: OpenWireMessage, ack: str | None, lines: str) -> bytes:
        """Return a frame up to its body, with the lines that are the same for all consumers."""
        message = delivery.message
        head = self._heads.get(message.destination) or self._head(message.destination)
        if ack is not None:
            head += f"ack:{self._escape(ack)}\n"
        if delivery.redelivery_count:
            head += "redelivered:true\n"
        for name, value in self._own_headers(fields).items():
            head += f"{name}:{self._escape(value)}\n"
        return (head + lines).encode(errors="replace")

    def end_of_browsing(self, destination: str) -> bytes:
        """Return the frame that ends a browse."""
        headers = {"message-id": "0", "destination": destination, "browser": "end"}
        if self._subscription_id is not None:
            headers["subscription"] = self._subscription_id
        return encode_frame("MESSAGE", headers, b"", self._version)

    def _render(
        self, message: Message, fields: OpenWireMessage, properties: Mapping[str, Value]
    ) -> tuple[object, str, bytes]:
        """Return the form, the last lines of the head, and the body: the same for all consumers of that form.

        A topic's message keeps them for its next consumer. A queue's message has one consumer.
        """
        headers: dict[str, str] = {}
        if fields.type is _TEXT and self._transformation is None:
            body = _body_of(fields, self._body_bytes_max)
        else:
            body, headers = self.body(message, fields)
        lines = self._lines(message, fields, properties, _headers_with_length(fields, body, headers))
        rendered = (self._form, lines, body)
        if not message.destination.is_queue and len(body) <= message.size:  # what the cache of fields counts
            fields.rendered = rendered
        return rendered

    def _lines(
        self,
        message: Message,
        fields: OpenWireMessage,
        properties: Mapping[str, Value],
        optional_headers: Mapping[str, str],
    ) -> str:
        """Return the last lines of the head."""
        escape = self._escape
        lines = self._standard_lines(message, fields, optional_headers)
        names = self._property_names
        for name, held in properties.items():
            text = held if type(held) is str else java_text(held)
            lines += f"{names.get(name) or self._property_name(name)}{escape(text)}\n"
        return lines + "\n"

    def _standard_lines(self, message: Message, fields: OpenWireMessage, optional_headers: Mapping[str, str]) -> str:
        """Return the last lines of the head before the properties."""
        escape = self._escape
        lines = (
            f"message-id:{escape(message.message_id)}\n"
            f"expires:{message.expiration}\npriority:{message.priority}\ntimestamp:{fields.timestamp}\n"
        )
        if message.persistent:
            lines += "persistent:true\n"
        for name, value in optional_headers.items():
            lines += f"{name}:{escape(value)}\n"
        return lines

    def _line_pieces(self, lines: str, properties: Mapping[str, Value]) -> Iterator[bytes]:
        """Yield lines, those of properties, and the blank line, encoded, in pieces; in a thread."""
        escape = self._escape
        for name, held in properties.items():
            text = held if type(held) is str else java_text(held)
            lines += readable_name(name) + ":"
            start = 0
            while len(text) - start > _LINE_CHARS:
                yield (lines + escape(text[start : start + _LINE_CHARS])).encode(errors="replace")
                lines = ""
                start += _LINE_CHARS
            lines += escape(text[start:]) + "\n"
            if len(lines) > _LINE_CHARS:
                yield lines.encode(errors="replace")
                lines = ""
        yield (lines + "\n").encode(errors="replace")

    def _write_overridden(self, delivery: Delivery, fields: OpenWireMessage, ack: str | None, made: _Body) -> bytes:
        """Render with properties that override standard headers."""
        body, added = made
        optional = _headers_with_length(fields, body, {})
        head = self._overridden_head(delivery, fields, ack, fields.properties, optional, added, len(body))
        return b"".join((head, b"\n", body, FRAME_END))

    def _overridden_head(
        self,
        delivery: Delivery,
        fields: OpenWireMessage,
        ack: str | None,
        properties: Mapping[str, Value],
        optional_headers: Mapping[str, str],
        added: Mapping[str, str],
        size: int,
    ) -> bytes:
        """Return a frame up to its blank line, with properties that override standard headers, as in ActiveMQ.

        They cannot override headers that the client needs to acknowledge and to read the frame.

        Args:
            delivery: the delivery.
            fields: the message.
            ack: the `ack` header; None for none.
            properties: the properties.
            optional_headers: headers that only some messages have.
            added: headers that describe the body's form.
            size: the length of the body.
        """
        message = delivery.message
        headers = {
            "destination": self._names.write(message.destination),
            "message-id": message.message_id,
            "expires": str(message.expiration),
            "priority": str(message.priority),
            "timestamp": str(fields.timestamp),
        }
        if message.persistent:
            headers["persistent"] = "true"
        if delivery.redelivery_count:
            headers["redelivered"] = "true"
        headers |= {**optional_headers, **self._own_headers(fields)}
        headers |= {name: java_text(value) for name, value in properties.items()}
        if fields.user_id is not None:  # unlike ActiveMQ: a property could name another user
            headers["JMSXUserID"] = fields.user_id
        headers |= added
        if "content-length" in headers:
            headers["content-length"] = str(size)
        if self._subscription_id is not None:
            headers["subscription"] = self._subscription_id
        if ack is not None:
            headers["ack"] = ack
        return encode_frame("MESSAGE", headers, b"", self._version).removesuffix(_BLANK_LINE_AND_END)

    def _own_headers(self, fields: OpenWireMessage) -> dict[str, str]:
        """Return the optional headers that differ between consumers: temporary destinations have aliases."""
        headers: dict[str, str] = {}
        if fields.reply_to is not None:
            headers["reply-to"] = self._names.write(fields.reply_to)
        if fields.original_destination is not None:
            headers["original-destination"] = self._names.write(fields.original_destination)
        return headers

    def body(self, message: Message, fields: OpenWireMessage) -> _Body:
        """Return a frame's body, and the headers that describe its form; may run in a thread.

        Raises:
            MalformedOpenWire: it does not decode.
        """
        kind, requested, limit = fields.type, self._transformation, self._body_bytes_max
        if kind is _BYTES:
            return fields.body_bytes(limit), {}
        if requested is not None:
            transformed = bodies.render(fields, requested, limit)
            return transformed or (_body_of(fields, limit), {bodies.TRANSFORMATION: requested})
        if kind is _TEXT:
            return _body_of(fields, limit), {}
        if _is_advisory(message, fields) and fields.properties.get(bodies.TRANSFORMATION) is None:
            rendered = bodies.render(fields, None, limit)
            if rendered is not None:
                return rendered
        if fields.content and not self._saw_bodiless:
            self._saw_bodiless = True
            _log.info(
                "subscription %s gets %s messages without their bodies, the first from %s: "
                "SUBSCRIBE with transformation:jms-json renders maps and plain objects",
                self._subscription_id, kind.name.lower(), message.destination,
            )  # fmt: skip
        return b"", {}

    def render_shared(self, message: Message, fields: OpenWireMessage | None) -> Rendered:
        """Return what `render_large` does; a topic's message is rendered once for all that write it meanwhile."""
        if message.destination.is_queue or fields is not None:
            return self.render_large(message, fields)
        return shared(message, self._form, lambda: self.render_large(message, None))

    def render_large(self, message: Message, fields: OpenWireMessage | None) -> Rendered:
        """Render a message that is long, or becomes long when it is inflated; in a thread.

        Args:
            message: the message.
            fields: its fields; None: they are decoded here.

        Raises:
            MalformedOpenWire: it does not decode.
        """
        start = stop = 0
        if fields is None:
            fields, start, stop = decode_around_content(message.data)
        properties = fields.properties
        pieces, headers = self._large_body(message, fields, start, stop)
        overriding = {name: properties[name] for name in properties if name in _STANDARD}
        if overriding:
            others = {name: properties[name] for name in properties if name not in _STANDARD}
            return Rendered(fields, headers, overriding, list(self._line_pieces("", others)), pieces)
        lines = self._standard_lines(message, fields, _optional_headers(fields, dict(headers)))
        return Rendered(fields, headers, overriding, list(self._line_pieces(lines, properties)), pieces)

    def _large_body(self, message: Message, fields: OpenWireMessage, start: int, stop: int) -> _LargeBody:
        """Return a long body in pieces, and the headers that describe its form; in a thread.

        Args:
            message: the message.
            fields: its fields, which lack the content if `stop` is not 0.
            start: the offset of the content in the message's bytes.
            stop: the offset of its end.

        Raises:
            MalformedOpenWire: it does not decode.
        """
        kind = fields.type
        is_transformed = kind is not _BYTES and self._transformation is not None
        if stop and (fields.compressed or is_transformed):
            fields.content = message.data[start:stop]
        headers: dict[str, str] = {}
        pieces: Sequence[bytes]
        if fields.compressed and kind is _TEXT and not is_transformed and fields.content is not None:
            inflated = fields.body_bytes(self._body_bytes_max)
            pieces = _content_pieces(inflated, kind, 0, len(inflated))
        elif not stop or fields.compressed or is_transformed:
            body, headers = self.body(message, fields)
            pieces = (body,)
        else:
            pieces = _content_pieces(message.data, kind, start, stop)
        if kind is _BYTES or any(b"\0" in piece for piece in pieces):
            headers["content-length"] = str(sum(map(len, pieces)))
        return pieces, headers

    def _head(self, destination: Destination) -> str:
        """Return the first lines of every MESSAGE from a destination."""
        head = "MESSAGE\n"
        if self._subscription_id is not None:
            head += f"subscription:{self._escape(self._subscription_id)}\n"
        head += f"destination:{self._escape(self._names.write(destination))}\n"
        cache_entry(self._heads, destination, head)
        return head

    def _property_name(self, name: str) -> str:
        """Return a property's escaped name, with its colon."""
        written = readable_name(name) + ":"
        cache_entry(self._property_names, name, written)
        return written


_BLANK_LINE_AND_END: Final = b"\n" + FRAME_END

_FORMS: Mapping[tuple[Version, str], tuple[Version, str]] = {
    (version, name): (version, name) for version in Version for name in bodies.KNOWN
}


def _form(version: Version, transformation: str | None) -> object:
    """Return the identity of a form: one object for all subscriptions with the same rendering."""
    if transformation is None:
        return version
    return _FORMS.get((version, transformation)) or object()


def _is_advisory(message: Message, fields: OpenWireMessage) -> bool:
    return fields.jms_type == bodies.ADVISORY_TYPE or is_advisory(message.destination)


def _content_pieces(data: bytes, kind: MessageType, start: int, stop: int) -> Sequence[bytes]:
    """Return the body of an uncompressed content within a message's bytes, as `MessageWriter.body` does."""
    if kind is _TEXT:
        try:
            return utf8_pieces(data, start, stop)
        except MalformedOpenWire:
            start += _TEXT_LENGTH_BYTES  # as in `_body_of`
    elif kind is not _BYTES:
        return (b"",)
    return [data[at : min(at + _PIECE_BYTES, stop)] for at in range(start, stop, _PIECE_BYTES)]


_PIECE_BYTES: Final = 1 << 20
"""Bytes that are copied at once, for which a thread keeps the interpreter."""


def _optional_headers(fields: OpenWireMessage, headers: dict[str, str]) -> dict[str, str]:
    """Add the headers that only some messages have, and return all."""
    if fields.correlation_id is not None:
        headers["correlation-id"] = fields.correlation_id
    if fields.jms_type is not None:
        headers["type"] = fields.jms_type
    if fields.user_id is not None:
        headers["JMSXUserID"] = fields.user_id
    return headers


def _headers_with_length(fields: OpenWireMessage, body: bytes, headers: dict[str, str]) -> dict[str, str]:
    """Add the headers that only some messages have, the length of a body that needs it, and return all."""
    headers = _optional_headers(fields, headers)
    # ActiveMQ writes a text's NUL as the two bytes of Java's modified UTF-8. In standard UTF-8 it is one byte, which
    # would end the frame without a length.
    if fields.type is _BYTES or b"\0" in body:
        headers["content-length"] = str(len(body))
    return headers


def _is_slow(fields: OpenWireMessage) -> bool:
    """Return True if a compressed body may take long to render."""
    content = fields.content
    return (
        content is not None
        and len(content) * _INFLATION_MAX > INLINE_BYTES_MAX
        and not inflates_within(content, INLINE_BYTES_MAX, is_bytes_message=fields.type is _BYTES)
    )


def _body_of(fields: OpenWireMessage, limit: int) -> bytes:
    """Return a body that is not transformed: text as UTF-8, nothing for the other types."""
    if fields.type is not _TEXT:
        return b""
    try:
        return fields.text_utf8(limit) or b""
    except MalformedOpenWire:
        # ActiveMQ stores a STOMP client's text without decoding it. If it was no UTF-8, it is sent unchanged.
        return fields.body_bytes(limit)[_TEXT_LENGTH_BYTES:]


_TEXT_LENGTH_BYTES = 4
