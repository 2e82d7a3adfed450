"""The vectorised decoder agrees with the scalar one on every record: on real brokers' journals, and with damage."""

import base64
import hashlib
import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pybroker.store.columns.rows import RECORD_TYPES
from pybroker.store.columns.selection import Selection
from tests.unit.columns.agreement import assert_agreement, assert_same, scalar_rows, vector_rows

GOLDEN = Path(__file__).parents[2] / "golden" / "kahadb"
SAMPLES = sorted(path.name.removesuffix(".tar.gz") for path in GOLDEN.glob("*.tar.gz"))
JOURNALS = [*((name, "kahadb") for name in SAMPLES), ("09-scheduled", "scheduler")]


def unpack(name: str, kind: str, folder: Path) -> Path:
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name / kind


@pytest.mark.parametrize(("name", "kind"), JOURNALS)
def test_a_real_brokers_journal_reads_the_same(name: str, kind: str, tmp_path: Path) -> None:
    assert assert_agreement(unpack(name, kind, tmp_path))


@pytest.mark.parametrize("name", ["04-localtx-kill9", "10-corrupt-batch"])
def test_small_pieces_and_windows_read_the_same(name: str, tmp_path: Path) -> None:
    journal = unpack(name, "kahadb", tmp_path)
    expected = scalar_rows(journal)
    assert_same(vector_rows(journal, piece_bytes=8000), expected)
    assert_same(vector_rows(journal, window_bytes=3000), expected)


COUNTED = {
    "add": "add_message",
    "remove": "remove_message",
    "rmdest": "remove_destination",
    "audit": "producer_audit",
    "ackmap": "ack_message_file_map",
    "rewritten": "rewritten_data_file",
    "update": "update_message",
    "sub": "subscription",
}
"""Names in the samples' facts that differ from the table's."""


@pytest.mark.parametrize("name", [name for name in SAMPLES if name[:2] not in ("08", "10", "11")])
def test_record_types_count_as_in_the_journal(name: str, tmp_path: Path) -> None:
    facts = json.loads((GOLDEN / f"{name}.json").read_text())["journal_record_counts_replayed"]
    rows = vector_rows(unpack(name, "kahadb", tmp_path))
    assert not [row for row in rows if row["_corrupt_record"]]
    counted = Counter(str(row["record_type"]).replace("unsubscribe", "subscription") for row in rows)
    counted["subscription"] += counted.pop("subscribe", 0)
    assert +counted == {COUNTED.get(kind, kind): count for kind, count in facts.items()}


@pytest.mark.parametrize("name", [name for name in SAMPLES if name[:2] not in ("10",)])
def test_messages_are_shown_as_their_real_broker_shows_them(name: str, tmp_path: Path) -> None:
    facts = json.loads((GOLDEN / f"{name}.json").read_text())
    rows = vector_rows(unpack(name, "kahadb", tmp_path))
    stored = {
        (row["destination"], row["message_id"]): row
        for row in rows
        if row["record_type"] in ("add_message", "update_message")
    }
    compared = 0
    for queue, content in facts["truth_journal_only"]["queues"].items():
        for message in content["messages"]:
            row = stored[queue.removeprefix("queue://"), message["message_id"]]
            compare(row, message)
            compared += 1
    assert compared or name == "03-durable"


def compare(row: dict[str, Any], message: dict[str, Any]) -> None:
    assert f"ActiveMQ{row['message_type'].title()}Message".replace("MessageMessage", "Message") == message["class"]
    assert row["priority"] == message["priority"]
    assert row["producer_sequence"] == message["producer_sequence_id"]
    assert row["compressed"] == message["compressed"]
    assert round(row["timestamp"].timestamp() * 1000) == message["timestamp"]
    assert bool(row["expiration"]) == bool(message["expiration"])
    if "text_utf8_sha256" in message:
        assert hashlib.sha256(row["text"].encode()).hexdigest() == message["text_utf8_sha256"]
    properties = dict(row["properties"])
    for name, typed in message["properties"].items():
        assert same_value(properties[name], typed["v"]), (name, properties[name], typed)


def same_value(text: str, value: object) -> bool:
    if isinstance(value, dict):  # a string whose bytes Java has not looked at
        return text == base64.b64decode(value["data"]).decode()
    if isinstance(value, bool):
        return text == str(value).lower()
    return float(text) == value if isinstance(value, float) else text == str(value)


def test_selection_before_decoding_leaves_the_same_rows(tmp_path: Path) -> None:
    journal = unpack("01-mixed", "kahadb", tmp_path)
    rows = vector_rows(journal)
    names = {row["destination"] for row in rows} - {None}
    for record_type in (*RECORD_TYPES, "unknown"):
        for destination in (None, *sorted(names)):
            wanted = Selection(frozenset({record_type}), None if destination is None else frozenset({destination}))
            expected = [row for row in rows if wanted.takes(row)]
            assert_same(vector_rows(journal, selection=wanted), expected)
            assert_same(scalar_rows(journal, selection=wanted), expected)
