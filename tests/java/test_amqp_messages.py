"""Messages of AMQP clients as JMS and STOMP clients get them, and messages of JMS clients as AMQP clients get them."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import proton
import pytest

from tests.integration.cluster import free_port
from tests.integration.stomp_client import StompClient
from tests.integration.test_amqp import SECONDS, connect
from tests.java.checks import Outcomes, Programs
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

JAVA_OBJECT: Final = "application/x-java-serialized-object"
SERIALIZED: Final = b"\xac\xed\x00\x05t\x00\x05hello"
IDENTITY: Final = UUID("01234567-89ab-cdef-0123-456789abcdef")
NULL_VALUE: Final = b"\x00\x53\x77\x40"
FOOTER: Final = b"\x00\x53\x78\xc1\x06\x02\xa3\x01k\x54\x05"


class Ending(proton.Message):
    """A message with sections at its end that proton does not encode."""

    def __init__(self, end: bytes, **fields: Any) -> None:
        super().__init__(**fields)
        self._end = end

    def encode(self) -> bytes:
        return super().encode() + self._end


@dataclass
class Row:
    """A message of an AMQP client.

    Attributes:
        message: the message.
        type: the Java class without `ActiveMQ` and `Message`.
        body: the body in Java.
        encoding: the body's form in AMQP by its number; None: the message is kept as it came.
        fields: fields that are not the default.
        properties: properties besides those that every message of proton has.
        is_populated: fields and properties are converted.
        id: the message id, if it is the client's.
        stomp: the body that a STOMP client gets; that of a message that is kept as it came is the message.
    """

    message: proton.Message
    type: str
    body: Any
    encoding: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    is_populated: bool = True
    id: str | None = None
    stomp: bytes = b""

    def in_java(self) -> dict[str, Any]:
        properties = dict(self.properties)
        if self.is_populated:
            properties |= {"JMS_AMQP_HEADER": "Boolean true", "JMS_AMQP_PROPERTIES": "Boolean true"}
        if self.encoding is None:
            properties["JMS_AMQP_NATIVE"] = "Boolean true"
        else:
            properties["JMS_AMQP_ORIGINAL_ENCODING"] = f"Short {self.encoding}"
        if content_type(self.message):
            properties["JMS_AMQP_ContentType"] = f"String {content_type(self.message)}"
        name = f"ActiveMQ{self.type}Message"
        return {"class": name, "body": self.body, "id": self.id, "fields": self.fields, "properties": properties}


def content_type(message: proton.Message) -> str | None:
    """Return the content type of a message; proton has "None" for none."""
    found = str(message.content_type)
    return None if found == "None" else found


def sections(**fields: Any) -> proton.Message:
    return proton.Message(inferred=True, **fields)


def kept(body: Any, *, is_populated: bool = True, **more: Any) -> Row:
    """Return a row that is kept as it came."""
    message = proton.Message(body=body, **more)
    fields = {"persistent": True, "timestamp": "recent"}
    return Row(message, "Bytes", message.encode().hex(), fields=fields, is_populated=is_populated)


GROUP: Final = {"JMSXGroupID", "JMSXGroupSeq"}
"""Properties that are fields of a message, which STOMP has no headers for."""

ROWS: Final[dict[str, Row]] = {
    "none": Row(proton.Message(), "Bytes", "", 1),
    "none, octets": Row(proton.Message(content_type="application/octet-stream"), "Bytes", "", 1),
    "none, text": Row(proton.Message(content_type="text/plain"), "Text", None, 1),
    "none, object": Row(proton.Message(content_type=JAVA_OBJECT), "Object", None, 1),
    "none, other": Row(proton.Message(content_type="image/png"), "", None, 1),
    "data": Row(sections(body=b"\0\xff"), "Bytes", "00ff", 2, stomp=b"\0\xff"),
    "data, text": Row(sections(body="ä".encode(), content_type="text/plain"), "Text", "ä", 2, stomp="ä".encode()),
    "data, JSON": Row(sections(body=b"{}", content_type="application/json"), "Text", "{}", 2, stomp=b"{}"),
    "data, other charset": Row(
        sections(body=b"x", content_type="text/plain; charset=utf-16"), "Bytes", "78", 2, stomp=b"x"
    ),
    "data, no UTF-8": Row(sections(body=b"\xff", content_type="text/plain"), "Bytes", "ff", 2, stomp=b"\xff"),
    "data, object": Row(sections(body=SERIALIZED, content_type=JAVA_OBJECT), "Object", "String hello", 2),
    "sequence": Row(sections(body=[proton.int32(1), "x"]), "Stream", ["Integer 1", "String x"], 3),
    "null": Row(Ending(NULL_VALUE), "Text", None, 4),
    "string": Row(proton.Message(body="ä"), "Text", "ä", 5, stomp="ä".encode()),
    "binary": Row(proton.Message(body=b"\0\xff"), "Bytes", "00ff", 6, stomp=b"\0\xff"),
    "binary, object": Row(proton.Message(body=SERIALIZED, content_type=JAVA_OBJECT), "Object", "String hello", 6),
    "map": Row(
        proton.Message(body={"n": proton.int32(5), "b": b"\0", "m": {"x": 1.5}}),
        "Map",
        {"n": "Integer 5", "b": "byte[] 00", "m": "HashMap {x=1.5}"},
        7,
    ),
    "list": Row(proton.Message(body=[5, "x", None]), "Stream", ["Long 5", "String x", None], 8),
    "int": kept(proton.int32(5)),
    "boolean": kept(True),
    "double": kept(2.5),
    "uuid": kept(IDENTITY),
    "symbol": kept(proton.symbol("s")),
    "map, other keys": kept({proton.int32(1): "x"}),
    "map, unsigned": kept({"n": proton.uint(1)}),
    "list, binary": kept([b"x"]),
    "list, list": kept([[1]]),
    "header": Row(
        proton.Message(body="x", durable=True, priority=12, ttl=60, first_acquirer=True, delivery_count=2),
        "Text",
        "x",
        5,
        {"persistent": True, "priority": 9, "expiration": "recent"},  # only AMQP clients get its delivery-count
        {"JMS_AMQP_FirstAcquirer": "Boolean true"},
        stomp=b"x",
    ),
    "annotations": Row(
        proton.Message(body="x", annotations={proton.symbol("x-opt-a"): 1}),
        "Text",
        "x",
        5,
        properties={"JMS_AMQP_MA_x-opt-a": "Long 1"},
        stomp=b"x",
    ),
    "fields": Row(
        proton.Message(
            body="x",
            id="request 1",
            correlation_id=IDENTITY,
            user_id=b"alice",
            reply_to="topic://replies",
            subject="order",
            content_encoding="gzip",
            creation_time=1.5,
            group_id="g",
            group_sequence=5,
            reply_to_group_id="r",
            expiry_time=4e9,
        ),
        "Text",
        "x",
        5,
        {
            "timestamp": 1500,
            "expiration": 4_000_000_000_000,
            "correlation id": f"AMQP_UUID:{IDENTITY}",
            "reply to": "topic://replies",
            "type": "order",
            "user": "alice",
            "group": "g",
            "group sequence": 5,
        },
        {
            "JMS_AMQP_ContentEncoding": "String gzip",
            "JMS_AMQP_ReplyToGroupID": "String r",
            "JMSXGroupID": "String g",
            "JMSXGroupSeq": "Integer 5",
            "JMSXUserID": "String alice",
        },
        id="ID:request 1",
        stomp=b"x",
    ),
    "properties": Row(
        proton.Message(
            body="x",
            properties={
                "boolean": True,
                "byte": proton.byte(-1),
                "short": proton.short(2),
                "int": proton.int32(3),
                "long": 4,
                "float": proton.float32(1.5),
                "double": 2.5,
                "string": "ä",
                "ubyte": proton.ubyte(200),
                "ushort": proton.ushort(7),
                "uint": proton.uint(2**31),
                "ulong": proton.ulong(2**64 - 1),
                "char": proton.char("c"),
                "symbol": proton.symbol("s"),
                "binary": b"a\x01",
                "with-dash": "d",
                "JMSType": "order",
                "null": None,
            },
        ),
        "Text",
        "x",
        5,
        {"type": "order"},
        {
            "boolean": "Boolean true",
            "byte": "Byte -1",
            "short": "Short 2",
            "int": "Integer 3",
            "long": "Long 4",
            "float": "Float 1.5",
            "double": "Double 2.5",
            "string": "String ä",
            "ubyte": "Short 200",
            "ushort": "Short 7",
            "uint": f"Long {2**31}",
            "ulong": "Long -1",
            "char": "Character c",
            "symbol": "String s",
            "binary": "String a\\x01",
            "with-dash": "String d",
            "null": None,
        },
        stomp=b"x",
    ),
    "timestamp property": kept("x", is_populated=False, properties={"t": proton.timestamp(17)}),
    "footer": Row(Ending(FOOTER, body="x"), "Text", "x", 5, properties={"JMS_AMQP_FT_k": "Integer 5"}, stomp=b"x"),
}
"""The forms of bodies and the sections, each in a message."""


NATIVE: Final = (
    proton.Message(body="ä", durable=True, priority=7, subject="order", properties={"colour": "red"}),
    sections(body=b"\0\xff", correlation_id=IDENTITY),
)
"""Messages that are sent to a port that keeps them as they came."""


def described(value: Any) -> Any:
    """Return a value with the name of its type."""
    if isinstance(value, dict):
        return {str(key): described(item) for key, item in value.items()}
    if isinstance(value, list):
        return [described(item) for item in value]
    if isinstance(value, (bytes, memoryview)):
        return f"binary {bytes(value).hex()}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{type(value).__name__} {int(value)}"
    if isinstance(value, float):
        return f"{type(value).__name__} {float(value)}"
    return (
        None if value is None else f"{type(value).__name__} {str.__str__(value) if isinstance(value, str) else value}"
    )


class MessagePeer:
    """The AMQP client: does what the checks ask for."""

    def __init__(self, port: int, native_port: int, stack: ExitStack) -> None:
        self._connection = stack.enter_context(closing(connect(port)))
        self._native = stack.enter_context(closing(connect(native_port)))

    def do(self, _check: str, act: str) -> Any:
        match act.split():
            case ["send"]:
                for queue in ("amqp.received", "amqp.stomp"):
                    sender = self._connection.create_sender(queue)
                    for row in ROWS.values():
                        sender.send(row.message)
                return len(ROWS)
            case ["send", "native"]:
                sender = self._native.create_sender("amqp.native")
                for message in NATIVE:
                    sender.send(message)
                return len(NATIVE)
            case ["read", count]:
                return self._read(int(count))
            case _:
                raise AssertionError(act)

    def _read(self, count: int) -> list[object]:
        receiver = self._connection.create_receiver("amqp.sent", credit=count)
        found: list[object] = []
        for _ in range(count):
            found.append(seen(receiver.receive(timeout=SECONDS)))
            receiver.accept()
        return found


def seen(message: proton.Message) -> dict[str, Any]:
    """Return what a message has."""
    shown: dict[str, Any] = {
        "body": described(message.body),
        "inferred": message.inferred,
        "content type": content_type(message),
        "properties": described(message.properties or {}),
        "annotations": described(message.annotations or {}),
    }
    assert isinstance(message.id, str)
    assert message.id.startswith("ID:")
    usual = {"durable": False, "priority": 4, "subject": None, "reply_to": None, "correlation_id": None}
    usual |= {"group_id": None, "group_sequence": 0}
    fields = {name: getattr(message, name) for name in usual}
    shown["fields"] = {name: value for name, value in fields.items() if value != usual[name]}
    assert message.address == "queue://amqp.sent"
    if message.ttl:
        shown["fields"]["ttl"] = 50 < message.ttl <= 60
        shown["fields"]["expires"] = message.expiry_time - message.creation_time
    return shown


NONE: Final = {
    "body": None,
    "inferred": False,
    "content type": None,
    "properties": {},
    "annotations": {"x-opt-jms-dest": "byte 0"},
    "fields": {},
}
SENT: Final[dict[str, dict[str, Any]]] = {
    "text": {"body": "str Grüße"},
    "empty text": {"body": "str "},
    "null": {"body": None},
    "bytes": {"body": "binary 00ff", "inferred": True},
    "map": {
        "body": {
            "int": "int32 5",
            "long": "int 6",
            "byte": "byte 7",
            "short": "short 8",
            "float": "float32 1.5",
            "double": "float 2.5",
            "boolean": "bool True",
            "char": "char x",
            "string": "str Grüße",
            "bytes": "binary 00ff",
        }
    },
    "stream": {"body": ["int32 5", "str x", "binary 00ff"]},
    "object": {
        "body": f"binary {SERIALIZED[:6].hex()}0a{b'serialized'.hex()}79",
        "inferred": True,
        "content type": JAVA_OBJECT,
    },
    "plain": {},
    "properties": {
        "properties": {
            "boolean": "bool True",
            "byte": "byte -7",
            "short": "short 8",
            "int": "int32 5",
            "long": "int 6",
            "float": "float32 1.5",
            "double": "float 2.5",
            "string": "str Grüße",
        }
    },
    "fields": {
        "annotations": {"x-opt-jms-dest": "byte 0", "x-opt-jms-reply-to": "byte 1"},
        "fields": {
            "durable": True,
            "priority": 7,
            "subject": "order",
            "reply_to": "topic://amqp.replies",
            "correlation_id": "order 17",
            "group_id": "g",
            "group_sequence": 5,
            "ttl": True,
            "expires": 60.0,
        },
    },
}
"""The messages of a JMS client, in the order in which it sends them."""


@dataclass
class Observed:
    """The outcomes in Java, and a STOMP client's frames."""

    java: Outcomes
    stomp: dict[str, tuple[bytes, dict[str, str]]]


@pytest.fixture(scope="module")
def observed(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    openwire, port, native_port = free_port(), free_port(), free_port()
    file = tmp_path_factory.mktemp("amqp") / "pybroker.toml"
    file.write_text(f'[[listeners]]\nprotocol = "amqp"\nport = {native_port}\namqp_transformer = "native"\n')
    extra = ("--config", str(file), "--openwire", str(openwire), "--amqp", str(port), "--amqp-transformer", "jms")
    member = FollowedBroker("memory:", name="a", port=free_port(), extra=extra)
    try:
        member.wait_for("listening on")
        with ExitStack() as stack:
            peer = MessagePeer(port, native_port, stack)
            java = programs.area("AmqpMessages", f"tcp://127.0.0.1:{openwire}", answer=peer.do)
            stomp = stack.enter_context(closing(StompClient(member.port)))
            stomp.send("SUBSCRIBE", id="1", destination="/queue/amqp.stomp")
            frames = {name: stomp.read() for name in ROWS}
            yield Observed(java, {name: (frame.body, frame.headers) for name, frame in frames.items()})
    finally:
        member.close()


@pytest.mark.parametrize("number", range(len(ROWS)), ids=ROWS)
def test_jms_client_reads_amqp_message(observed: Observed, number: int) -> None:
    assert observed.java["received"][number] == list(ROWS.values())[number].in_java()


@pytest.mark.parametrize("name", ROWS)
def test_stomp_client_reads_amqp_message(observed: Observed, name: str) -> None:
    body, headers = observed.stomp[name]
    row = ROWS[name]
    assert body == (row.message.encode() if row.encoding is None else row.stomp)
    assert ("content-length" in headers) is (row.type == "Bytes")
    shown = {key: value.partition(" ")[2] for key, value in row.in_java()["properties"].items() if value is not None}
    assert {key: headers.get(key) for key in shown} == shown | dict.fromkeys(GROUP & shown.keys())


@pytest.mark.parametrize("number", range(len(SENT)), ids=SENT)
def test_amqp_client_reads_jms_message(observed: Observed, number: int) -> None:
    assert observed.java["sent"][number] == {**NONE, **list(SENT.values())[number]}


def test_jms_client_reads_native_amqp_messages(observed: Observed) -> None:
    found = observed.java["receivedNative"]
    assert [each["class"] for each in found] == ["ActiveMQBytesMessage"] * len(NATIVE)
    assert [each["body"] for each in found] == [message.encode().hex() for message in NATIVE]
    marks = {
        "JMS_AMQP_NATIVE": "Boolean true",
        "JMS_AMQP_HEADER": "Boolean true",
        "JMS_AMQP_PROPERTIES": "Boolean true",
    }
    assert [each["properties"] for each in found] == [{**marks, "colour": "String red"}, marks]
    assert [each["fields"] for each in found] == [
        {"persistent": True, "priority": 7, "timestamp": "recent", "type": "order"},
        {"persistent": True, "timestamp": "recent", "correlation id": f"AMQP_UUID:{IDENTITY}"},
    ]
