# mypy: disable-error-code="operator"
"""A message as JSON: what is written is read back to the same bytes on the wire; other JSON is refused."""

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.app.message_json import InvalidInput, Parcel, as_json, dumps, from_json
from pybroker.broker.domain.destination import Destination, DestinationType
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, encode_map
from pybroker.client.messages import Kind
from pybroker.client.openwire_messages import encode_body, received

text = st.text(st.characters(max_codepoint=0x10FFFF, exclude_categories=()), max_size=20).map(
    lambda found: found.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # pairs are one character
)
longs = st.integers(-(2**63), 2**63 - 1)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    longs.map(Long),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.characters(max_codepoint=0xFFFF, exclude_categories=()).map(Char),
    st.floats().map(lambda found: math.nan if math.isnan(found) else found),
    st.floats(width=32).map(lambda found: Float(math.nan if math.isnan(found) else found)),
    text,
    st.binary(max_size=20),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=10
)
maps = st.dictionaries(text, values, max_size=5)
bodies = st.one_of(
    st.tuples(st.just(Kind.MESSAGE), st.none()),
    st.tuples(st.just(Kind.TEXT), st.none() | text),
    st.tuples(st.just(Kind.BYTES), st.binary(max_size=50)),
    st.tuples(st.just(Kind.OBJECT), st.none() | st.binary(max_size=50)),
    st.tuples(st.just(Kind.MAP), maps),
    st.tuples(st.just(Kind.STREAM), st.lists(values, max_size=5)),
    st.tuples(
        st.just(Kind.BLOB),
        st.fixed_dictionaries(
            {"url": st.none() | text, "mime_type": st.none() | text, "deleted_by_broker": st.booleans()}
        ),
    ),
)
destinations = st.builds(
    Destination,
    st.sampled_from(DestinationType),
    st.text(st.characters(codec="utf-8", categories=("L", "N")), min_size=1, max_size=20),
)
headers = st.fixed_dictionaries(
    {
        "destination": destinations,
        "persistent": st.booleans(),
        "priority": st.integers(0, 9),
        "timestamp": longs,
        "expiration": longs,
        "reply_to": st.none() | destinations,
        "correlation_id": st.none() | text,
        "jms_type": st.none() | text,
        "group_id": st.none() | text,
        "group_sequence": st.integers(-(2**31), 2**31 - 1),
    }
)


def _message(kind: Kind, body: Any, properties: dict[str, Any], fields: dict[str, Any]) -> wire.ActiveMQMessage:
    make, content = encode_body(body, kind)
    return make(content=content, marshalled_properties=encode_map(properties) if properties else None, **fields)


def _sent_on(parcel: Parcel) -> wire.ActiveMQMessage:
    rest: dict[str, Any] = dict(parcel.headers)
    kind, properties = rest.pop("kind"), rest.pop("properties", {})
    given = {"reply_to", "correlation_id", "group_id", "group_sequence"} & rest.keys()
    fields = {name: rest.pop(name) for name in ("persistent", "priority", "timestamp", "expiration", *given)}
    fields["jms_type"] = rest.pop("type", None)
    assert not rest
    return _message(kind, parcel.body, properties, fields | {"destination": parcel.destination})


@given(bodies, maps, headers)
def test_message_through_json_is_the_same_on_the_wire(
    body: tuple[Kind, Any], properties: dict[str, Any], fields: dict[str, Any]
) -> None:
    original = _message(*body, properties, fields)
    line = dumps(as_json(received(wire.MessageDispatch(), original)))

    assert b"\n" not in line
    assert _sent_on(from_json(line)) == original


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "value", "headers", "properties", "body", "encoding", "JMSPriority", "x"]), inner
        )
    ),
)


@given(junk | st.fixed_dictionaries({"type": st.sampled_from(list(Kind)), "body": junk}))
def test_any_json_is_a_message_or_refused(found: Any) -> None:
    try:
        parcel = from_json(json.dumps(found))
    except InvalidInput:
        return
    assert parcel.headers["kind"] in Kind


@pytest.mark.parametrize("line", ["", "{", "[]", "1", '{"typ": 1}', '{"headers": {"JMSPriority": 10}}', "[" * 100_000])
def test_line_that_is_no_message_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput):
        from_json(line)


def test_float_keeps_its_bits() -> None:
    single = struct.unpack(">f", b"\x3d\xcc\xcc\xcd")[0]
    original = _message(
        Kind.STREAM, [Float(single), -0.0], {}, {"destination": Destination(DestinationType.QUEUE, "Q")}
    )
    assert _sent_on(from_json(dumps(as_json(received(wire.MessageDispatch(), original))))).content == original.content
