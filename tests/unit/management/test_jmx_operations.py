"""Operations of MBeans: what each asks of the node, and what it returns."""

import asyncio
import base64
import json
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.node_requests import BrowsedRow, RequestFailed
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode
from pybroker.broker.domain.openwire.values import Byte, Float, Long, Short, encode_map
from pybroker.management import messages
from pybroker.management.jmx_actions import composites
from tests.unit.management.brokers import METHODS
from tests.unit.management.simulated import site

BROKER = "org.apache.activemq:type=Broker,brokerName=B"
ORDERS = f"{BROKER},destinationType=Queue,destinationName=ORDERS"
PRICES = f"{BROKER},destinationType=Topic,destinationName=PRICES"
CONSUMER = f"{BROKER},destinationType=Topic,destinationName=PRICES,endpoint=Consumer"
LISTENER = f"{BROKER},connector=clientConnectors,connectorName=openwire"
CONNECTOR = f"{BROKER},connector=networkConnectors,networkConnectorName=hub"
CONNECTION = f"{LISTENER},connectionViewType=clientId,connectionName=app"
SCHEDULER = f"{BROKER},service=JobScheduler,name=JMS"
WHO = {"user": "anonymous", "address": "127.0.0.1"}
DONE = {"affected": 3, "error": None}


def call(
    mbean: str, operation: str, *arguments: Any, methods: Mapping[str, Any] | None = None
) -> tuple[Any, list[tuple[str, Mapping[str, Any]]]]:
    """Return the answer, and what the node was asked to do."""

    async def run() -> Any:
        async with site({**METHODS, **(methods or {})}) as there:
            request = {"type": "exec", "mbean": mbean, "operation": operation, "arguments": list(arguments)}
            status, answer = await there.ask("/api/jolokia", "POST", request)
            assert status == 200
            return answer, [each for each in there.node.asked if each[0] not in METHODS]

    return asyncio.run(run())


def change(operation: str, **arguments: Any) -> Any:
    nothing = {"selector": None, "message_ids": None, "maximum": None, "target": None}
    return "change", {"operation": operation, "queue": "ORDERS", **WHO} | nothing | arguments


@pytest.mark.parametrize(
    ("operation", "arguments", "asked", "value"),
    [
        ("purge", (), change("remove"), None),
        ("removeMatchingMessages", ("n > 1",), change("remove", selector="n > 1"), 3),
        ("removeMatchingMessages", ("", 2), change("remove", maximum=2), 3),
        ("removeMatchingMessages", (None, "-1"), change("remove"), 3),
        ("removeMessage", ("ID:1",), change("remove", message_ids=["ID:1"]), True),
        ("moveMatchingMessagesTo", ("n = 1", "X"), change("move", selector="n = 1", target="queue://X"), 3),
        ("moveMatchingMessagesTo", ("", "topic://T", 5), change("move", maximum=5, target="topic://T"), 3),
        ("moveMessageTo", ("ID:1", "X"), change("move", message_ids=["ID:1"], target="queue://X"), True),
        ("copyMatchingMessagesTo", ("", "X"), change("copy", target="queue://X"), 3),
        ("copyMessageTo", ("ID:1", "X"), change("copy", message_ids=["ID:1"], target="queue://X"), True),
        ("retryMessages", (), change("retry"), 3),
        ("retryMessage", ("ID:1",), change("retry", message_ids=["ID:1"]), True),
        ("pause", (), ("pause", {"queue": "ORDERS", **WHO}), None),
        ("resume()", (), ("resume", {"queue": "ORDERS", **WHO}), None),
        (
            "copyMatchingMessagesTo(java.lang.String, java.lang.String)",
            ("", "X"),
            change("copy", target="queue://X"),
            3,
        ),
    ],
)
def test_operations_of_a_queue(operation: str, arguments: tuple[Any, ...], asked: Any, value: Any) -> None:
    methods = {"change": lambda _: DONE, "pause": lambda _: {}, "resume": lambda _: {}}
    answer, requests = call(ORDERS, operation, *arguments, methods=methods)
    assert (answer["status"], answer["value"]) == (200, value)
    assert requests == [asked]


@pytest.mark.parametrize(
    ("mbean", "operation", "arguments", "method", "asked"),
    [
        (BROKER, "addQueue", ("X",), "create", {"target": "queue://X"}),
        (BROKER, "addTopic", ("X",), "create", {"target": "topic://X"}),
        (BROKER, "removeQueue", ("X",), "delete", {"target": "queue://X"}),
        (BROKER, "removeTopic", ("X",), "delete", {"target": "topic://X"}),
        (BROKER, "destroyDurableSubscriber", ("c", "s"), "unsubscribe", {"key": "c:s"}),
        (CONNECTION, "stop", (), "cut_off", {"connection_id": "ID:c"}),
        (CONNECTOR, "stop", (), "stop_connector", {"connector": "hub"}),
        (CONNECTOR, "start", (), "start_connector", {"connector": "hub"}),
        (SCHEDULER, "removeJob", ("ID:7",), "remove_job", {"job_id": "ID:7", "next_time": None}),
        (f"{CONSUMER},clientId=app,consumerId=Durable(app_sub1)", "destroy", (), "unsubscribe", {"key": "app:sub1"}),
        (f"{CONSUMER},clientId=off,consumerId=Durable(off_gone)", "destroy", (), "unsubscribe", {"key": "off:gone"}),
    ],
)
def test_operations_of_others(
    mbean: str, operation: str, arguments: tuple[Any, ...], method: str, asked: dict[str, Any]
) -> None:
    answer, requests = call(mbean, operation, *arguments, methods={method: lambda _: {}})
    assert (answer["status"], answer["value"]) == (200, None)
    assert requests == [(method, asked | WHO)]


def failing(status: HTTPStatus, text: str) -> Any:
    def fail(_: Mapping[str, Any]) -> Any:
        raise RequestFailed(status, text)

    return fail


@pytest.mark.parametrize(
    ("mbean", "operation", "arguments", "failure", "status", "error"),
    [
        (ORDERS, "retryMessages", (), HTTPStatus.CONFLICT, 500,
         "java.lang.Exception : Retry of message is only possible on Dead Letter Queues!"),
        (ORDERS, "removeMatchingMessages", ("n===",), HTTPStatus.BAD_REQUEST, 500,
         "javax.jms.InvalidSelectorException : n===: no"),
        (ORDERS, "purge", (), HTTPStatus.NOT_FOUND, 404, "javax.management.InstanceNotFoundException : no"),
        (ORDERS, "pause", (), HTTPStatus.SERVICE_UNAVAILABLE, 500, "java.io.IOException : no"),
        (BROKER, "removeQueue", ("X",), HTTPStatus.NOT_FOUND, 200, None),
        (BROKER, "removeQueue", ("X",), HTTPStatus.CONFLICT, 500, "java.lang.IllegalStateException : no"),
        (BROKER, "destroyDurableSubscriber", ("cl", "nm"), HTTPStatus.NOT_FOUND, 500,
         "javax.jms.InvalidDestinationException : No durable subscription exists for clientID: cl and "
         "subscriptionName: nm"),
        (BROKER, "addQueue", ("",), HTTPStatus.CONFLICT, 400,
         "java.lang.IllegalArgumentException : Invalid destination name: a non-empty name is required"),
        (BROKER, "terminateJVM", (0,), HTTPStatus.CONFLICT, 403, "java.lang.SecurityException : not offered over"),
        (BROKER, "queryQueues", ("{", 1, 1), HTTPStatus.CONFLICT, 400, "java.lang.IllegalArgumentException : the fil"),
        (BROKER, "queryQueues", ("", 0, 1), HTTPStatus.CONFLICT, 400, "java.lang.IllegalArgumentException : a page"),
        (BROKER, "queryQueues", ("", "x", 1), HTTPStatus.CONFLICT, 400, "java.lang.IllegalArgumentException : Cannot"),
        (ORDERS, "sendTextMessage", ({"JMSPriority": "x"}, "b"), HTTPStatus.CONFLICT, 400,
         "java.lang.IllegalArgumentException : JMSPriority is a number"),
        (ORDERS, "sendTextMessage", ("{", "b"), HTTPStatus.CONFLICT, 400,
         "java.lang.IllegalArgumentException : Cannot"),
    ],
)  # fmt: skip
def test_failures_have_the_classes_of_activemq(
    mbean: str, operation: str, arguments: tuple[Any, ...], failure: HTTPStatus, status: int, error: str | None
) -> None:
    fail = failing(failure, "no")
    methods = dict.fromkeys(("change", "pause", "delete", "create", "unsubscribe", "send"), fail)
    answer, _ = call(mbean, operation, *arguments, methods=methods)
    assert answer["status"] == status, answer
    assert error is None or answer["error"].startswith(error), answer


def test_an_operation_that_ended_early_says_so() -> None:
    result = {"affected": 2, "error": "the broker stops"}
    answer, _ = call(ORDERS, "purge", methods={"change": lambda _: result})
    assert (answer["status"], answer["error"]) == (
        500,
        "javax.jms.JMSException : the broker stops (2 messages are done)",
    )


@pytest.mark.parametrize(
    ("operation", "arguments", "expected"),
    [
        ("sendTextMessage", ("hi",), {"text": "hi"}),
        ("sendTextMessage", ("hi", "user", "password"), {"text": "hi"}),
        (
            "sendTextMessage",
            ({"JMSDeliveryMode": "2", "JMSPriority": 3, "JMSType": "t", "colour": "red", "n": 1}, "hi"),
            {"text": "hi", "persistent": True, "priority": 3, "type": "t", "properties": {"colour": "red", "n": 1}},
        ),
        (
            "sendTextMessageWithProperties",
            ("body=hi,username=u,password=p,JMSPriority=3,JMSTimeToLive=9,foo=1",),
            {"text": "hi", "priority": 3, "properties": {"JMSTimeToLive": "9", "foo": "1"}},
        ),
    ],
)
def test_messages_are_sent_as_activemq_sends_them(operation: str, arguments: Any, expected: dict[str, Any]) -> None:
    answer, ((_, asked),) = call(ORDERS, operation, *arguments, methods={"send": lambda _: {"message_id": "ID:9"}})
    assert answer["value"] == "ID:9"
    message = decode(base64.b64decode(asked["data"]))
    found = {
        "destination": str(message.destination),
        "text": message.text(),
        "persistent": message.persistent,
        "priority": message.priority,
        "type": message.jms_type,
        "properties": dict(message.properties),
    }
    defaults = {"destination": "queue://ORDERS", "persistent": False, "priority": 0, "type": None, "properties": {}}
    assert found == defaults | expected


def browsed(message: OpenWireMessage, **fields: Any) -> BrowsedRow:
    data = encode(message)
    values: dict[str, Any] = {
        "message_id": "ID:1",
        "position": 1,
        "state": "waiting",
        "redelivery_count": 0,
        "holder": None,
        "size": len(data),
        "data": base64.b64encode(data).decode(),
    }
    return BrowsedRow(**values | fields)


def test_a_browse_takes_pages_up_to_its_limit() -> None:
    pages: list[int] = []

    async def browse(arguments: Mapping[str, Any]) -> Any:
        pages.append(arguments["cursor"])
        return {"cursor": len(pages), "end": "last" if len(pages) == 3 else "count", "examined": 0}

    answer, requests = call(ORDERS, "browse(java.lang.String)", "n = 1", methods={"browse": browse})
    assert (answer["value"], pages) == ([], [-1, 1, 2])
    assert requests[0][1]["selector"] == "n = 1"


def test_a_message_that_came_in_pieces_is_put_together() -> None:
    message = OpenWireMessage(type=MessageType.TEXT, destination=queue("ORDERS"), content=encode_text("x" * 90))
    row = browsed(message)
    rows = [list(row._replace(data=row.data[:40])), [row.data[40:80]], [row.data[80:]]]
    answer, _ = call(ORDERS, "getMessage", "ID:1", methods={"message": lambda _: rows})
    assert answer["value"]["Text"] == "x" * 90
    cut = browsed(message, size=1 << 30)
    assert "Text" not in composites([cut])[0]


def test_bodies_inflate_within_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "BODY_MAX", 200)
    content = zlib.compress(encode_text("x" * 90))
    packed = OpenWireMessage(type=MessageType.TEXT, destination=queue("Q"), content=content, compressed=True)
    first, second, third = composites([browsed(packed)] * 3)
    assert (first["Text"], second["Text"]) == ("x" * 90, "x" * 90)
    assert third["Error"].startswith("the message cannot be shown")


def test_a_message_has_the_items_of_activemqs_composite() -> None:
    message = OpenWireMessage(
        type=MessageType.TEXT,
        destination=queue("Q"),
        reply_to=topic("T"),
        content=encode_text("hi"),
        persistent=True,
        priority=4,
        timestamp=1_795_363_602_123,
        correlation_id="c",
    )
    message.set_properties({"b": True, "by": Byte(1), "s": Short(2), "i": 3, "l": Long(4), "f": Float(1.5), "t": "x"})
    found = composites([browsed(message, redelivery_count=1)])[0]
    expected = {
        "JMSMessageID": "ID:1",
        "JMSDestination": "queue://Q",
        "JMSReplyTo": "topic://T",
        "JMSDeliveryMode": "PERSISTENT",
        "JMSPriority": 4,
        "JMSTimestamp": "2026-11-22T16:06:42Z",
        "JMSRedelivered": True,
        "JMSCorrelationID": "c",
        "PropertiesText": "{b=true, by=1, s=2, i=3, l=4, f=1.5, t=x}",
        "BooleanProperties": {"b": True},
        "ByteProperties": {"by": 1},
        "ShortProperties": {"s": 2},
        "IntProperties": {"i": 3},
        "LongProperties": {"l": 4},
        "FloatProperties": {"f": 1.5},
        "DoubleProperties": {},
        "StringProperties": {"t": "x"},
        "Text": "hi",
    }
    assert {name: found[name] for name in expected} == expected


def test_bodies_of_other_messages_are_shown_as_activemq_shows_them() -> None:
    data = OpenWireMessage(type=MessageType.BYTES, destination=queue("Q"), content=b"\x00\xff" * 200)
    found = composites([browsed(data)])[0]
    assert (found["BodyLength"], found["BodyPreview"][:3], len(found["BodyPreview"])) == (400, [0, 255, 0], 255)
    table = OpenWireMessage(type=MessageType.MAP, destination=queue("Q"), content=encode_map({"k": 3, "t": "x"}))
    assert composites([browsed(table)])[0]["ContentMap"] == "{k=3, t=x}"
    damaged = composites([browsed(data)._replace(data=base64.b64encode(b"nonsense").decode())])[0]
    assert damaged["JMSMessageID"] == "ID:1"
    assert damaged["Error"].startswith("the message cannot be shown")


def test_queries_of_queues_come_in_pages() -> None:
    asked = json.dumps({"name": "", "filter": "nonEmpty", "sortColumn": "queueSize", "sortOrder": "desc"})
    answer, _ = call(BROKER, "queryQueues", asked, 1, 2)
    found = json.loads(answer["value"])
    assert found["count"] == 2
    assert [each["queueSize"] for each in found["data"].values()] == [7, 1]
    assert f"{BROKER},destinationType=Queue,destinationName=ORDERS" in found["data"]
    assert json.loads(call(BROKER, "queryTopics", "", 1, 10)[0]["value"])["count"] == 1
    assert json.loads(call(BROKER, "queryQueues", '{"name": "EMP"}', "1", "10")[0]["value"])["count"] == 1


def test_what_is_worrying_is_a_list() -> None:
    answer, _ = call(f"{BROKER},service=Health", "healthList")
    (worry,) = answer["value"]
    assert (worry["healthId"], worry["level"]) == ("org.apache.activemq.noConsumer", "WARNING")
    assert worry["resource"] == f"{BROKER},destinationType=Queue,destinationName=EMPTY"


def test_connections_of_a_listener_are_counted() -> None:
    assert call(LISTENER, "connectionCount")[0]["value"] == 1
    assert call(f"{BROKER},connector=clientConnectors,connectorName=stomp", "connectionCount")[0]["value"] == 0
    assert call(BROKER, "getTransportConnectorByType", "stomp")[0]["value"] == "stomp://127.0.0.1:61613"
