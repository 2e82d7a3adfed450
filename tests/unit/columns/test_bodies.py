"""Bodies in the table: maps as JSON, and what only a body makes unusual; transactions inside messages."""

import json
import zlib
from pathlib import Path

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, encode
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, Short, Value, encode_map, encode_stream
from pybroker.broker.domain.transaction import TransactionId, XATransactionId
from pybroker.store.columns import vectors
from pybroker.store.columns.rows import Row, row_of
from pybroker.store.columns.schema import CORRUPT, Layer
from pybroker.store.journal.commands import AddMessage
from pybroker.store.journal.commands import encode as encode_command
from tests.unit.columns.agreement import assert_agreement, write_file

ORDERS = queue("ORDERS")


def added(
    kind: MessageType, content: bytes | None, *, compressed: bool = False, transaction_id: TransactionId | None = None
) -> bytes:
    producer = ProducerId("ID:h:1", 1, 1)
    message = OpenWireMessage(
        type=kind,
        destination=ORDERS,
        producer_id=producer,
        message_id=OpenWireMessageId(None, producer, 1),
        transaction_id=transaction_id,
        content=content,
        compressed=compressed,
    )
    return encode_command(AddMessage(ORDERS, "ID:h:1:1:1:1", encode(message)))


@pytest.fixture
def whole_rows(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collects the records that were decoded one by one, whole."""
    seen: list[bytes] = []

    def recorded(payload: bytes, wanted: frozenset[Layer]) -> Row:
        seen.append(payload)
        return row_of(payload, wanted)

    monkeypatch.setattr(vectors, "row_of", recorded)
    return seen


USUAL: dict[str, Value] = {
    "text": 'he said "no"\n\t\\ \x00 größe 日本',
    'na"me': "plain",
    "": None,
    "flag": True,
    "byte": Byte(-3),
    "char": Char('"'),
    "short": Short(-300),
    "int": 70_000,
    "long": Long(-(2**60)),
    "double": 1e10,
    "float": Float(1e10),
    "nan": float("nan"),
    "infinite": Float("-inf"),
    "large": "x" * 9000,
}


def test_maps_are_json_and_none_of_them_is_decoded_alone(tmp_path: Path, whole_rows: list[bytes]) -> None:
    usual = {name: value for name, value in USUAL.items() if name != "text"}
    maps: list[dict[str, Value]] = [usual, {}, {"a": "b"}, {"text": 'he said "no"\n\t\\ größe 日本'}] * 5
    write_file(tmp_path, [[added(MessageType.MAP, encode_map(each))] for each in maps])
    rows = assert_agreement(tmp_path)
    assert not whole_rows
    assert [json.loads(row["text"]) for row in rows] == [
        {name: plain(value) for name, value in each.items()} for each in maps
    ]


def plain(value: Value) -> Value:
    return {"nan": "NaN", "-inf": "-Infinity"}.get(str(value), value)


def test_only_an_unusual_body_is_decoded_alone(tmp_path: Path, whole_rows: list[bytes]) -> None:
    text = b"\x00\x00\x00\x05hello"
    squeezed = zlib.compress(text)
    bodies = [
        (added(MessageType.MAP, encode_map(USUAL)), '{"text":"he said'),
        (added(MessageType.MAP, encode_map({"list": [1, "a"], "map": {"b": b"raw"}})), '{"list":[1,"a"],"map"'),
        (added(MessageType.STREAM, encode_stream([True, "a"])), '[true,"a"]'),
        (added(MessageType.STREAM, None), "[]"),
        (added(MessageType.TEXT, squeezed, compressed=True), "hello"),
        (added(MessageType.MAP, zlib.compress(encode_map({"a": 1})), compressed=True), '{"a":1}'),
        (added(MessageType.TEXT, None), None),
        (added(MessageType.MAP, None), "{}"),
    ]
    write_file(tmp_path, [[payload for payload, _ in bodies] * 5])
    rows = assert_agreement(tmp_path)
    assert not whole_rows
    for row, (_, expected) in zip(rows, bodies * 5, strict=True):
        assert row[CORRUPT] is None
        assert row["text"] == expected or str(row["text"]).startswith(str(expected))


def test_a_body_that_does_not_decode_is_reported(tmp_path: Path) -> None:
    broken = [
        added(MessageType.MAP, b"\x00\x00\x00\x09\x00"),
        added(MessageType.MAP, encode_map({"a": "b"}) + b"x"),
        added(MessageType.STREAM, b"\x63"),
        added(MessageType.TEXT, b"not zlib", compressed=True),
        added(MessageType.TEXT, b"\x00\x00\x00\x09short"),
    ]
    write_file(tmp_path, [[*broken, added(MessageType.MAP, encode_map({"a": 1}))]])
    rows = assert_agreement(tmp_path)
    assert [row[CORRUPT] is None for row in rows] == [False] * 5 + [True]
    assert all(row["message_type"] for row in rows)


def test_a_message_of_an_xa_transaction_is_of_the_usual_shape(tmp_path: Path, whole_rows: list[bytes]) -> None:
    identity = XATransactionId(4660, b"global", b"")
    write_file(tmp_path, [[added(MessageType.BYTES, b"\xff\x00", transaction_id=identity)] * 3])
    assert [row["body"] for row in assert_agreement(tmp_path)] == [b"\xff\x00"] * 3
    assert not whole_rows
