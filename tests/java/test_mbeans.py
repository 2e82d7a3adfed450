"""The attributes of MBeans: those of a stock ActiveMQ over JMX, and those of pybroker from Jolokia.

Each attribute of pybroker's has the value of ActiveMQ's, or at least its type where the value belongs to a machine, a
run, or the memory that messages take (`OF_A_MACHINE`). What one of both lacks is in `differences`.
"""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pybroker.management.mbean_catalogue import KINDS
from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.java.checks import Outcomes, Programs, compare, parametrized, wanted
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

SECONDS = 20.0
"""The limit to a wait for what is expected; `Run.java` gives a check 30 s."""

Beans = Mapping[str, Mapping[str, Any]]
"""Attributes by the names of MBeans."""

OF_A_MACHINE = {
    "AverageEnqueueTime",
    "BrokerId",
    "BrokerVersion",
    "CursorMemoryUsage",
    "DataDirectory",
    "JobSchedulerStoreLimit",
    "MaxEnqueueTime",
    "MemoryLimit",
    "MemoryUsageByteCount",
    "MinEnqueueTime",
    "RemoteAddress",
    "StoreLimit",
    "TempLimit",
    "TempUsageLimit",
    "TransportConnectors",
    "Uptime",
    "UptimeMillis",
}
OWN = {"Epoch", "LockHolder", "Role", "StandbyCount"}
"""Attributes that ActiveMQ has not."""

OF_ALL_CHECKS = {"AverageMessageSize", "CurrentConnectionsCount", "MaxMessageSize", "MinMessageSize"}
"""Attributes of the broker that other checks change too; so are those that begin with `Total`."""

EXPECTED: dict[str, Any] = json.loads(Path(__file__).with_name("mbeans.json").read_text())

_IDS = re.compile(r"ID([:_])[^,\s:_=]*?-\d+-\d+-\d+[:_]\d+")
_CONNECTOR = re.compile(r"connectorName=[^,]*")


def label(name: str, check: str) -> str | None:
    """Return the kind of an MBean of a check; None if it is not of that check, or has no attributes of its own."""
    keys = dict(each.split("=", 1) for each in name.partition(":")[2].split(","))
    if keys.get("destinationName", f"Mbeans.{check}") != f"Mbeans.{check}":
        return None
    if "connectionViewType" in keys:
        return None if keys["connectionViewType"] != "clientId" else f"connection {keys['connectionName']}"
    if "service" in keys:
        return keys["service"]
    if "connector" in keys:
        return "connector"
    if "consumerId" in keys:
        consumer = keys["consumerId"]
        return consumer if consumer.startswith("Durable") else f"consumer {keys['destinationType']}"
    return keys.get("endpoint", keys.get("destinationType", "broker"))


def kind_of(found: str) -> str:
    """Return the class that an MBean of a label has in pybroker."""
    if found.startswith("Durable("):
        return "InactiveDurableSubscriptionView" if "gone" in found else "DurableSubscriptionView"
    first = found.split()[0]
    classes = {
        "Queue": "QueueView",
        "Topic": "TopicView",
        "Producer": "ProducerView",
        "dynamicProducer": "DynamicProducerView",
        "connection": "ConnectionView",
        "connector": "ConnectorView",
        "Health": "HealthView",
        "JobScheduler": "JobSchedulerView",
        "PersistenceAdapter": "PersistenceAdapterView",
        "broker": "BrokerView",
        "consumer": "TopicSubscriptionView" if found.endswith("Topic") else "SubscriptionView",
    }
    return classes[first]


ATTRIBUTES = {kind.class_name: set(kind.attributes) for kind in KINDS}


def by_label(beans: Beans, check: str) -> dict[str, Mapping[str, Any]]:
    """Return the attributes of a check's MBeans, without ids that differ from run to run."""
    text = _CONNECTOR.sub("connectorName=X", _IDS.sub(r"ID\1X", json.dumps(beans)))
    labelled = [(label(name, check), each) for name, each in json.loads(text).items()]
    return {found: each for found, each in labelled if found is not None}


def values(beans: Beans, check: str) -> Any:
    """Return the values of the attributes that pybroker has; of `OF_A_MACHINE` their types."""
    return {
        found: {
            name: value(found, name, each[name], check)
            for name in sorted(each)
            if name in ATTRIBUTES[kind_of(found)] and name not in OWN
        }
        for found, each in by_label(beans, check).items()
    }


def value(found: str, name: str, read: Any, check: str) -> Any:
    is_of_all = found == "broker" and (name in OF_ALL_CHECKS or name.startswith("Total"))
    if name in OF_A_MACHINE or is_of_all or found == "PersistenceAdapter":
        return type(read).__name__
    if isinstance(read, list):
        own = [each for each in read if f"Mbeans.{check}" in each or "dynamicProducer" in each]
        return sorted(each for each in own if "Advisory" not in each)
    return read


def names(beans: Beans, check: str) -> Any:
    """Return the attributes that pybroker has not, and those that pybroker has and this broker has not."""
    lacking: dict[str, list[str]] = {}
    own: dict[str, list[str]] = {}
    for found, each in by_label(beans, check).items():
        kind = kind_of(found)
        if more := sorted(set(each) - ATTRIBUTES[kind]):
            lacking[kind] = more
        if fewer := sorted(ATTRIBUTES[kind] - set(each)):
            own[kind] = fewer
    return {"lacking": lacking, "own": own}


def differences(beans: Beans, check: str) -> Any:
    """Return what is different in the MBean of the broker."""
    broker = next(each for name, each in beans.items() if label(name, check) == "broker")
    return {
        "version": broker["BrokerVersion"].split()[0],
        "advisory topics": any("ActiveMQ.Advisory" in each for each in broker["Topics"]),
        "limits of store and scheduler": [broker[name] > 0 for name in ("StoreLimit", "JobSchedulerStoreLimit")],
    }


ANSWERS: Mapping[str, Callable[[Beans, str], Any]] = {"values": values, "names": names, "differences": differences}


def from_jolokia(url: str) -> Beans:
    """Return all MBeans, with the names of others as texts."""
    request = urllib.request.Request(f"{url}/api/jolokia/read/org.apache.activemq:*")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer, object_hook=lambda each: each.get("objectName", each))["value"]


@pytest.fixture(scope="module")
def outcomes(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Outcomes]:
    """Run the area once per broker."""
    directory = tmp_path_factory.mktemp("mbeans")
    known: dict[str, Outcomes] = {}

    def answers(broker: str, read: Callable[[], Beans]) -> Callable[[str, str], Any]:
        """Read until it is as expected: ActiveMQ works in threads, and Jolokia's answers may be some seconds old."""

        def answer(check: str, question: str) -> Any:
            expected, deadline = wanted(broker, "Mbeans", check, EXPECTED), time.monotonic() + SECONDS
            while (found := ANSWERS[question](read(), check)) != expected and time.monotonic() < deadline:
                pass
            return found

        return answer

    def of_activemq() -> Outcomes:
        with closing(ActiveMQProcess(programs.class_path, directory / "data", policies=("useJmx",))) as broker:
            uri = broker.wait().uri
            return programs.area("Mbeans", uri, answer=answers("activemq", broker.mbeans))

    def of_pybroker() -> Outcomes:
        file = directory / "pybroker.toml"
        file.write_text('scheduler = true\nbroker_name = "stock"\n')
        extra = ("--config", str(file), "--openwire", str(free_port()), "--management", "127.0.0.1:0")
        with closing(FollowedBroker(str(directory / "store"), name="a", port=free_port(), extra=extra)) as broker:
            broker.wait_for("listening on")
            url = broker.wait_for(r"management at (\S+)")[1]

            uri = broker.wait_for(r"(tcp://127\.0\.0\.1:\d+)")[1]
            return programs.area("Mbeans", uri, answer=answers("pybroker", lambda: from_jolokia(url)))

    def run(broker: str) -> Outcomes:
        if broker not in known:
            known[broker] = of_activemq() if broker == "activemq" else of_pybroker()
        return known[broker]

    return run


@parametrized("Mbeans", EXPECTED)
def test_outcome(outcomes: Callable[[str], Outcomes], broker: str, area: str, check: str) -> None:
    compare(outcomes(broker), broker, area, check, EXPECTED)
