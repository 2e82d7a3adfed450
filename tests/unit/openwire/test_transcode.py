"""Messages between clients of any version and the store: what passes as it is, and what is written again."""

import json
import tracemalloc
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire import message as stored_messages
from pybroker.broker.domain.openwire.commands import (
    ActiveMQBlobMessage,
    ActiveMQMessage,
    ActiveMQTextMessage,
    BrokerId,
    ConsumerId,
    KeepAliveInfo,
    MessageDispatch,
    OpenWireMessageId,
    ProducerId,
)
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, UnencodableOpenWire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.sources import VIEW_BYTES_MIN
from pybroker.broker.domain.openwire.marshal.transcode import (
    from_store,
    is_verbatim,
    layout_class,
    stored,
    stored_in_place,
)
from pybroker.broker.domain.transaction import LocalTransactionId

GOLDEN = Path(__file__).parents[2] / "golden" / "openwire" / "wire"

VERSIONS = range(1, 13)
CONSUMER = ConsumerId("ID:c", 1, 2)
PRODUCER = ProducerId("ID:p", 1, 1)

TEXT = ActiveMQTextMessage(
    command_id=9,
    response_required=True,
    producer_id=PRODUCER,
    destination=queue("Q"),
    transaction_id=LocalTransactionId("ID:p", 4),
    message_id=OpenWireMessageId(None, PRODUCER, 3),
    persistent=True,
    timestamp=1_700_000_000_000,
    content=b"\x00\x00\x00\x02hi",
    broker_path=(BrokerId("b"),),
)


def dispatch(message: ActiveMQMessage) -> MessageDispatch:
    return MessageDispatch(
        command_id=5, consumer_id=CONSUMER, destination=queue("E"), message=message, redelivery_counter=2
    )


def wires() -> list[WireFormat]:
    return [
        WireFormat(version, tight=tight, cache_size=size, reuse=size > 0)
        for version in VERSIONS
        for tight in (False, True)
        for size in (0, 1024)
    ]


def test_versions_fall_into_four_classes() -> None:
    assert [layout_class(version) for version in VERSIONS] == [1, 2, 3, 3, 3, 3, 3, 3, 3, 10, 10, 10]


def test_only_loose_uncached_v11_peers_get_the_stores_bytes() -> None:
    assert [(wire.version, wire.tight, wire.cache_size) for wire in wires() if is_verbatim(wire)] == [
        (version, False, 0) for version in (10, 11, 12)
    ]


def test_a_message_from_any_peer_is_stored_in_the_same_bytes() -> None:
    wanted = stored(TEXT)
    for wire in wires():
        message = wire.decode(wire.encode(TEXT))
        assert isinstance(message, ActiveMQMessage)
        assert stored(message) == wanted


def test_verbatim_peers_send_the_stores_own_bytes() -> None:
    for wire in filter(is_verbatim, wires()):
        assert wire.encode(TEXT) == stored(TEXT)


def test_what_is_stored_is_a_message_to_the_rest_of_the_broker() -> None:
    data = stored(TEXT)
    assert stored_messages.decode(data).text() == "hi"
    assert stored_messages.routing(data).message_id == "ID:p:1:1:3"
    assert from_store(data) == TEXT


def test_dispatch_equals_a_fresh_encoding_for_every_peer() -> None:
    data = stored(TEXT)
    for wire in wires():
        fresh = WireFormat(wire.version, tight=wire.tight, cache_size=wire.cache_size, reuse=wire.cache_size > 0)
        assert wire.encode(dispatch(from_store(data))) == fresh.encode(dispatch(TEXT))


def large(content: int = 4 * VIEW_BYTES_MIN, properties: int = 10) -> ActiveMQTextMessage:
    return replace(TEXT, content=b"c" * content, marshalled_properties=b"p" * properties)


@pytest.mark.parametrize("properties", [10, VIEW_BYTES_MIN])
@pytest.mark.parametrize("content", [10, VIEW_BYTES_MIN - 1, 4 * VIEW_BYTES_MIN])
def test_large_message_from_any_peer_is_stored_in_the_same_bytes(content: int, properties: int) -> None:
    wanted = stored(large(content, properties))
    for wire in wires():
        frame = BytesIO(wire.encode(large(content, properties)))
        message, start = wire.decode_large(frame)
        assert isinstance(message, ActiveMQMessage)
        assert (start >= 0) is ((content >= VIEW_BYTES_MIN) != (properties >= VIEW_BYTES_MIN))
        assert (stored(message) if start < 0 else stored_in_place(message, frame, start)) == wanted


def test_large_message_from_a_peer_is_stored_without_a_copy() -> None:
    wire = WireFormat(5)
    encoded = wire.encode(large())
    tracemalloc.start()
    try:
        frame = BytesIO()
        frame.write(encoded)
        before, _ = tracemalloc.get_traced_memory()
        message, start = wire.decode_large(frame)
        assert isinstance(message, ActiveMQMessage)
        stored_in_place(message, frame, start)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < VIEW_BYTES_MIN, "the frame's memory may have grown by an eighth"


def test_large_message_is_dispatched_without_a_copy() -> None:
    data = stored(large())
    for wire in wires():
        pieces = wire.encode_frame_pieces(dispatch(from_store(data)))
        fresh = WireFormat(wire.version, tight=wire.tight, cache_size=wire.cache_size, reuse=wire.cache_size > 0)
        assert b"".join(pieces) == fresh.encode_frame(dispatch(large()))
        assert [each.obj is data for each in pieces if isinstance(each, memoryview)] == [True]
        assert sum(len(each) for each in pieces if isinstance(each, bytes)) < 1000


def test_large_content_that_is_cut_short_is_malformed() -> None:
    for wire in wires():
        if not wire.tight:
            frame = BytesIO(wire.encode(large())[:-VIEW_BYTES_MIN])
            with pytest.raises(MalformedOpenWire):
                wire.decode_large(frame)


def test_only_messages_are_stored() -> None:
    with pytest.raises(MalformedOpenWire, match="KeepAliveInfo"):
        from_store(WireFormat().encode(KeepAliveInfo()))


def test_a_peer_that_knows_no_such_message_does_not_get_it() -> None:
    with pytest.raises(UnencodableOpenWire, match="ActiveMQBlobMessage"):
        WireFormat(2).encode(dispatch(from_store(stored(ActiveMQBlobMessage(remote_blob_url="http://x")))))


def test_golden_messages_transcode_to_javas_version_11() -> None:
    """Java's own version 11 frame is the same, as far as the other version has the fields."""
    cases: list[dict[str, Any]] = json.loads((GOLDEN / "index.json").read_text())["cases"]
    count = 0
    for case in cases:
        if "marshalledProperties" not in case["expected"] or case["expected"]["_type"] == "WireFormatInfo":
            continue
        for key, (offset, length) in case["at"].items():
            wire = WireFormat(int(key[1:3]), tight=key.endswith("tight"), stack_traces=True)
            frame = (GOLDEN / f"{key}.bin").read_bytes()[offset + 4 : offset + length]
            taken_in = wire.decode(frame)
            assert isinstance(taken_in, ActiveMQMessage)
            message = from_store(stored(taken_in))
            assert wire.encode(message) == frame
            if wire.version >= 10 and "v11-loose" in case["at"]:
                start, size = case["at"]["v11-loose"]
                assert stored(message) == (GOLDEN / "v11-loose.bin").read_bytes()[start + 4 : start + size]
            count += 1
    assert count > 400
