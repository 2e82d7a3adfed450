# mypy: disable-error-code="arg-type"
"""Bodies beside those that a stock ActiveMQ wrote and read; see tests/golden/stomp/README.md."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, to_message, view
from pybroker.broker.domain.openwire.values import Value
from pybroker.broker.domain.stomp.codec import FrameDecoder
from pybroker.broker.domain.stomp.frames import Frame, StompLimits, Version
from pybroker.transports.stomp.destinations import DestinationNames
from pybroker.transports.stomp.mapping import MessageReader, MessageWriter
from pybroker.transports.stomp.transformation import bodies
from pybroker.transports.stomp.transformation.java_object import read_object

GOLDEN = Path(__file__).parents[4] / "golden" / "stomp" / "transformations"


def golden(name: str) -> list[dict[str, Any]]:
    return json.loads((GOLDEN / f"{name}.json").read_text())


class Connection:
    """Makes no temporary destinations."""

    def create_temporary(self, kind: Destination) -> Destination:
        raise AssertionError(kind)


@pytest.fixture
def names() -> DestinationNames:
    return DestinationNames(Connection(), temporaries_max=1)


def written(names: DestinationNames, data: bytes, transformation: str | None) -> Frame:
    writer = MessageWriter(names, Version.V1_2, subscription_id="1", transformation=transformation)
    frame = writer.write(Delivery(to_message(decode(data)), 0))
    assert isinstance(frame, bytes)
    # The decoder reads a client's frames, in which a length counts on SEND alone.
    decoder = FrameDecoder(StompLimits())
    decoder.version = Version.V1_2
    return next(iter(decoder.feed(frame.replace(b"MESSAGE\n", b"SEND\n", 1))))


# ---------------------------------------------------------------- MESSAGE

OTHERWISE = {
    "string \0": "we read what a map's own strings are; ActiveMQ shows two replacement characters",
    "string a\0b": "as above",
    "string \U0001f600": "as above",
    "string \ud83d": "a surrogate without its partner is a question mark, as Java writes it elsewhere",
    "string \ude00x": "as above",
    "double 9.999999999999999E22": "the same number, in the shortest digits",
    "map with odd properties": "a content-length that is a property does not replace the frame's own",
    "compressed text": "text is UTF-8, and has a length where there is a NUL in it",
    "float 1.4E-45": "as above",
    "double 4.9E-324": "as above",
    "slash in key": "entries come in the order in which they are stored",
    "stream": "a missing form is reported in a header",
}

BEYOND = {
    "object int[] ", "object String[] ", "object char[] ", "object long[] ", "object Object[] ",
    "object StringBuilder sb", "object State NEW", "object char array slash",
}  # fmt: skip
"""Objects that ActiveMQ deserialises; we report in a header that we do not."""


@pytest.mark.parametrize(
    "case",
    [case for case in golden("rendered") if case["name"] not in OTHERWISE and case["name"] not in BEYOND],
    ids=lambda case: case["name"],
)
def test_rendered_body_is_the_one_activemq_writes(names: DestinationNames, case: dict[str, Any]) -> None:
    for transformation, theirs in case["frames"].items():
        frame = written(names, bytes.fromhex(case["message"]), transformation or None)
        if "closed" in theirs:
            assert frame.headers[bodies.ERROR]
            continue
        body = theirs["body"].encode() if "body" in theirs else bytes.fromhex(theirs["hex"])
        assert frame.body == body, transformation
        ours = {name: value for name, value in frame.headers.items() if name not in VOLATILE}
        assert ours == theirs["headers"], transformation


VOLATILE = {
    "destination", "expires", "message-id", "priority", "subscription", "timestamp", "persistent", "type",
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [case for case in golden("rendered") if case["name"] in BEYOND], ids=lambda c: c["name"]
)
def test_unknown_object_goes_as_it_is_with_a_reason(names: DestinationNames, case: dict[str, Any]) -> None:
    for transformation in case["frames"]:
        frame = written(names, bytes.fromhex(case["message"]), transformation)
        assert "no other object" in frame.headers[bodies.ERROR]
        assert frame.body == decode(bytes.fromhex(case["message"])).content
        assert frame.headers["content-length"] == str(len(frame.body))


@pytest.mark.parametrize("case", golden("advisories"), ids=lambda case: case["topic"].removeprefix("topic://ActiveMQ."))
def test_advisory_is_the_one_activemq_writes(names: DestinationNames, case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["message"])
    xml, by_default, asked = (written(names, data, each) for each in ("jms-xml", None, "jms-json"))
    assert xml.headers["transformation"] == "jms-advisory-xml"
    assert without_properties(xml.body.decode()) == without_properties(case["xml"])
    assert by_default.headers["transformation"] == asked.headers["transformation"] == "jms-advisory-json"
    assert by_default.body == asked.body
    if case["json"] is not None:
        assert without_properties(asked.body.decode()) == without_properties(case["json"])


def without_properties(text: str) -> str:
    """Leave out what ActiveMQ alone knows of a message: its properties unmarshalled, and its size with the body."""
    text = re.sub(r"<size>\d+</size>|\"size\":\d+,", "", text)
    text = re.sub(r"\n  <properties>.*?\n  </properties>", "", text, flags=re.DOTALL)
    return re.sub(r'"properties":\[.*?\}\],', "", text)


# ---------------------------------------------------------------- SEND


def read(names: DestinationNames, case: dict[str, Any]) -> OpenWireMessage:
    reader = MessageReader("ID:host-1-7", names, lambda: 0, lambda: 1)
    headers = {"destination": "/queue/q", "transformation": case["transformation"]} | case.get("headers", {})
    return view(reader.read(headers, case["body"].encode(), None))


def shown(value: Value) -> Any:
    """Return a value as the program that captured shows it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return f"byte[] {value.hex()}"
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()} | {"@": "java.util.HashMap"}
    if isinstance(value, list):
        return ["java.util.ArrayList", *map(shown, value)]
    kind = JAVA_NAMES.get(type(value).__name__, type(value).__name__)
    return f"{kind} {str(value).lower() if isinstance(value, bool) else java_text(value)}"


JAVA_NAMES = {"int": "Integer", "float": "Double", "str": "String", "bool": "Boolean", "Char": "Character"}


@pytest.mark.parametrize("case", golden("read"), ids=lambda case: f"{case['transformation']} {case['body'][:60]}")
def test_read_message_is_the_one_activemq_makes(names: DestinationNames, case: dict[str, Any]) -> None:
    message = read(names, case)
    if case["body"] in STRICTER:
        assert (message.type, message.body_bytes()[4:]) == (MessageType.TEXT, case["body"].encode())
        assert message.properties[bodies.ERROR]
        return
    if case["body"] in MORE:
        assert message.type.name.title() == case["transformation"].split("-")[1].title()
        return
    assert message.type.name.title() == case["type"]
    assert (bodies.ERROR in message.properties) == ("error" in case)
    if case["type"] == "Map" and case["body"] not in OTHER_VALUES:
        theirs = case["value"]
        assert {name: shown(value) for name, value in message.map().items()} == theirs
    if case["type"] == "Object" and not isinstance(case.get("value"), (dict, list)):
        # A null, for which it has no content, has an explicit form here.
        assert message.content == bytes.fromhex(case.get("content", "aced00057079"))
        assert shown(read_object(message.body_bytes())) == case.get("value")
    if case["type"] == "Text":
        assert message.text() == case["text"] if "text" in case else True


ENTRY = "<map><entry><string>k</string>{}</entry></map>"
JSON_ENTRY = '{{"map":{{"entry":{}}}}}'

STRICTER = {
    # XML is read as the standard has it, and nothing is declared in it.
    "<!DOCTYPE map><map/>",
    "<map/><map/>",
    ENTRY.format("<int>1</int>") + "trailing",
    ENTRY.format("<string>&#0;</string>"),
    ENTRY.format("<string>&#xD800;</string>"),
    # So is JSON.
    "{'map':{'entry':{'string':['k','v']}}}",
    "{map:{entry:{string:[k,v]}}}",
    JSON_ENTRY.format('{"string":["k","v"]}') + " trailing",
    '{"map":{"entry":{"string":["k","v"]}},}',
    JSON_ENTRY.format('{"string":["k","v",]}'),
    JSON_ENTRY.format('{"string":["k",007]}'),
    # Kinds that nothing here writes.
    ENTRY.format("<double>0x1p3</double>"),
    ENTRY.format('<properties><property name="a" value="b"/></properties>'),
    '<properties><property name="a" value="b"/></properties>',
    "<set><int>1</int></set>",
}
"""Bodies that ActiveMQ transforms, and that go as text with an error here."""

MORE = {
    *(ENTRY.format(f"<byte-array>{text}</byte-array>") for text in ("AQID", " AQ ID\n", "", "AQI=")),
    JSON_ENTRY.format('{"string":"k","byte-array":""}'),
    ENTRY.format("<int><b/>5</int>"),
    JSON_ENTRY.format('{"string":"k","double":1E400}'),
    next(case["body"] for case in golden("read") if '"byte-array":"AQID"},{"string":"c"' in case["body"]),
}
"""Bodies that go as text with an error in ActiveMQ: it writes byte arrays in maps, and refuses to read them."""

OTHER_VALUES = {
    # Numbers are text as they were written, where a string is wanted.
    *(JSON_ENTRY.format(f'{{"string":["k",{n}]}}') for n in ("1.50", "1e5", "0.10", "123456789012345678901234567890")),
    # An emoji arrives whole.
    ENTRY.format("<string>&#65;&#x1F600;</string>"),
    JSON_ENTRY.format('{"string":["k","\\ud83d\\ude00"]}'),
}
