"""Compressed bodies are those of ActiveMQ, and everything around them stays."""

import zlib
from dataclasses import replace

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.network.compression import BODY_BYTES_MIN, compressed
from pybroker.broker.domain.openwire.body import encode_text, inflate, inflate_bytes_message
from pybroker.broker.domain.openwire.commands import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode
from tests.unit.domain.network.recorded import conversations

PRODUCER = ProducerId("ID:c", 1, 1)
TEXT = encode_text("the same again and again, " * 100)


def message(content: bytes | None, kind: MessageType = MessageType.TEXT) -> OpenWireMessage:
    """Return a message with most fields."""
    return decode(
        encode(
            OpenWireMessage(
                type=kind,
                producer_id=PRODUCER,
                destination=queue("Q"),
                message_id=OpenWireMessageId(None, PRODUCER, 7),
                group_id="G",
                correlation_id="C",
                reply_to=queue("R"),
                jms_type="J",
                content=content,
                marshalled_properties=b"\x00\x00\x00\x00",
                broker_path=("ID:a", "ID:b"),
                redelivery_counter=3,
                user_id="U",
            )
        )
    )


@pytest.mark.parametrize("kind", [MessageType.TEXT, MessageType.MESSAGE, MessageType.BYTES])
def test_body_is_compressed_and_all_else_is_kept(kind: MessageType) -> None:
    before = message(TEXT, kind)
    after = decode(compressed(encode(before)))
    assert after.compressed
    assert after.content is not None
    assert len(after.content) < len(TEXT)
    read = inflate_bytes_message if kind is MessageType.BYTES else inflate
    assert read(after.content) == TEXT
    assert replace(after, content=TEXT, compressed=False) == before


@pytest.mark.parametrize("content", [None, b"", TEXT[: BODY_BYTES_MIN - 1], bytes(range(256))])
def test_body_that_gains_nothing_is_left_alone(content: bytes | None) -> None:
    data = encode(message(content))
    assert compressed(data) is data


def test_compressed_body_is_left_alone() -> None:
    data = encode(replace(message(zlib.compress(TEXT, 0)), compressed=True))
    assert compressed(data) is data


def test_message_that_is_cut_short_is_refused() -> None:
    data = encode(message(TEXT))
    with pytest.raises(MalformedOpenWire):
        compressed(data[: len(data) // 2])


def test_body_that_activemq_compressed_is_read_and_left_alone() -> None:
    found = [
        bytes.fromhex(frame["hex"])[4:]
        for frame in conversations()["asyncsend"]["frames"]
        if frame["from"] == "initiator" and frame["command"].get("compressed")
    ]
    assert found
    for each in found:
        content = decode(each).content
        assert content is not None
        assert inflate(content)[:4] == (len(inflate(content)) - 4).to_bytes(4)
        assert compressed(each) is each
