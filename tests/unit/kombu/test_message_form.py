"""Messages there and back: what Kombu published is what it gets, and other languages are understood."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.domain.destination import queue
from pybroker.client import Message, UnreadableMessage
from pybroker.client.messages import Kind
from pybroker.kombu.message_form import incoming, outgoing

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def published(body: str | bytes, headers: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {
        "body": body,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": {"delivery_info": {}, **properties},
    }


def received(arguments: Any, **fields: Any) -> Message:
    """Return the message that a consumer gets of a send."""
    body, properties = arguments["body"], arguments["properties"]
    return Message(
        id="ID:1",
        destination=queue("q"),
        read_body=lambda: body,
        read_properties=lambda: properties,
        persistent=arguments.get("persistent", True),
        priority=arguments.get("priority", 4),
        correlation_id=arguments.get("correlation_id"),
        **fields,
    )


def foreign(body: Any, **fields: Any) -> Message:
    properties = fields.pop("properties", {})
    return Message(
        id="ID:1", destination=queue("q"), read_body=lambda: body, read_properties=lambda: properties, **fields
    )


@given(
    st.text() | st.binary(), st.dictionaries(st.text(), JSON, max_size=4), st.integers(0, 9), st.sampled_from([1, 2])
)
def test_a_message_comes_back_as_it_was(body, headers, priority, mode):
    message = published(
        body, headers, priority=priority, delivery_mode=mode, correlation_id="c", reply_to="r", message_id="m"
    )
    got = incoming(received(outgoing(message, "ex", "key")), 7, "q")
    assert {name: got[name] for name in ("body", "headers", "content-type", "content-encoding")} == {
        name: message[name] for name in ("body", "headers", "content-type", "content-encoding")
    }
    assert got["properties"] == {
        "priority": priority,
        "delivery_mode": mode,
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "delivery_tag": 7,
        "delivery_info": {"exchange": "ex", "routing_key": "key", "redelivered": False},
    }


def test_bodies_are_not_encoded():
    assert outgoing(published(b"\x80\x02", {}), "", "q")["body"] == b"\x80\x02"
    assert outgoing(published("[1]", {}), "", "q")["body"] == "[1]"


def test_a_task_can_be_selected_by_name():
    properties = outgoing(published("[]", {"task": "shop.pay", "id": "1", "eta": None}), "", "q")["properties"]
    assert (properties["celery_task"], properties["celery_id"]) == ("shop.pay", "1")
    assert json.loads(properties["kombu_headers"])["eta"] is None


@pytest.mark.parametrize(("given_priority", "expected"), [(None, 0), (0, 0), (9, 9), (255, 9), (-1, 0), ("x", 0)])
def test_a_priority_is_one_of_ten(given_priority, expected):
    assert outgoing(published("", {}, priority=given_priority), "", "q")["priority"] == expected


def test_an_expiration_becomes_the_brokers():
    assert outgoing(published("", {}, expiration="2500"), "", "q")["ttl"] == 2.5


def test_an_expiring_task_is_left_to_the_worker():
    """The broker would drop it, or make it a dead letter; the worker records that it is revoked."""
    message = published("", {"task": "t", "expires": "2026-01-01T00:00:00+00:00"}, expiration="1000")
    assert "ttl" not in outgoing(message, "", "q")


def test_a_transient_message_does_not_stay_for_ever():
    assert outgoing(published("", {}, delivery_mode=1), "", "q", transient_ttl=60)["ttl"] == 60
    assert "ttl" not in outgoing(published("", {}, delivery_mode=2), "", "q", transient_ttl=60)


def test_a_redelivered_message_says_so():
    got = incoming(received(outgoing(published("", {}), "", "q"), redelivery_count=1), 1, "q")
    assert got["properties"]["delivery_info"]["redelivered"] is True


def test_a_task_of_another_language_has_its_properties_as_headers():
    message = foreign(
        "[[1, 2], {}, {}]",
        properties={"task": "t", "id": "1", "JMSXGroupID": "g"},
        reply_to=queue("replies%2C1"),
        correlation_id="1",
    )
    got = incoming(message, 1, "celery")
    assert got["headers"] == {"task": "t", "id": "1"}
    assert (got["content-type"], got["content-encoding"]) == ("application/json", "utf-8")
    assert got["properties"]["reply_to"] == "replies,1"
    assert got["properties"]["delivery_info"]["routing_key"] == "celery"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [("no json", "text/plain"), (b"\x00", "application/data"), (None, "text/plain"), ({"a": 1}, "application/json")],
)
def test_a_foreign_body_has_a_type(body, content_type):
    assert incoming(foreign(body, kind=Kind.MESSAGE), 1, "q")["content-type"] == content_type


@pytest.mark.parametrize("headers", ["{", "[]", 5])
def test_headers_that_are_no_json_object_are_unreadable(headers):
    with pytest.raises(UnreadableMessage):
        incoming(foreign("", properties={"kombu_headers": headers}), 1, "q")
