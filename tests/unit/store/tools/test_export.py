"""An export holds what a real broker found in the stores captured from it."""

import base64
import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    OpenWireMessageId,
    ProducerId,
    encode,
)
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from pybroker.store.journal.commands import Commit, Prepare, UpdateMessage
from pybroker.store.journal.tools.export import Export, scheduled
from pybroker.store.journal.tools.journal_snapshot import JournalSnapshot
from pybroker.store.journal.tools.stored_message_json import message_as_json
from tests.unit.store.tools.journals import OTHER, QUEUE, TOPIC, ack, add, message_id, subscribe, write

TX = LocalTransactionId("ID:c:1", 1)
XA = XATransactionId(1, b"g", b"b")
Item = dict[str, Any]

STORES = [
    "01-mixed",
    "02-consumed-gc",
    "03-durable",
    "04-localtx-kill9",
    "05-xa-indoubt-kill9",
    "06-priority",
    "07-large",
    "08-torn-tail",
    "09-scheduled",
    "10-corrupt-batch",
    "11-redelivered-updates",
]


def exported(directory: Path) -> list[Item]:
    """Return the lines as a program reads them."""
    with JournalSnapshot(directory) as snapshot:
        return [json.loads(json.dumps(item.as_json())) for item in Export(snapshot)]


def messages(directory: Path, destination: str) -> list[str]:
    return [each["message_id"] for each in exported(directory) if each.get("destination") == destination]


# ---------------------------------------------------------------- captured stores


@pytest.mark.parametrize("name", STORES)
def test_queues_and_their_order_are_what_a_real_broker_showed(sample: Callable[[str], Any], name: str) -> None:
    store = sample(name)
    found: dict[str, list[Item]] = {}
    for each in exported(store.kahadb):
        if each["kind"] == "message" and each["destination"].startswith("queue://"):
            found.setdefault(each["destination"], []).append(each)

    truth = store.facts["truth_journal_only"]["queues"]
    assert {name: [each["message_id"] for each in items] for name, items in found.items()} == {
        name: [each["message_id"] for each in contents["messages"]] for name, contents in truth.items()
    }
    for name, contents in truth.items():
        for item, true in zip(found[name], contents["messages"], strict=True):
            assert_same(item, true)


def assert_same(item: Item, true: Item) -> None:
    """Compare a message with what the real broker's client recorded of it."""
    headers = item["headers"]
    assert (headers["JMSPriority"], headers["JMSTimestamp"], headers["JMSExpiration"], headers["JMSRedelivered"]) == (
        true["priority"],
        true["timestamp"],
        true["expiration"],
        true["redelivered"],
    )
    for header, name in (("JMSCorrelationID", "correlation_id"), ("JMSType", "type"), ("JMSReplyTo", "reply_to")):
        assert headers.get(header) == true.get(name)
    assert item["properties"].keys() == true.get("properties", {}).keys()
    if "text_utf8_sha256" in true:
        assert hashlib.sha256(item["body"].encode()).hexdigest() == true["text_utf8_sha256"]
    for digest in ("body_sha256", "object_content_sha256"):
        if digest in true:
            assert item["encoding"] == "base64"
            assert hashlib.sha256(base64.b64decode(item["body"])).hexdigest() == true[digest]
    if "map" in true:
        assert item["body"].keys() == true["map"].keys()
    if "stream" in true:
        assert len(item["body"]) == len(true["stream"])


@pytest.mark.parametrize("name", STORES)
def test_subscriptions_are_what_a_real_broker_had(sample: Callable[[str], Any], name: str) -> None:
    store = sample(name)
    found = {
        (each["destination"], each["client_id"], each["name"]): each["pending"]
        for each in exported(store.kahadb)
        if each["kind"] == "subscription"
    }
    expected = {
        (topic, each["client_id"], each["name"]): each["store_pending_message_ids"]
        for topic, contents in store.facts["truth_journal_only"]["topics"].items()
        for each in contents["subscriptions"]
    }
    if name == "06-priority":
        found = {key: sorted(pending) for key, pending in found.items()}
        expected = {key: sorted(pending) for key, pending in expected.items()}
    assert found == expected


def test_transactions_in_doubt_hide_what_they_acknowledged(sample: Callable[[str], Any]) -> None:
    store = sample("05-xa-indoubt-kill9")
    transactions = [each for each in exported(store.kahadb) if each["kind"] == "transaction"]
    assert {each["transaction"] for each in transactions} == {
        f"XID:[{each['format_id']},globalId={each['gtrid_hex']},branchId={each['bqual_hex']}]"
        for each in store.facts["truth_journal_only"]["xa_in_doubt"]
    }
    assert [(len(each["sent"]), len(each["acknowledged"])) for each in transactions] == [(3, 2), (2, 0)]
    assert all(each["body"] for item in transactions for each in item["sent"] + item["acknowledged"])


def test_scheduled_messages_are_what_a_real_broker_had(sample: Callable[[str], Any]) -> None:
    store = sample("09-scheduled")
    found = [item.as_json() for item in scheduled(store.scheduler)]
    truth = store.facts["truth_journal_only"]["scheduled"]
    assert [
        (each["job_id"], each["next_execution_time"], each["cron"], each["delay"], each["period"], each["repeat"])
        for each in found
    ] == [
        (each["job_id"], each["next_execution_millis"], each["cron"], each["delay"], each["period"], each["repeat"])
        for each in truth
    ]
    assert [(each["body"], each["destination"]) for each in found] == [
        (each["text"], each["destination"]) for each in truth
    ]


# ---------------------------------------------------------------- by hand


def test_dispatch_order_is_by_priority_where_priorities_count(tmp_path: Path) -> None:
    write(
        tmp_path, [add(1, priority=4), add(2, priority=9), add(3, priority=0), add(4, priority=8), add(5, priority=9)]
    )
    assert messages(tmp_path, "queue://Q") == [message_id(number) for number in (2, 5, 4, 1, 3)]


def test_an_update_is_shown_as_it_is_now_at_its_old_place(tmp_path: Path) -> None:
    write(tmp_path, [add(1), add(2)], [UpdateMessage(add(1, text="x" * 5000))])
    items = [each for each in exported(tmp_path) if each["kind"] == "message"]
    assert [each["body"] for each in items] == ["x" * 5000, "text 2"]


def test_a_committed_message_is_there_and_an_open_one_is_not(tmp_path: Path) -> None:
    write(tmp_path, [add(1, transaction=TX), add(2, OTHER), Commit(TX), add(3, transaction=XA)])
    assert [(each["destination"], each["body"]) for each in exported(tmp_path)] == [
        ("queue://OTHER", "text 2"),
        ("queue://Q", "text 1"),
    ]


def test_a_prepared_ack_names_its_durable_subscription(tmp_path: Path) -> None:
    write(tmp_path, [subscribe("s"), add(1, TOPIC), ack(1, TOPIC, key="client:s", transaction=XA), Prepare(XA)])
    message, subscription, transaction = exported(tmp_path)
    assert (message["destination"], subscription["pending"]) == ("topic://T", [])
    assert [each["subscription"] for each in transaction["acknowledged"]] == ["client:s"]


def test_a_message_that_cannot_be_read_is_marked(tmp_path: Path) -> None:
    write(tmp_path, [add(1)])
    with JournalSnapshot(tmp_path) as snapshot:
        contents = Export(snapshot)
        assert not contents.is_damaged
        path = tmp_path / "db-1.log"
        path.write_bytes(bytes(len(path.read_bytes())))
        (found,) = [item.as_json() for item in contents]
        assert found["problem"]
        assert contents.is_damaged


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_has_not_are_text(value: float) -> None:
    fields = OpenWireMessage(
        type=MessageType.MESSAGE,
        destination=queue("Q"),
        message_id=OpenWireMessageId(None, ProducerId("ID:c", 1, 1), 1),
    )
    fields.set_properties({"n": value, "s": "\ud800", "b": b"\x01", "l": [1, {"x": None}]})
    item = json.loads(json.dumps(message_as_json(encode(fields)), allow_nan=False))
    assert item["properties"] == {
        "n": str(value),
        "s": "\ud800",
        "b": {"encoding": "base64", "bytes": "AQ=="},
        "l": [1, {"x": None}],
    }


def test_a_body_that_does_not_decode_is_shown_as_it_lies_there() -> None:
    fields = OpenWireMessage(type=MessageType.TEXT, content=b"\0\0\0\x09abc")
    item = message_as_json(encode(fields))
    assert (item["encoding"], base64.b64decode(item["body"])) == ("base64", b"\0\0\0\x09abc")
    assert item["problem"]
    assert message_as_json(b"\x63")["problem"]


def test_queues_come_before_topics_and_nothing_else_is_exported(tmp_path: Path) -> None:
    write(tmp_path, [subscribe("s"), add(1, TOPIC), add(2, QUEUE)])
    assert [each["kind"] for each in exported(tmp_path)] == ["message", "message", "subscription"]
    assert messages(tmp_path, "queue://Q") == [message_id(2)]
