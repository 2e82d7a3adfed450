"""Jolokia: the requests that tools send, and the shapes of its answers and errors."""

import asyncio
import base64
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from pybroker.broker.domain.node_requests import RequestFailed
from pybroker.management.jolokia_requests import split
from pybroker.management.jolokia_values import encode
from pybroker.management.mbean_broker import uptime
from pybroker.management.mbean_catalogue import KINDS
from pybroker.management.mbean_operations import OPERATIONS
from tests.unit.management.brokers import METHODS, STANDBY_METHODS
from tests.unit.management.simulated import row, site

BROKER = "org.apache.activemq:type=Broker,brokerName=B"
NETWORK = ",connector=networkConnectors,networkConnectorName=hub"
DUPLEX = ",connector=duplexNetworkConnectors,networkConnectorName=in,networkBridge=tcp_!/!/10.0.0.7_5000"
ORDERS = f"{BROKER},destinationType=Queue,destinationName=ORDERS"
CANONICAL = "org.apache.activemq:brokerName=B,destinationName=ORDERS,destinationType=Queue,type=Broker"


def ask(target: str, methods: Mapping[str, Any] = METHODS, **more: Any) -> Any:
    """Return the JSON of an answer with status 200 of HTTP."""

    async def run() -> Any:
        async with site(methods) as there:
            status, answer = await there.ask(f"/api/jolokia{target}", **more)
            assert status == 200, answer
            return answer

    return asyncio.run(run())


def post(*requests: Any, target: str = "", **more: Any) -> Any:
    return ask(target, method="POST", body=requests[0] if len(requests) == 1 else list(requests), **more)


def value(target: str, **more: Any) -> Any:
    answer = ask(target, **more)
    assert answer["status"] == 200, answer
    return answer["value"]


# ---------------------------------------------------------------- the requests of tools


def test_keda_reads_the_size_of_a_queue() -> None:
    answer = ask(f"/read/{ORDERS}/QueueSize", Origin="http://activemq.default:8161", Content_Type="application/json")
    assert isinstance(answer.pop("timestamp"), int)
    assert answer == {
        "request": {"mbean": CANONICAL, "attribute": "QueueSize", "type": "read"},
        "value": 7,
        "status": 200,
    }


def test_metricbeat_reads_all_queues_by_a_pattern() -> None:
    broker = {
        "type": "read",
        "mbean": "org.apache.activemq:brokerName=*,type=Broker",
        "attribute": ["BrokerName", "MemoryPercentUsage", "TotalEnqueueCount", "Nothing"],
    }
    queues = {
        "type": "read",
        "mbean": "org.apache.activemq:brokerName=*,destinationName=*,destinationType=Queue,type=Broker",
        "attribute": ["Name", "QueueSize", "MemoryPercentUsage"],
    }
    first, second = post(broker, queues, target="/?ignoreErrors=true&canonicalNaming=false")
    assert first["request"] == broker
    assert first["value"] == {BROKER: {"BrokerName": "B", "MemoryPercentUsage": 50, "TotalEnqueueCount": 117}}
    assert second["value"][ORDERS] == {"Name": "ORDERS", "QueueSize": 7, "MemoryPercentUsage": 25}
    name = f"{BROKER},destinationType=Queue,destinationName=a&amp;b_c&ast;&qe;"
    assert second["value"][name]["Name"] == "a=b:c*?"
    assert len(second["value"]) == 3


def test_nagios_reads_the_broker_and_follows_its_queues() -> None:
    queues = value(f"/read/{BROKER}")["Queues"]
    assert CANONICAL in [each["objectName"] for each in queues]
    for each in queues:
        assert "QueueSize" in value(f"/read/{each['objectName']}")
    assert value(f"/read/{BROKER},service=Health")["CurrentStatus"].startswith(
        "Getting Worried {HealthStatus: healthId=org.apache.activemq.noConsumer, level=WARNING, "
        "message=Queue EMPTY has no consumers, resource="
    )
    subscriber = f"{BROKER},destinationType=Topic,destinationName=PRICES,endpoint=Consumer,clientId=app,consumerId="
    assert value(f"/read/{subscriber}Durable(app_sub1)")["Active"] is True
    producers = f"{BROKER},endpoint=dynamicProducer,*"
    assert len(value(f"/read/{producers}")) == 1
    assert ask(f"/read/{ORDERS}x")["status"] == 404


def test_hawtio_asks_for_version_search_and_list() -> None:
    version, search, names = post(
        {"type": "version"},
        {"type": "search", "mbean": "org.apache.activemq:type=Broker,*"},
        {"type": "list", "config": {"maxDepth": 2}},
    )
    assert version["value"]["protocol"] == "7.2"
    assert CANONICAL in search["value"]
    assert set(names["value"]["org.apache.activemq"].values()) == {1}
    assert len(names["value"]["org.apache.activemq"]) == len(search["value"])
    path = CANONICAL.replace(":", "/", 1)
    one = value(f"/list/{path}")
    assert one["attr"]["QueueSize"] == {"type": "long", "desc": "QueueSize", "rw": False}
    assert one["op"]["purge"] == {"args": [], "ret": "void", "desc": "purge"}
    assert [len(each["args"]) for each in one["op"]["browse"]] == [0, 1]
    assert value(f"/list/{path}/attr/QueueSize/type") == "long"
    assert value(f"/list/{path}?maxDepth=1") == {"desc": 1, "class": 1, "attr": 1, "op": 1}
    assert value("/list?maxDepth=1") == {"org.apache.activemq": 1}
    assert value("/list/java.lang") == {}
    assert ask("/list/org.apache.activemq/type=Other")["status"] == 400


# ---------------------------------------------------------------- values


def test_incoming_bridges_that_are_duplex_and_not_refused_have_an_mbean() -> None:
    assert len(value("/search/org.apache.activemq:connector=duplexNetworkConnectors,*")) == 1


def test_every_attribute_can_be_read() -> None:
    found = value("/read/*:*")
    assert len(found) == 22
    for each in KINDS:
        assert any(set(attributes) == set(each.attributes) for attributes in found.values()), each.class_name


@pytest.mark.parametrize(
    ("name", "attribute", "expected"),
    [
        (NETWORK, "Password", "*****"),
        (NETWORK, "UserName", "u"),
        (f"{NETWORK},networkBridge=tcp_!/!/h_1", "RemoteBrokerName", "far"),
        (f"{NETWORK},networkBridge=tcp_!/!/h_1", "EnqueueCounter", 12),
        (f"{NETWORK},networkBridge=tcp_!/!/h_1", "DequeueCounter", 10),
        (DUPLEX, "RemoteAddress", "tcp://10.0.0.7:5000"),
        (DUPLEX, "RemoteBrokerId", "ID:o"),
        (DUPLEX, "ReceivedCounter", 34),
        (DUPLEX, "CreatedByDuplex", True),
        ("", "Slave", False),
        ("", "TransportConnectors", {"openwire": "tcp://127.0.0.1:61616", "stomp": "stomp://127.0.0.1:61613"}),
        ("", "TransportConnectors/stomp", "stomp://127.0.0.1:61613"),
        ("", "TotalConnectionsCount", 4),
        ("", "BrokerVersion", "pybroker 1.2"),
        ("", "Epoch", 3),
        ("", "LockHolder", "one"),
        ("", "StandbyCount", 1),
        (",destinationType=Queue,destinationName=ORDERS", "Subscriptions/0/objectName", None),
        (",destinationType=Queue,destinationName=ORDERS", "Name,QueueSize", {"Name": "ORDERS", "QueueSize": 7}),
        (",destinationType=Queue,destinationName=ORDERS", "Name,QueueSize/QueueSize", 7),
        (",destinationType=TempQueue,destinationName=ID_h_1", "Name", "ID:h:1"),
        (",destinationType=TempQueue,destinationName=ID:h:1", "Name", "ID:h:1"),
        (",destinationType=Queue,destinationName=a&amp;b_c&ast;&qe;", "Name", "a=b:c*?"),
        (',destinationType=Queue,destinationName="a=b:c\\*\\?"', "Name", "a=b:c*?"),
        (",connector=clientConnectors,connectorName=openwire,connectionViewType=clientId,connectionName=app",
         "RemoteAddress", "tcp://127.0.0.1:40000"),
        (",service=JobScheduler,name=JMS", "ScheduledMessageCount", 2),
    ],
)  # fmt: skip
def test_attributes_and_inner_paths(name: str, attribute: str, expected: Any) -> None:
    answer = ask(f"/read/{BROKER}{name}/{attribute}".replace("?", "%3F").replace('"', "%22").replace("\\", "%5C"))
    if expected is None:
        assert answer["status"] == 400
    else:
        assert answer["value"] == expected, answer


def test_the_consumers_of_a_queue_and_of_a_topic() -> None:
    (consumer,) = value(f"/read/{ORDERS}/Subscriptions")
    found = value(f"/read/{consumer['objectName']}")
    expected = {"Selector": "n > 3", "SessionId": 1, "SubscriptionId": 2, "UserName": None, "DispatchedQueueSize": 5}
    assert {name: found[name] for name in expected} == expected
    connection = found["Connection"]["objectName"]
    assert consumer in value(f"/read/{connection}/Consumers")
    inactive = value(f"/read/{BROKER}/InactiveDurableTopicSubscribers/0/objectName".replace("/0/objectName", ""))
    found = value(f"/read/{inactive[0]['objectName']}")
    assert (found["ConnectionId"], found["Active"], found["Durable"], found["PendingQueueSize"]) == (
        "NOTSET",
        False,
        False,
        4,
    )


def test_limits_of_values() -> None:
    assert len(value(f"/read/{BROKER}/Queues?maxCollectionSize=1")) == 1
    assert value(f"/read/{BROKER}/Queues?canonicalNaming=false")[0] == {"objectName": ORDERS}
    deep = value(f"/read/{BROKER}/TransportConnectors,Slave?maxDepth=1")
    assert deep["Slave"] is False
    assert isinstance(deep["TransportConnectors"], str)


def test_paths_of_patterns_have_stars() -> None:
    found = post({"type": "read", "mbean": "*:destinationType=Queue,*", "path": "*/QueueSize"})["value"]
    assert found[CANONICAL] == 7


def test_one_queue_is_asked_for_by_its_name() -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            await there.ask(f"/api/jolokia/read/{ORDERS}/QueueSize")
            by_name = [arguments for method, arguments in there.node.asked if arguments.get("name")]
            assert by_name == [{"type": "QUEUE", "name": "ORDERS"}]
            assert "consumers" not in [method for method, _ in there.node.asked]

    asyncio.run(run())


def test_many_requests_are_few_to_the_node() -> None:
    async def run() -> None:
        async with site(METHODS) as there:
            request = {"type": "read", "mbean": ORDERS, "attribute": "QueueSize"}
            _, answers = await there.ask("/api/jolokia", "POST", [request] * 1000)
            assert [each["value"] for each in answers] == [7] * 1000
            assert len(there.node.asked) < 20

    asyncio.run(run())


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("target", "status", "error"),
    [
        (f"/read/{ORDERS}x/QueueSize", 404, f"javax.management.InstanceNotFoundException : {ORDERS}x"),
        (f"/read/{ORDERS}/Colour", 404, "javax.management.AttributeNotFoundException : No such attribute: Colour"),
        (f"/read/{ORDERS}/Name,Colour", 404, "javax.management.AttributeNotFoundException : No such"),
        ("/read/nonsense", 400, "java.lang.IllegalArgumentException : Invalid object name. Domain part"),
        ("/read", 400, "java.lang.IllegalArgumentException : Objectname can not be null"),
        (f"/exec/{ORDERS}", 400, "java.lang.IllegalArgumentException : Invalid arguments in pathinfo"),
        ("/frobnicate", 400, "java.lang.IllegalArgumentException : No type with name 'frobnicate' exists"),
        ("/read/x:*", 404, "javax.management.InstanceNotFoundException : No MBean with pattern x:* found"),
        (f"/read/{BROKER},*/Colour", 400, "java.lang.IllegalArgumentException : No matching attributes"),
        (f"/read/{BROKER}/Slave?maxDepth=x", 400, "java.lang.IllegalArgumentException : maxDepth is a number"),
        (f"/read/{BROKER}/Slave/x", 400, "java.lang.IllegalArgumentException : Invalid path"),
        (f"/exec/{ORDERS}/explode", 400, "java.lang.IllegalArgumentException : No operation explode found on"),
        (f"/exec/{ORDERS}/purge/1", 400, "java.lang.IllegalArgumentException : Invalid number of operation arguments"),
        (f"/exec/{ORDERS}/browse(int)/1", 400, "java.lang.IllegalArgumentException : No operation browse(int) on"),
        (f"/write/{BROKER}/MemoryLimit/1", 403, "java.lang.Exception : Writing attribute MemoryLimit forbidden for"),
    ],
)  # fmt: skip
def test_errors_have_a_java_class_and_a_status(target: str, status: int, error: str) -> None:
    answer = ask(target)
    assert answer["status"] == status
    assert answer["error"].startswith(error), answer
    assert answer["error_type"] == error.partition(" : ")[0]
    assert "value" not in answer


def test_errors_of_single_attributes_can_be_ignored() -> None:
    found = value(f"/read/{ORDERS}/Name,Colour?ignoreErrors=true")
    text = "ERROR: No such attribute: Colour (class javax.management.AttributeNotFoundException)"
    assert found == {"Name": "ORDERS", "Colour": text}


def test_one_failure_leaves_the_other_answers_alone() -> None:
    answers = post(
        {"type": "read", "mbean": f"{ORDERS}x"},
        "nonsense",
        {"type": "read", "mbean": 7},
        {"type": "exec", "mbean": ORDERS},
        {"type": "read", "mbean": ORDERS, "attribute": "QueueSize"},
    )
    assert [each["status"] for each in answers] == [404, 400, 400, 400, 200]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("", "Invalid JSON request"),
        (b"\xff", "Invalid JSON request"),
        ("[" * 100_000, "Invalid JSON request"),
        ([{}] * 1001, "at most 1000 requests are answered at once"),
        ({"type": "read", "mbean": BROKER, "attribute": 7}, "attribute is a text"),
        ({"type": "read", "mbean": BROKER, "config": 7}, "config is an object"),
        ({"type": "read", "mbean": BROKER, "path": {}, "attribute": {"a": 1}}, "attribute is a text"),
        ({"type": "exec", "mbean": BROKER, "operation": "gc", "arguments": {"a": 1}}, "arguments is a list"),
    ],
)  # fmt: skip
def test_a_body_that_makes_no_sense_is_refused(body: Any, error: str) -> None:
    async def run() -> Any:
        async with site(METHODS) as there:
            if isinstance(body, str | bytes):
                payload = body.encode() if isinstance(body, str) else body
                head = f"POST /api/jolokia HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: {len(payload)}\r\n\r\n"
                answer = (await there.exchange(head.encode() + payload)).partition(b"\r\n\r\n")[2].decode()
                return answer
            return str((await there.ask("/api/jolokia", "POST", body))[1])

    assert error in asyncio.run(run())


def test_an_error_of_the_node_is_inside_the_answer() -> None:
    def hang(_: Any) -> Any:
        raise RequestFailed(HTTPStatus.GATEWAY_TIMEOUT, "the member hangs")

    answer = ask(f"/read/{BROKER}/Queues", METHODS | {"destinations": hang})
    assert (answer["status"], answer["error"]) == (500, "java.io.IOException : the member hangs")


# ---------------------------------------------------------------- who may do what


def test_a_standby_has_the_broker_alone() -> None:
    found = value("/read/*:*", methods=STANDBY_METHODS)
    assert len(found) == 1
    (broker,) = found.values()
    assert (broker["Slave"], broker["Role"], broker["Queues"], broker["TotalMessageCount"]) == (True, "STANDBY", [], 0)
    assert (broker["BrokerId"], broker["LockHolder"]) == (None, "one")
    assert value(f"/read/{BROKER}/Slave", methods=STANDBY_METHODS) is True
    answer = ask(f"/read/{ORDERS}/QueueSize", STANDBY_METHODS)
    assert (answer["status"], answer["error_type"]) == (404, "javax.management.InstanceNotFoundException")


PURGE = f"/exec/{ORDERS}/purge"
DONE = {"affected": 7, "error": None}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "http://127.0.0.1"}, 200),
        ({"Referer": "http://127.0.0.1:{port}/admin"}, 200),
        ({"Origin": "http://127.0.0.1:80"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Referer": "http://evil.example/http://127.0.0.1"}, 403),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_a_get_changes_something_only_with_its_own_origin(headers: dict[str, str], status: int) -> None:
    async def run() -> None:
        async with site(METHODS | {"change": lambda _: DONE}) as there:
            filled = {name: each.replace("{port}", str(there.port)) for name, each in headers.items()}
            _, answer = await there.ask(f"/api/jolokia{PURGE}", **filled)
            assert answer["status"] == status, answer
            changes = [method for method, _ in there.node.asked if method == "change"]
            assert len(changes) == (status == 200)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_a_post_changes_nothing_for_another_site(headers: dict[str, str], status: int) -> None:
    async def run() -> None:
        async with site(METHODS | {"change": lambda _: DONE}) as there:
            filled = {name: each.replace("{port}", str(there.port)) for name, each in headers.items()}
            request = {"type": "exec", "mbean": ORDERS, "operation": "purge"}
            _, answer = await there.ask("/api/jolokia", "POST", request, **filled)
            assert answer["status"] == status
            read = {"type": "read", "mbean": ORDERS, "attribute": "QueueSize"}
            _, answer = await there.ask("/api/jolokia", "POST", read, **filled)
            assert answer["value"] == 7

    asyncio.run(run())


@pytest.mark.parametrize(
    ("role", "target", "status"),
    [
        ("MONITOR", f"/read/{ORDERS}/QueueSize", 200),
        ("MONITOR", PURGE, 403),
        ("OPERATOR", PURGE, 200),
        ("OPERATOR", f"/exec/{BROKER}/addQueue/X", 403),
        ("ADMIN", f"/exec/{BROKER}/addQueue/X", 200),
        ("ADMIN", f"/exec/{BROKER}/stop", 403),
    ],
)
def test_each_operation_needs_a_role(role: str, target: str, status: int) -> None:
    methods = METHODS | {
        "login": lambda arguments: {"user": arguments["user"], "role": role},
        "change": lambda _: DONE,
        "create": lambda _: {"created": True},
    }

    async def run() -> None:
        async with site(methods, has_users=True) as there:
            assert (await there.ask(f"/api/jolokia{target}"))[0] == 401
            login = "Basic " + base64.b64encode(b"u:p").decode()
            headers = {"Authorization": login, "Origin": "http://127.0.0.1"}
            _, answer = await there.ask(f"/api/jolokia{target}", **headers)
            assert answer["status"] == status, answer
            denied = [arguments for method, arguments in there.node.asked if method == "denied"]
            assert len(denied) == (status == 403 and "stop" not in target)

    asyncio.run(run())


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/b", ["a", "b"]),
        ("a!/b/c!!d", ["a/b", "c!d"]),
        ('a!"b', ['a"b']),
        ("a//b", ["a", "", "b"]),
        ("a/", ["a", ""]),
        ("a!", ["a!"]),
    ],
)
def test_paths_are_split_at_slashes_without_an_escape(path: str, expected: list[str]) -> None:
    assert split(path) == expected


def test_a_queue_with_a_slash_is_escaped() -> None:
    methods = METHODS | {"destinations": lambda _: [row("a/b", size=3)]}
    assert value(f"/read/{BROKER},destinationType=Queue,destinationName=a!%2Fb/QueueSize", methods=methods) == 3
    assert value(f"?p=read/{BROKER},destinationType=Queue,destinationName=a!%2Fb/QueueSize", methods=methods) == 3


def test_json_in_pieces_is_json() -> None:
    import json

    example = {"a": [1, {"b": {"c": {"d": ["ä", None, True]}}}], "x": 1.5, "y": {}}
    assert json.loads(encode(example)) == example


def test_a_list_of_very_many_queues_is_cut() -> None:
    many = [row(f"Q{number}") for number in range(1500)]
    names = value("/list/org.apache.activemq", methods=METHODS | {"destinations": lambda _: many})
    queues = [each for name, each in names.items() if "destinationType=Queue," in name and "endpoint" not in name]
    assert len(queues) == 1500
    assert sum(each == 1 for each in queues) == 500


def test_operations_are_of_kinds_that_exist() -> None:
    assert set(OPERATIONS) <= {kind.class_name for kind in KINDS}


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (1_363, "1.363 seconds"),
        (60_000, "1 minute"),
        (451_522, "7 minutes"),
        (3_600_000, "1 hour"),
        (7_380_000, "2 hours 3 minutes"),
        (180_000_000, "2 days 2 hours"),
        (172_860_000, "2 days"),
    ],
)
def test_an_uptime_is_in_words(milliseconds: int, text: str) -> None:
    assert uptime(milliseconds) == text
