"""Messages as JSON: of every type, cut where they are large, damaged, and back again for a send."""

import base64
import json
import math
import zlib
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.node_requests import BrowsedRow, RequestFailed
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode
from pybroker.broker.domain.openwire.values import Byte, Char, Float, Long, encode_map, encode_stream
from pybroker.management.messages import BODY_MAX, PREVIEW_MAX, browsed_rows, message_json, page_json, to_send

WHERE = queue("A")


def row(message: OpenWireMessage | bytes, holder: tuple[str, str, str] | None = None) -> BrowsedRow:
    data = message if isinstance(message, bytes) else encode(message)
    state, text = "in flight" if holder else "waiting", base64.b64encode(data).decode()
    return BrowsedRow("ID:1", 7, state, 2, holder, len(data), text)


def shown(message: OpenWireMessage | bytes, body: str = "full") -> dict[str, Any]:
    found = message_json(row(message), body)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


@pytest.mark.parametrize(
    ("kind", "content", "word", "body"),
    [
        (MessageType.TEXT, encode_text('"><script>\0ä😀'), "text", '"><script>\0ä😀'),
        (MessageType.TEXT, None, "text", None),
        (MessageType.BYTES, b"\0\xff", "bytes", "AP8="),
        (MessageType.OBJECT, b"\xac\xed", "object", "rO0="),
        (
            MessageType.MAP,
            encode_map({"a": Long(1), "b": [Byte(2), Char("x")], "c": {"d": b"\1"}, "e": math.inf, "f": Float(0.5)}),
            "map",
            {"a": 1, "b": [2, "x"], "c": {"d": "AQ=="}, "e": "inf", "f": 0.5},
        ),
        (MessageType.STREAM, encode_stream([1, "b", None, True]), "stream", [1, "b", None, True]),
        (MessageType.MESSAGE, None, "none", None),
    ],
)
def test_each_type_has_a_body(kind: MessageType, content: bytes | None, word: str, body: Any) -> None:
    found = shown(OpenWireMessage(type=kind, destination=WHERE, content=content))
    assert (found["body_type"], found["body"], found["body_is_cut"]) == (word, body, False)


def test_headers_properties_and_holder() -> None:
    message = OpenWireMessage(
        type=MessageType.TEXT,
        destination=WHERE,
        original_destination=queue("B"),
        reply_to=queue("C"),
        correlation_id="c",
        priority=9,
        persistent=True,
        timestamp=5,
        expiration=6,
        group_id="g",
        group_sequence=3,
        user_id="anna",
        jms_type="t",
    )
    message.set_properties({"n": Long(3), "dlqDeliveryFailureCause": "it failed"})
    found = message_json(row(message, ("ID:c", "client", "ID:c:1:1")), "none")
    assert found["destination"], found["original_destination"] == ("queue://A", "queue://B")
    assert found["holder"] == {"connection_id": "ID:c", "client_id": "client", "consumer_id": "ID:c:1:1"}
    assert found["properties"] == {"n": 3, "dlqDeliveryFailureCause": "it failed"}
    assert found["dead_letter_cause"] == "it failed"
    assert (found["position"], found["state"], found["redelivery_count"]) == (7, "in flight", 2)
    assert (found["priority"], found["timestamp_ms"], found["expiration_ms"], found["user"]) == (9, 5, 6, "anna")


@pytest.mark.parametrize(
    ("kind", "content", "length"),
    [
        (MessageType.TEXT, encode_text("x" * 5000), len),
        (MessageType.BYTES, b"x" * 5000, lambda body: len(base64.b64decode(body))),
        (MessageType.STREAM, encode_stream([1] * 5000), len),
        (MessageType.MAP, encode_map({str(number): 1 for number in range(5000)}), len),
    ],
)
def test_a_preview_is_cut(kind: MessageType, content: bytes, length: Any) -> None:
    message = OpenWireMessage(type=kind, destination=WHERE, content=content)
    found = shown(message, "preview")
    assert (length(found["body"]), found["body_is_cut"]) == (PREVIEW_MAX, True)
    assert shown(message)["body_is_cut"] is False
    assert (shown(message, "none")["body"], shown(message, "none")["body_is_cut"]) == (None, True)


def test_what_does_not_decode_is_shown_as_damaged() -> None:
    assert shown(b"\x1c\0\0")["body_type"] == "damaged"
    message = OpenWireMessage(type=MessageType.MAP, destination=WHERE, content=b"\0\0\0\5x")
    assert shown(message)["body"] is None
    assert shown(message)["error"]
    bomb = OpenWireMessage(type=MessageType.TEXT, destination=WHERE, content=b"no zlib", compressed=True)
    assert "zlib" in shown(bomb)["error"]


def compressed(size: int) -> OpenWireMessage:
    content = zlib.compress(encode_text("x" * size))
    return OpenWireMessage(type=MessageType.TEXT, destination=WHERE, content=content, compressed=True)


def test_compressed_bodies_are_shown_up_to_a_limit() -> None:
    assert shown(compressed(5000))["body"] == "x" * 5000
    assert shown(compressed(BODY_MAX), "preview")["error"] == f"a compressed body of more than {BODY_MAX} bytes"
    large = row(compressed(BODY_MAX // 2 - 100))
    whole = [each["body"] is not None for each in page_json([large, large, large], "full")]
    assert whole == [True, True, False]
    assert [len(each["body"]) for each in page_json([large, large, large], "preview")] == [PREVIEW_MAX] * 3


def test_a_message_without_its_content_is_shown_as_cut() -> None:
    part = row(OpenWireMessage(type=MessageType.TEXT, destination=WHERE, jms_type="t"))._replace(size=1 << 30)
    found = message_json(part, "full")
    assert (found["size"], found["type"], found["body"], found["body_is_cut"]) == (1 << 30, "t", None, True)


def test_the_pieces_of_data_are_joined() -> None:
    rows = [("a", 1, "waiting", 0, None, 6, "AAEC"), ("AwQF",), ("b", 2, "waiting", 0, None, 0, "")]
    first, second = browsed_rows(rows)
    assert (base64.b64decode(first.data), second.message_id, second.data) == (bytes(range(6)), "b", "")
    assert browsed_rows([]) == []


def sent(fields: dict[str, Any]) -> OpenWireMessage:
    return decode(base64.b64decode(to_send(WHERE, fields, 1000)))


def test_a_message_to_send() -> None:
    fields = {
        "body": "ä",
        "persistent": False,
        "priority": 0,
        "time_to_live_ms": 50,
        "correlation_id": "c",
        "type": "t",
        "reply_to": "topic://R",
        "group_id": "g",
        "properties": {"n": 1, "s": "x", "b": True, "f": 0.5, "none": None},
    }
    message = sent(fields)
    assert (message.text(), message.persistent, message.priority, message.jms_type) == ("ä", False, 0, "t")
    assert (message.timestamp, message.expiration, str(message.reply_to)) == (1000, 1050, "topic://R")
    assert message.properties == fields["properties"]
    assert (sent({}).text(), sent({}).persistent, sent({}).expiration) == (None, True, 0)
    assert sent({"body": "AP8=", "body_type": "bytes"}).body_bytes() == b"\0\xff"
    assert sent({"body": {"a": 1}, "body_type": "map"}).map() == {"a": 1}


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"body": 1}, "the body of a text message is a text"),
        ({"body": "!", "body_type": "bytes"}, "base64"),
        ({"body": [], "body_type": "map"}, "the body of a map message is an object"),
        ({"body": {"a": {}}, "body_type": "map"}, "the body of a map message is an object"),
        ({"body_type": "object"}, "body_type is one of text, bytes, map"),
        ({"body_type": ["text"]}, "body_type is one of text, bytes, map"),
        ({"priority": 10}, "priority is a number from 0 to 9"),
        ({"priority": True}, "priority is a number"),
        ({"time_to_live_ms": -1}, "time_to_live_ms is a number from 0"),
        ({"persistent": "yes"}, "persistent is true or false"),
        ({"reply_to": ""}, "reply_to"),
        ({"correlation_id": 5}, "correlation_id is a text"),
        ({"properties": {"a": []}}, "properties is an object"),
        ({"properties": {"a": 1 << 64}}, "properties is an object"),
    ],
)
def test_fields_that_cannot_be_used_are_named(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(RequestFailed, match=word):
        to_send(WHERE, fields, 0)
