"""Two brokers with a bridge between them: what operators see of it, and its end and begin by an operator."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from pybroker.broker.app.cli import commands
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient

SECONDS = 30.0

Start = Callable[..., BrokerProcess]


def done(*arguments: str) -> str:
    found = CliRunner().invoke(commands, arguments)
    assert found.exit_code == 0, found.output + str(found.exception)
    return found.stdout


class Near:
    """The broker with the connector."""

    def __init__(self, broker: BrokerProcess, store: Path) -> None:
        self.port = broker.port
        self.store = str(store)
        self.url = broker.wait_for(r"management at (https?://127.0.0.1:\d+)")[1]
        broker.wait_for("listening on")
        self.run("queues", "--wait", "30s")

    def run(self, *arguments: str) -> str:
        return done(*arguments, "--url", self.url)

    def until(self, is_there: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + SECONDS
        while not is_there(found := json.loads(self.run("network", "--json"))):
            assert time.monotonic() < deadline, found
        return found


def send(port: int, queue: str, body: str) -> None:
    with contextlib.closing(StompClient(port)) as client:
        client.request("SEND", body.encode(), destination=f"/queue/{queue}", persistent="true")


def pair(start: Start, directory: Path) -> tuple[Near, BrokerProcess]:
    port = free_port()
    far = start("--openwire", str(port), store=directory / "far", name="far")
    far.wait_for("listening on")
    file = directory / "near.toml"
    file.write_text(f'[[network]]\nname = "to-far"\nuri = "static:(tcp://127.0.0.1:{port})"\n')
    options = ("--config", str(file), "--management", "127.0.0.1:0", "--broker-name", "near")
    return Near(start(*options, store=directory / "near", name="near"), directory / "near"), far


def test_network_shows_demand_and_obeys_stop_and_start(start: Start, tmp_path: Path) -> None:
    near, far = pair(start, tmp_path)
    with contextlib.closing(StompClient(far.port)) as consumer:
        consumer.request("SUBSCRIBE", id="1", destination="/queue/Q")
        found = near.until(
            lambda found: bool(found["demand"]) and [each["state"] for each in found["bridges"]] == ["up"]
        )
        assert [(each["kind"], each["destination"]) for each in found["demand"]] == [("queue", "Q")]
        near.until(lambda _: "1 of 1 bridge to other brokers up" in done("status", "--store", near.store))

        assert near.run("network", "stop", "to-far") == "to-far: stopped\n"
        assert near.run("network", "stop", "to-far") == "to-far: was stopped before\n"
        near.until(lambda found: found["bridges"][0]["state"] == "stopped" and not found["connectors"][0]["is_started"])
        send(near.port, "Q", "while stopped")
        assert near.run("network", "start", "to-far") == "to-far: started\n"
        assert consumer.read_until("MESSAGE").body == b"while stopped"
        found = near.until(lambda found: found["connectors"][0]["forwarded"] == 1)
        assert found["bridges"][0]["failures"] == 0


def test_network_shows_why_a_bridge_is_down(start: Start, tmp_path: Path) -> None:
    near, far = pair(start, tmp_path)
    near.until(lambda found: found["bridges"][0]["state"] == "up")
    far.kill()
    found = near.until(lambda found: found["bridges"][0]["next_attempt_ms"] > 0)
    assert found["bridges"][0]["last_failure"]
    assert "to-far" in near.run("network")


def test_messages_from_a_bridge_without_a_consumer_are_stranded(start: Start, tmp_path: Path) -> None:
    port = free_port()
    options = ("--openwire", str(port), "--management", "127.0.0.1:0")
    far = start(*options, store=tmp_path / "far", name="far")
    far_side = Near(far, tmp_path / "far")
    file = tmp_path / "near.toml"
    uri = f"static:(tcp://127.0.0.1:{port})"
    file.write_text(f'[[network]]\nname = "n"\nuri = "{uri}"\nstatically_included = ["queue://S"]\n')
    near = start("--config", str(file), "--broker-name", "near", store=tmp_path / "near", name="near")
    near.wait_for("is up")
    send(far.port, "OWN", "of a client")
    send(near.port, "S", "forwarded")
    # Each list has an age of its own.
    found = far_side.until(lambda found: found["stranded"] and [each["received"] for each in found["incoming"]] == [1])
    (bridge,) = found["incoming"]
    assert (bridge["connector"], bridge["remote_name"]) == ("n", "near")
    far_side.until(lambda _: "1 bridge from other brokers" in done("status", "--store", far_side.store))
    assert "near at 127.0.0.1:" in far_side.run("network")
    assert found["stranded"] == [{"queue": "S", "size": 1, "stranded": 1, "examined": 1}]
    with contextlib.closing(StompClient(far.port)) as consumer:
        consumer.request("SUBSCRIBE", id="1", destination="/queue/S", ack="client")
        far_side.until(lambda found: not found["stranded"])


def test_doctor_names_the_brokers_that_do_not_answer(start: Start, tmp_path: Path) -> None:
    near, far = pair(start, tmp_path)
    options = ["--store", near.store, "--config", str(tmp_path / "near.toml"), "--broker-name", "near", "--json"]
    options += ("--stomp", "0", "--openwire", "0", "--disk-reserve", "0")

    def findings() -> list[str]:
        found = json.loads(CliRunner().invoke(commands, ("doctor", *options)).stdout)["findings"]
        return [each["evidence"] for each in found if each["check"] in ("network", "bridges")]

    near.until(lambda found: found["bridges"][0]["state"] == "up")
    near.until(lambda _: "1 of 1 bridge to other brokers up" in done("status", "--store", near.store))
    assert findings() == []
    far.kill()
    near.until(lambda _: "DOWN" in done("status", "--store", near.store))
    (down,) = findings()
    assert down.startswith("to-far to tcp://127.0.0.1:")
