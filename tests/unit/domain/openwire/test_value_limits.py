"""The number of values of properties: refused when sent, tolerated when they come from a store."""

from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import TooManyValues
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message, view
from pybroker.broker.domain.openwire.routing import routing
from pybroker.broker.domain.openwire.spotting import check_properties, marshalled_properties
from pybroker.broker.domain.openwire.values import (
    DECODED_VALUES_MAX,
    PROPERTY_VALUES_MAX,
    Byte,
    Char,
    Float,
    Long,
    Short,
    decode_map,
    encode_map,
    has_more_values,
)

KINDS: dict[str, Any] = {
    "null": None, "boolean": True, "byte": Byte(1), "char": Char("c"), "short": Short(2), "int": 3, "long": Long(4),
    "double": 1.5, "float": Float(2.5), "string": "text", "bytes": b"bytes", "big": "b" * 9000,
    "map": {"in": {"deep": [1, 2]}}, "list": [None, [b"x", "y"], {}],
}  # fmt: skip
VALUES = 14 + 1 + 1 + 2 + 3 + 2
"""All of `KINDS`: its entries, and what is in the map and in the list."""


def message(properties: bytes | None, **fields: Any) -> Message:
    producer = ProducerId("ID:h-1-2-0:1", 1, 1)
    sent = OpenWireMessage(
        type=MessageType.BYTES,
        message_id=OpenWireMessageId(None, producer, 1),
        producer_id=producer,
        destination=queue("Q"),
        marshalled_properties=properties,
        **fields,
    )
    return routing(to_message(sent).data)


def test_every_kind_of_value_counts_once() -> None:
    data = encode_map(KINDS)
    assert not has_more_values(data, VALUES)
    assert has_more_values(data, VALUES - 1)
    assert decode_map(data, VALUES) == KINDS
    with pytest.raises(MalformedOpenWire, match="more values"):
        decode_map(data, VALUES - 1)


@pytest.mark.parametrize("cut", range(len(encode_map(KINDS)) - 9000))
def test_counting_judges_nothing_else(cut: int) -> None:
    data = encode_map(KINDS)
    assert not has_more_values(data[:cut], VALUES)
    assert not has_more_values(data[:cut] + b"\xff" + data[cut + 1 :], 10**6)


@pytest.mark.parametrize("fields", [{}, {"content": b"c" * 20_000}, {"user_id": "u"}, {"content": b"", "user_id": "u"}])
def test_properties_are_found_whatever_else_there_is(fields: dict[str, Any]) -> None:
    properties = encode_map({"a": 1})
    assert marshalled_properties(message(properties, **fields)) == properties
    assert marshalled_properties(message(None, **fields)) is None


@pytest.mark.parametrize("content", [None, b"c" * 20_000])
def test_a_message_with_too_many_values_is_refused(content: bytes | None) -> None:
    most = encode_map({"list": [None] * (PROPERTY_VALUES_MAX - 2), "text": "t" * 70_000})
    check_properties(message(most, content=content))
    with pytest.raises(TooManyValues, match="10000"):
        check_properties(message(encode_map({"list": [None] * PROPERTY_VALUES_MAX}), content=content))


def test_stored_properties_decode_up_to_a_higher_limit() -> None:
    properties = {"list": [None] * (DECODED_VALUES_MAX - 1)}
    assert view(message(encode_map(properties))).properties == properties
    more = view(message(encode_map({"list": [None] * DECODED_VALUES_MAX})))
    with pytest.raises(MalformedOpenWire, match="more values"):
        _ = more.properties
