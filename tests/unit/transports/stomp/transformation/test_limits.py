"""Transformations have limits: none is slow, and none reads anything except the body."""

import json
from typing import cast

import pytest

from pybroker.broker.domain.openwire.java_text import java_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.values import decode_map, encode_map
from pybroker.transports.stomp.transformation import bodies
from pybroker.transports.stomp.transformation.java_object import read_object, write_object
from pybroker.transports.stomp.transformation.tree import BODY_BYTES_MAX, DEPTH_MAX, NODES_MAX, NotTransformable

ENTITIES = """<!DOCTYPE map [
<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
]><map><entry><string>k</string><string>&c;</string></entry></map>"""

EXTERNAL = """<!DOCTYPE map [<!ENTITY a SYSTEM "file:///etc/passwd">]><map><entry><string>k</string><string>&a;</string></entry></map>"""
EXTERNAL_SUBSET = """<!DOCTYPE map SYSTEM "http://127.0.0.1:1/map.dtd"><map/>"""
UNDECLARED = "<map><entry><string>k</string><string>&a;</string></entry></map>"


def nested(kind: str, depth: int) -> bytes:
    if kind == "xml":
        return b"<list>" * depth + b"</list>" * depth
    return b'{"list":' * depth + b'""' + b"}" * depth


@pytest.mark.parametrize("text", [ENTITIES, EXTERNAL, EXTERNAL_SUBSET])
def test_document_type_is_refused(text: str) -> None:
    with pytest.raises(NotTransformable, match="DOCTYPE"):
        bodies.read("jms-map-xml", text.encode())


def test_undeclared_entity_is_refused() -> None:
    with pytest.raises(NotTransformable, match="undefined entity"):
        bodies.read("jms-map-xml", UNDECLARED.encode())


@pytest.mark.parametrize(("text", "expected"), [("1e40", "Infinity"), ("-3.5e38", "-Infinity"), ("1e-60", "0.0")])
def test_float_out_of_range_is_read_as_java_does(text: str, expected: str) -> None:
    _, content = bodies.read("jms-object-xml", f"<float>{text}</float>".encode()) or (None, b"")
    assert java_text(cast("float", read_object(content))) == expected
    _, content = bodies.read(
        "jms-map-xml", f"<map><entry><string>k</string><float>{text}</float></entry></map>".encode()
    ) or (None, b"")
    assert java_text(cast("float", decode_map(content)["k"])) == expected


@pytest.mark.parametrize("kind", ["xml", "json"])
def test_nesting_beyond_the_limit_is_refused(kind: str) -> None:
    assert bodies.read(f"jms-object-{kind}", nested(kind, DEPTH_MAX - 1))
    for depth in (DEPTH_MAX + 1, 50_000):
        with pytest.raises(NotTransformable, match=r"nested|no JSON"):
            bodies.read(f"jms-object-{kind}", nested(kind, depth))


@pytest.mark.parametrize("kind", ["xml", "json"])
def test_elements_beyond_the_limit_are_refused(kind: str) -> None:
    body = b"<list>" + b"<null/>" * NODES_MAX + b"</list>"
    if kind == "json":
        body = json.dumps({"list": {"null": [""] * NODES_MAX}}).encode()
    with pytest.raises(NotTransformable, match="elements"):
        bodies.read(f"jms-object-{kind}", body)


def test_body_beyond_the_limit_is_refused() -> None:
    with pytest.raises(NotTransformable, match="bytes"):
        bodies.read("jms-object-xml", b"<string>" + b"x" * BODY_BYTES_MAX + b"</string>")


def test_map_beyond_the_limit_goes_as_it_is_with_a_reason() -> None:
    content = encode_map({"k": b"x" * BODY_BYTES_MAX})
    rendered = bodies.render(OpenWireMessage(type=MessageType.MAP, content=content), "jms-json")
    assert rendered is not None
    assert rendered[0] == content
    assert str(BODY_BYTES_MAX) in rendered[1][bodies.ERROR]


def test_map_of_too_many_values_goes_as_it_is_with_a_reason() -> None:
    content = encode_map({"k": [None] * NODES_MAX})
    rendered = bodies.render(OpenWireMessage(type=MessageType.MAP, content=content), "jms-xml")
    assert rendered is not None
    assert rendered[0] == content
    assert "elements" in rendered[1][bodies.ERROR]


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe",
        b"<map><entry><string>k</string><string>\xff</string></entry></map>",
        b"<map",
        b"{",
        b"null",
        b'{"map":{"entry":{"string":["k","\\ud800"]}}}',
        b'{"map":{"entry":{"string":"k","int":' + b"9" * 10_000 + b"}}}",
        b'{"map":{"entry":{"string":"k","double":' + b"9" * 10_000 + b"e999999999}}}",
        b"<" + b"n" * 100_000 + b"/>",
        b'{"' + b"n" * 100_000 + b'":1}',
        b"<map><entry><string>k</string><int>" + b"9" * 100_000 + b"</int></entry></map>",
        b"<map><entry><string>k</string><byte-array>" + b"9" * 100_001 + b"</byte-array></entry></map>",
        b"<map><" + b"n" * 100_000 + b"></map>",
        b'{"map":{"entry":{"string":["' + b"k" * 70_000 + b'","v"]}}}',
    ],
)
def test_odd_body_is_read_or_refused(body: bytes) -> None:
    reasons: list[str] = []
    for transformation in ("jms-map-xml", "jms-map-json", "jms-object-xml", "jms-object-json"):
        try:
            assert bodies.read(transformation, body)
        except NotTransformable as error:
            reasons.append(str(error))
    assert all(len(reason) < 300 for reason in reasons)


@pytest.mark.parametrize("damage", range(1, 60))
def test_damaged_object_is_read_as_nothing_else(damage: int) -> None:
    whole = write_object(7)
    with pytest.raises(NotTransformable):
        read_object(whole[: -damage - 1] if damage % 2 else whole + b"\0" * damage)
