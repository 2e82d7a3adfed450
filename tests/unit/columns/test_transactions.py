"""Records' transactions where no column shows them: usual ones are not decoded, undecodable ones are reported."""

from pathlib import Path

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.transaction import LocalTransactionId, TransactionId, XATransactionId
from pybroker.store.columns import vectors
from pybroker.store.columns.rows import Row
from pybroker.store.columns.schema import CORRUPT, Layer
from pybroker.store.journal.commands import Command, CommandType, Commit, Prepare, RemoveMessage, Rollback, encode
from pybroker.store.journal.protobuf import bytes_field, number_field, text_field, varint
from tests.unit.columns.agreement import assert_agreement, vector_rows, write_file

SHOWN = ("offset", "record_type", "destination", "message_id", CORRUPT)

USUAL: list[TransactionId] = [
    LocalTransactionId("ID:h-1-2-0:1", 1),
    LocalTransactionId("ID:größe:1", 2**34),
    LocalTransactionId("", 0),
    LocalTransactionId("x" * 300, 127),
    XATransactionId(4660, b"global", b"branch"),
    XATransactionId(0, b"", b""),
    XATransactionId(2**31 - 1, b"\xff" * 64, b"\x00" * 64),
]


def commands(transaction: TransactionId) -> list[Command]:
    return [
        RemoveMessage(queue("A"), "ID:1", None, None, transaction),
        Prepare(transaction),
        Commit(transaction),
        Rollback(transaction),
    ]


def test_usual_ones_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path, [[encode(each) for identity in USUAL for each in commands(identity)]] * 2)
    assert_agreement(tmp_path)

    def refused(payload: bytes, wanted: frozenset[Layer]) -> Row:
        raise AssertionError(payload)

    monkeypatch.setattr(vectors, "row_of", refused)
    monkeypatch.setattr(vectors, "_transaction_text", refused)
    rows = vector_rows(tmp_path, SHOWN)
    assert [row["record_type"] for row in rows] == ["remove_message", "prepare", "commit", "rollback"] * len(USUAL) * 2


LOCAL = text_field(0x0A, "ID:h:1") + number_field(0x08, 7)
XA = number_field(0x08, 4660) + bytes_field(0x12, b"branch") + bytes_field(0x1A, b"global")

UNUSUAL = {
    "nothing": b"",
    "an empty local one": bytes_field(0x0A, b""),
    "an empty XA one": bytes_field(0x12, b""),
    "both": bytes_field(0x0A, LOCAL) + bytes_field(0x12, XA),
    "XA first": bytes_field(0x12, XA) + bytes_field(0x0A, LOCAL),
    "another field": bytes_field(0x0A, LOCAL) + number_field(0x18, 1),
    "one more field in it": bytes_field(0x0A, LOCAL + number_field(0x18, 1)),
    "its fields the other way round": bytes_field(0x0A, number_field(0x08, 7) + text_field(0x0A, "ID:h:1")),
    "no number": bytes_field(0x0A, text_field(0x0A, "ID:h:1")),
    "no connection": bytes_field(0x0A, number_field(0x08, 7)),
    "a number below 0": bytes_field(0x0A, text_field(0x0A, "ID:h:1") + number_field(0x08, -1)),
    "a number without an end": bytes_field(0x0A, text_field(0x0A, "ID:h:1") + b"\x08" + b"\xff" * 12),
    "a connection that is no UTF-8": bytes_field(0x0A, bytes_field(0x0A, b"\xc3") + number_field(0x08, 7)),
    "a connection as Java would write it": bytes_field(0x0A, bytes_field(0x0A, b"\xc0\x80") + number_field(0x08, 7)),
    "a connection that is longer than its field": bytes_field(0x0A, b"\x0a\x70ID:h:1\x08\x07"),
    "a local one that is longer than its field": b"\x0a\x70" + LOCAL,
    "an XA one without its format": bytes_field(0x12, XA[3:]),
    "an XA one without its branch": bytes_field(0x12, number_field(0x08, 1) + bytes_field(0x1A, b"global")),
    "an XA one without its transaction": bytes_field(0x12, number_field(0x08, 1) + bytes_field(0x12, b"branch")),
    "an XA one with a format below 0": bytes_field(0x12, number_field(0x08, -1) + XA[3:]),
    "an XA one in a local one's place": bytes_field(0x0A, XA),
    "a local one in an XA one's place": bytes_field(0x12, LOCAL),
}


@pytest.mark.parametrize("found", UNUSUAL.values(), ids=list(UNUSUAL))
def test_unusual_transactions_are_reported_alike(tmp_path: Path, found: bytes) -> None:
    """The bytes after each transaction could be a field of it, except for its length."""
    field = bytes_field(0x0A, found)
    move = bytes_field(0x12, number_field(0x08, 0) + text_field(0x12, "A")) + text_field(0x1A, "ID:1")
    payloads = [
        bytes((kind,)) + varint(len(body)) + body
        for kind, body in ((CommandType.REMOVE_MESSAGE, field + move), (CommandType.COMMIT, field))
    ]
    usual = [encode(each) for each in commands(USUAL[0])]
    write_file(tmp_path, [[*usual, *payloads, *usual]] * 2)
    assert len(assert_agreement(tmp_path)) == 2 * 10
