"""mqtt.js as a client, over TCP and WebSocket."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.conftest import start
from tests.integration.test_mqtt import Device
from tests.javascript.counting import CountingProgram, WebMembers, require_nothing_lost

__all__ = ["start"]

pytestmark = pytest.mark.component("node")

SCRIPT = "mqtt_counting.mjs"
COUNT = 100
Start = Callable[..., BrokerProcess]


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_each_quality_of_service(start: Start, scheme: str, version: int) -> None:
    port = free_port()
    start(f"--{scheme}", str(port), store="memory:").wait_for("listening on")
    common = {"urls": [f"{scheme}://127.0.0.1:{port}"], "version": version}
    for qos in (0, 1, 2):
        name = f"q{qos}"
        with (
            CountingProgram(SCRIPT, role="subscriber", name=name, qos=qos, **common) as subscriber,
        ):
            assert subscriber.wait_for_line(r"subscribed (\d+)")[1] == str(qos)
            with CountingProgram(SCRIPT, role="publisher", name=name, qos=qos, count=COUNT, **common) as publisher:
                publisher.wait_for(lambda: len(publisher.confirmed) == COUNT)
                publisher.stop()
            subscriber.wait_for(lambda: (name, COUNT) in subscriber.received)  # noqa: B023
            subscriber.stop()
            assert subscriber.received == {(name, number): 1 for number in range(1, COUNT + 1)}
            assert not publisher.errors() | subscriber.errors()


@pytest.mark.parametrize("scheme", ["mqtt", "ws"])
def test_will_of_a_killed_client(start: Start, scheme: str) -> None:
    port, mqtt = free_port(), free_port()
    ports = {scheme: str(port), "mqtt": str(mqtt)} | ({"mqtt": str(port)} if scheme == "mqtt" else {})
    start(*(word for name, number in ports.items() for word in (f"--{name}", number)), store="memory:").wait_for(
        "listening on"
    )
    urls = [f"{scheme}://127.0.0.1:{port}"]
    with (
        Device([int(ports["mqtt"])], "watcher") as watcher,
        CountingProgram(SCRIPT, role="subscriber", name="page", urls=urls, qos=1, version=4, will="gone/page") as page,
    ):
        watcher.subscribe(("gone/+", 1))
        page.wait_for_line(r"subscribed 1")
        page.kill()
        assert watcher.message()[:2] == ("gone/page", b"page")


@pytest.mark.parametrize(("scheme", "version", "qos"), [("mqtt", 4, 1), ("mqtt", 5, 2), ("ws", 4, 2), ("ws", 5, 1)])
def test_nothing_confirmed_is_lost_over_failovers(tmp_path: Path, scheme: str, version: int, qos: int) -> None:
    with WebMembers(tmp_path / "store", scheme) as pair:
        common = {"urls": pair.urls, "qos": qos, "version": version}
        with (
            CountingProgram(SCRIPT, role="subscriber", name="s", **common) as subscriber,
            CountingProgram(SCRIPT, role="publisher", name="p", **common) as publisher,
        ):
            subscriber.wait_for_line("subscribed .")
            require_nothing_lost(pair, publisher, "p", subscriber)
            assert subscriber.connections > 3
