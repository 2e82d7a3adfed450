"""Jolokia and the XML pages of real brokers: an unmodified client, operations on messages, and a standby."""

import json
import shlex
import tomllib
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cluster import BrokerProcess, Pair
from tests.integration.stomp_client import StompClient
from tests.integration.test_management import OPTIONS, SECONDS, get, url_of, wait_for
from tests.pages import block, blocks

BROKER = "org.apache.activemq:type=Broker,brokerName=a"
QUEUE = f"{BROKER},destinationType=Queue,destinationName="

Start = Callable[..., BrokerProcess]
Connect = Callable[..., StompClient]


def post(url: str, **fields: Any) -> Any:
    """Return the answer to one request."""
    request = urllib.request.Request(f"{url}/api/jolokia", json.dumps(fields).encode())
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)


def read(url: str, mbean: str, attribute: str) -> Any:
    answer = post(url, type="read", mbean=mbean, attribute=attribute)
    return answer.get("value", answer)


def execute(url: str, mbean: str, operation: str, *arguments: Any) -> Any:
    answer = post(url, type="exec", mbean=mbean, operation=operation, arguments=arguments)
    assert answer["status"] == 200, answer
    return answer["value"]


@pytest.fixture
def served(start: Start) -> BrokerProcess:
    broker = start(*OPTIONS, "--broker-name", "a", store="memory:")
    broker.wait_for("listening on")
    return broker


def test_an_unmodified_client_reads_and_executes(served: BrokerProcess) -> None:
    client = pytest.importorskip("jolokia").JolokiaClient(f"{url_of(served)}/api/jolokia")
    with client.session:
        assert client.version()["value"]["protocol"] == "7.2"
        execution = client.execute(mbean=BROKER, operation="addQueue", arguments=["A"])
        assert (execution["status"], execution["value"]) == (200, None)
        assert client.get_attribute(mbean=f"{QUEUE}A", attribute="QueueSize")["value"] == 0
        several = client.get_attribute(mbean=f"{QUEUE}A", attribute=["Name", "ConsumerCount"])
        assert [each["value"] for each in several] == ["A", 0]
        names = client.search(mbean=f"{QUEUE}*")["value"]
        assert names == ["org.apache.activemq:brokerName=a,destinationName=A,destinationType=Queue,type=Broker"]
        assert "purge" in client.list(path=names[0].replace(":", "/", 1))["value"]["op"]
        assert client.set_attribute(mbean=BROKER, attr_value_pairs=("MemoryLimit", 1))["status"] == 403


def test_operations_on_messages(served: BrokerProcess, connect: Connect) -> None:
    url = url_of(served)
    execute(url, BROKER, "addQueue", "A")
    with_headers = "sendTextMessage(java.util.Map,java.lang.String)"
    message_id = execute(url, f"{QUEUE}A", with_headers, {"JMSDeliveryMode": "2", "n": 1}, "one")
    execute(url, f"{QUEUE}A", "sendTextMessageWithProperties", "body=two,n=2")
    (first, second) = execute(url, f"{QUEUE}A", "browse()")
    assert (first["JMSMessageID"], first["Text"], first["JMSDeliveryMode"]) == (message_id, "one", "PERSISTENT")
    assert (second["StringProperties"], second["JMSPriority"]) == ({"n": "2"}, 0)
    assert len(execute(url, f"{QUEUE}A", "browse(java.lang.String)", "n = 1")) == 1
    assert execute(url, f"{QUEUE}A", "getMessage", message_id)["Text"] == "one"
    assert execute(url, f"{QUEUE}A", "copyMessageTo", message_id, "B") is True
    assert execute(url, f"{QUEUE}A", "moveMatchingMessagesTo", "n = '2'", "B") == 1
    assert (read(url, f"{QUEUE}A", "QueueSize"), read(url, f"{QUEUE}B", "QueueSize")) == (1, 2)
    assert execute(url, f"{QUEUE}B", "removeMatchingMessages", "", 1) == 1
    assert execute(url, f"{QUEUE}B", "removeMessage", "ID:none") is False
    failed = post(url, type="exec", mbean=f"{QUEUE}B", operation="removeMatchingMessages", arguments=["n==="])
    assert (failed["status"], failed["error_type"]) == (500, "javax.jms.InvalidSelectorException")
    failed = post(url, type="exec", mbean=f"{QUEUE}B", operation="retryMessages")
    assert failed["error"] == "java.lang.Exception : Retry of message is only possible on Dead Letter Queues!"
    execute(url, f"{QUEUE}A", "pause")
    assert read(url, f"{QUEUE}A", "Paused") is True
    execute(url, f"{QUEUE}A", "resume")
    client = connect(served.port)
    client.send("SUBSCRIBE", id="1", destination="/queue/A", ack="auto")
    assert client.read_until("MESSAGE").body == b"one"
    connections = post(url, type="search", mbean=f"{BROKER},connectionViewType=clientId,*")["value"]
    assert len(connections) == 1
    failed = post(url, type="exec", mbean=BROKER, operation="removeQueue", arguments=["A"])
    assert (failed["status"], failed["error_type"]) == (500, "java.lang.IllegalStateException")
    execute(url, connections[0], "stop")
    wait_for(lambda: read(url, f"{QUEUE}A", "ConsumerCount"), lambda count: count == 0)
    execute(url, BROKER, "removeQueue", "A")
    assert read(url, f"{QUEUE}A", "QueueSize")["status"] == 404


def test_a_standby_is_a_slave_without_queues(tmp_path: Path) -> None:
    with Pair(tmp_path / "store", *OPTIONS, "--broker-name", "a") as pair:
        master, standby = url_of(pair.wait_for_master()), url_of(pair.wait_for_standby())
        wait_for(lambda: read(master, BROKER, "Slave"), lambda slave: slave is False)
        execute(master, BROKER, "addQueue", "A")
        assert read(standby, BROKER, "Slave") is True
        for url in (master, standby):
            wait_for(partial(read, url, BROKER, "StandbyCount"), lambda count: count == 1)
            assert read(url, BROKER, "LockHolder") == pair.wait_for_master().name
        answer = post(standby, type="read", mbean=f"{QUEUE}A", attribute="QueueSize")
        assert (answer["status"], answer["error_type"]) == (404, "javax.management.InstanceNotFoundException")
        assert get(standby, "/admin/xml/queues.jsp")[0] == 503
        assert 'name="A"' in get(master, "/admin/xml/queues.jsp")[1]


def test_the_xml_pages_have_what_clients_did(served: BrokerProcess, connect: Connect) -> None:
    client = connect(served.port, client_id="app")
    client.send("SUBSCRIBE", b"", id="1", destination="/topic/T", **{"activemq.subscriptionName": "s"})
    client.send("SEND", b"x", destination="/topic/T")
    client.send("SEND", b"x", destination="/queue/<Q>")
    url = url_of(served)

    def stats(page: str) -> Any:
        status, text = get(url, f"/admin/xml/{page}.jsp")
        assert status == 200
        return {each.get("name", each.get("clientId")): each.find("stats") for each in ElementTree.fromstring(text)}

    found = wait_for(lambda: stats("queues"), lambda found: "<Q>" in found)
    assert found["<Q>"].attrib == {"size": "1", "consumerCount": "0", "enqueueCount": "1", "dequeueCount": "0"}
    assert "T" in stats("topics")
    found = wait_for(lambda: stats("subscribers"), lambda found: found["app"].get("dequeueCounter") == "1")
    assert found["app"].get("enqueueCounter") == "1"


def test_the_pages_requests(start: Start) -> None:
    broker = start(*OPTIONS, store="memory:")
    broker.wait_for("listening on")
    url = url_of(broker)
    name = "org.apache.activemq:type=Broker,brokerName=localhost"
    execute(url, name, "addQueue", "ORDERS")
    execute(url, f"{name},destinationType=Queue,destinationName=ORDERS", "sendTextMessage", "x")
    commands = [each.text for each in blocks("docs/management.md") if "curl" in each.text and "/jolokia" in each.text]
    found = []
    for command in commands:
        *_, target = shlex.split(command)
        headers = {"Origin": "http://127.0.0.1"} if "Origin" in command else {}
        request = urllib.request.Request(target.replace("http://localhost:8161", url), headers=headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            found.append(json.load(answer)["value"])
    assert found == [1, None]
    (trigger,) = yaml.safe_load(block("docs/management.md", "yaml", "type: activemq"))["triggers"]
    of_keda = f"{name},destinationType=Queue,destinationName={trigger['metadata']['destinationName']}"
    assert trigger["metadata"]["brokerName"] == "localhost"
    assert get(url, f"/api/jolokia/read/{of_keda}/QueueSize")[1]["value"] == 0
    (telegraf,) = tomllib.loads(block("docs/management.md", "toml", "inputs.activemq"))["inputs"]["activemq"]
    assert telegraf["url"] == "http://localhost:8161"
    for page in ("queues", "topics", "subscribers"):
        assert get(url, f"/admin/xml/{page}.jsp")[0] == 200
