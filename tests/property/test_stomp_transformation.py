# mypy: disable-error-code="arg-type"
"""Values as XML and JSON and back, and whatever bytes a client may send under the header transformation."""

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, Value, decode_map, encode_map
from pybroker.transports.stomp.transformation import bodies
from pybroker.transports.stomp.transformation.java_object import read_object, write_object
from pybroker.transports.stomp.transformation.tree import NotTransformable

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
SINGLES = st.floats(width=32, allow_nan=False).map(Float)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    SINGLES,
    st.floats(allow_nan=False),
    st.characters(max_codepoint=0xD7FF).map(Char),
    TEXTS,
)
VALUES = st.recursive(
    SCALARS | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS.filter(bool), inner, max_size=4),
    max_leaves=12,
)
MAPS = st.dictionaries(TEXTS.filter(bool), VALUES, max_size=5)

UNREADABLE_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""XML has no way to write these; we write what ActiveMQ writes for them, a reference, which no XML reader accepts."""


def has_unreadable(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_unreadable(each) for item in value.items() for each in item)
    if isinstance(value, list):
        return any(map(has_unreadable, value))
    return isinstance(value, str) and bool(UNREADABLE_IN_XML.search(value))


def shown(value: Value) -> Any:
    """Return a value so that its type counts where values are compared."""
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    return type(value), repr(value)


@pytest.mark.parametrize("kind", ["xml", "json"])
@given(body=MAPS)
def test_rendered_map_is_read_again(kind: str, body: dict[str, Value]) -> None:
    content = encode_map(body)
    rendered = bodies.render(OpenWireMessage(type=MessageType.MAP, content=content), f"jms-map-{kind}")
    assert rendered is not None
    text, headers = rendered
    assert headers == {"transformation": f"jms-map-{kind}"}
    assert b"\0" not in text
    if kind == "xml" and has_unreadable(body):
        return
    again = bodies.read(f"jms-map-{kind}", text)
    assert again is not None
    assert again[0] is MessageType.MAP
    if kind == "json" and has_interleaved(body):
        return
    assert shown(decode_map(again[1])) == shown(decode_map(content))


def has_interleaved(value: Any) -> bool:
    """Return True if a list mixes types: JSON groups them by type, in ActiveMQ as well, and their order is lost."""
    if isinstance(value, dict):
        return any(map(has_interleaved, value.values()))
    return isinstance(value, list) and (len({type(each) for each in value}) > 1 or any(map(has_interleaved, value)))


@given(value=SCALARS)
def test_written_object_is_read_again(value: Value) -> None:
    assert shown(read_object(write_object(value))) == shown(value)


@given(
    transformation=st.sampled_from(sorted(bodies.KNOWN)),
    body=st.binary(max_size=60) | st.text(alphabet='<>/&;map{}[]":,string0.1', max_size=60).map(str.encode),
)
def test_any_bytes_are_read_or_refused(transformation: str, body: bytes) -> None:
    with contextlib.suppress(NotTransformable):
        read = bodies.read(transformation, body)
        assert read is None or read[0] in (MessageType.MAP, MessageType.OBJECT)


@given(content=st.binary(max_size=60) | SCALARS.map(write_object), cut=st.integers(0, 60))
def test_any_object_is_shown_or_goes_as_it_is(content: bytes, cut: int) -> None:
    content = content[: len(content) - cut] if cut < len(content) else content
    rendered = bodies.render(OpenWireMessage(type=MessageType.OBJECT, content=content), "jms-json")
    assert rendered is not None
    text, headers = rendered
    assert (bodies.ERROR in headers) == (text == content and "content-length" in headers)
