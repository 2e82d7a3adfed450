"""The session of an MQTT client goes from pybroker to a stock ActiveMQ and back, with its backlog, on one store.

It does so with each subscription strategy: as durable subscriptions, and as queues of virtual topics. The ActiveMQ
leaves the retained message and the records of sessions alone.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pybroker.broker.domain.recovery import Recovery
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.store import JournalStore
from tests import mqtt_packets as packets
from tests.conftest import JAR_DIRECTORY, MQTT_JARS
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.test_mqtt import Device
from tests.runtimes import runtime

pytestmark = [pytest.mark.component("activemq-mqtt"), pytest.mark.timeout(120)]

HOME = Path("/usr/share/activemq")
CONFIGURATION = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="m" useJmx="false" dataDirectory="DATA">
    <persistenceAdapter><kahaDB directory="DATA/kahadb"/></persistenceAdapter>
    <transportConnectors><transportConnector name="mqtt" uri="mqtt://127.0.0.1:PORTOPTIONS"/></transportConnectors>
  </broker>
</beans>
"""


class StockMqtt:
    """An ActiveMQ with an MQTT connector, whose codec Debian has in another package and not on its class path."""

    def __init__(self, directory: Path, store: Path, *, options: str = "") -> None:
        directory.mkdir()
        self.port = free_port()
        extra = directory / "lib"
        extra.mkdir()
        for name in MQTT_JARS:
            (extra / name).symlink_to(JAR_DIRECTORY / name)
        file = directory / "activemq.xml"
        values = {"DATA": str(store), "PORT": str(self.port), "OPTIONS": options}
        file.write_text(re.sub("DATA|PORT|OPTIONS", lambda found: values[found[0]], CONFIGURATION))
        properties = [f"-Dactivemq.{name}={directory}" for name in ("base", "conf", "data")]
        command = ["java", "-XX:TieredStopAtLevel=1", f"-Dactivemq.home={HOME}", *properties]
        command += ["-jar", str(HOME / "bin" / "activemq.jar"), "start", "--extdir", str(extra), f"xbean:file:{file}"]
        with (directory / "activemq.log").open("wb") as log:
            self.process = subprocess.Popen(command, cwd=directory, stdout=log, stderr=subprocess.STDOUT)

    def close(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Ends what a test has started."""
    with ExitStack() as stack:
        yield stack


def backlog(device: Device, count: int) -> list[tuple[str, bytes]]:
    """Return the messages that come before the client subscribes, in a fixed order."""
    return sorted((topic, payload) for topic, payload, _ in (device.message() for _ in range(count)))


def queue_names(directory: Path) -> list[str]:
    """Return the names of the queues of a store that no broker has open."""
    return [each.name for each in contents(directory).queues]


def subscription_names(directory: Path) -> set[str]:
    """Return the keys of the durable subscriptions of a store that no broker has open."""
    return {each.subscription.key for each in contents(directory).backlogs}


def contents(directory: Path) -> Recovery:
    """Return what a store has that no broker has open."""
    store = JournalStore(directory / "kahadb", settings=JournalSettings(), runtime=runtime())
    try:
        return store.recover()
    finally:
        store.abandon()


def test_session_goes_there_and_back(start: Callable[..., BrokerProcess], running: ExitStack, tmp_path: Path) -> None:
    store, port = tmp_path / "store", free_port()
    first = start("--mqtt", str(port), store=store)
    first.wait_for("listening on")
    with Device([port], "dev/1:x") as device:
        device.subscribe(("t/+/x", 1), ("t/two", 2), ("zero/#", 0))
    with Device([port], "gone") as device:
        device.subscribe(("t/gone", 1), ("zero/#", 0))
    with Device([port], "sender", clean=True) as sender:
        for number in range(3):
            sender.publish("t/a/x", b"m%d" % number, number + 1)
        sender.publish("t/two", b"two", 4)
        sender.socket.sendall(packets.publish("kept", b"kept", qos=1, packet_id=5, retain=True))
        assert sender.receive()[0] == packets.PUBACK
    first.kill()

    stock = running.enter_context(closing(StockMqtt(tmp_path / "activemq", store)))
    with Device([stock.port], "dev/1:x") as device:
        assert backlog(device, 4) == [("t/a/x", b"m0"), ("t/a/x", b"m1"), ("t/a/x", b"m2"), ("t/two", b"two")]
    with Device([stock.port], "sender", clean=True) as sender:
        sender.publish("t/b/x", b"from ActiveMQ", 1)
    with Device([stock.port], "gone", clean=True) as device:
        device.subscribe(("after", 0))  # answered behind the end of its session
    stock.close()

    second = start("--mqtt", str(port), store=store)
    second.wait_for("listening on")
    with Device([port], "dev/1:x") as device:
        assert device.is_session_present
        assert ("t/b/x", b"from ActiveMQ") in backlog(device, 1)
        with Device([port], "sender", clean=True) as sender:
            sender.publish("zero/a", b"QoS 0", 1)
        while device.message()[:2] != ("zero/a", b"QoS 0"):
            pass  # what it acknowledged to ActiveMQ right before the kill may come again
    with Device([port], "reader", clean=True) as device:
        device.subscribe(("kept", 1))
        assert device.message()[:2] == ("kept", b"kept")
    with Device([port], "gone") as device:
        assert not device.is_session_present


def test_backlog_stays_when_the_quality_is_changed(
    start: Callable[..., BrokerProcess], running: ExitStack, tmp_path: Path
) -> None:
    store, port = tmp_path / "store", free_port()
    first = start("--mqtt", str(port), store=store)
    first.wait_for("listening on")
    with Device([port], "dev1") as device, Device([port], "other") as other:
        other.subscribe(("t", 1))
        with Device([port], "sender", clean=True) as sender:
            sender.publish("t", b"before", 1)
        device.subscribe(("t", 1))
    with Device([port], "sender", clean=True) as sender:
        for number in range(3):
            sender.publish("t", b"m%d" % number, number + 1)
    with Device([port], "dev1") as device:
        device.socket.sendall(packets.subscribe(1, ("t", 2)))
        while device.receive()[0] != 0x90:  # the backlog, which it does not acknowledge
            pass
    first.kill()

    stock = running.enter_context(closing(StockMqtt(tmp_path / "activemq", store)))
    with Device([stock.port], "dev1") as device:
        assert backlog(device, 3) == [("t", b"m0"), ("t", b"m1"), ("t", b"m2")]
    stock.close()

    second = start("--mqtt", str(port), store=store)
    second.wait_for("listening on")
    with Device([port], "other") as device:
        assert [device.message()[1] for _ in range(4)] == [b"before", b"m0", b"m1", b"m2"]
    second.kill()
    assert subscription_names(store) == {"dev1:EXACTLY_ONCE:t", "other:AT_LEAST_ONCE:t"}


def test_queues_of_virtual_topics_go_there_and_back(
    start: Callable[..., BrokerProcess], running: ExitStack, tmp_path: Path
) -> None:
    store, port = tmp_path / "store", free_port()
    settings = ("--mqtt", str(port), "--mqtt-subscription-strategy", "mqtt-virtual-topic-subscriptions")
    first = start(*settings, store=store)
    first.wait_for("listening on")
    with Device([port], "dev.1") as device:
        device.subscribe(("t/+/x", 1), ("t/two", 2))
    with Device([port], "dev2") as device:
        device.subscribe(("s/+", 1), ("s/#", 2))
    with Device([port], "sender", clean=True) as sender:
        for number in range(3):
            sender.publish("t/a/x", b"m%d" % number, number + 1)
        sender.publish("t/two", b"two", 4)
        sender.publish("s/3", b"three", 5)
    first.kill()

    options = "?transport.subscriptionStrategy=mqtt-virtual-topic-subscriptions"
    stock = running.enter_context(closing(StockMqtt(tmp_path / "activemq", store, options=options)))
    with Device([stock.port], "dev2") as device:
        assert backlog(device, 2) == [("s/3", b"three")] * 2
    with Device([stock.port], "dev1") as device:
        device.subscribe(("u/#", 1))
    with Device([stock.port], "sender", clean=True) as sender:
        sender.publish("t/b/x", b"from ActiveMQ", 1)
        sender.publish("u/v", b"own", 2)
    stock.close()

    second = start(*settings, store=store)
    second.wait_for("listening on")
    with Device([port], "dev1") as device:
        assert device.is_session_present
        assert backlog(device, 1) == [("u/v", b"own")]
    with Device([port], "dev.1") as device:
        assert device.is_session_present
        assert backlog(device, 5) == [
            ("t/a/x", b"m0"), ("t/a/x", b"m1"), ("t/a/x", b"m2"), ("t/b/x", b"from ActiveMQ"), ("t/two", b"two"),
        ]  # fmt: skip
    second.kill()
    assert {each for each in queue_names(store) if each.startswith("Consumer.")} == {
        "Consumer.dev/1:AT_LEAST_ONCE.VirtualTopic.t.*.x",
        "Consumer.dev/1:EXACTLY_ONCE.VirtualTopic.t.two",
        "Consumer.dev1:AT_LEAST_ONCE.VirtualTopic.u.>",
        "Consumer.dev2:AT_LEAST_ONCE.VirtualTopic.s.*",
        "Consumer.dev2:EXACTLY_ONCE.VirtualTopic.s.>",
    }
