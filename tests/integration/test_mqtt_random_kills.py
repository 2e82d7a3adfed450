"""Masters are killed at random moments under clients of several libraries: the counters of QoS 1 and 2 stay complete.

Each library has a publisher, and a subscriber with a session that gets what all of them publish.
`PYBROKER_KILL_SECONDS` and `PYBROKER_SEED` change how long it takes, and repeat the moments.
"""

import contextlib
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.client.kills import KILL_SECONDS, SEED
from tests.integration.kill_load import ProtocolPair
from tests.integration.mqtt_counting import PER_SECOND, AiomqttCounting, CountingClient, PahoCounting
from tests.javascript.counting import CountingProgram
from tests.soundness import assert_sound

V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
SCRIPT = "mqtt_counting.mjs"
PATIENCE_SECONDS = 120.0

Client = CountingClient | CountingProgram

pytestmark = [pytest.mark.component("node"), pytest.mark.timeout(int(180 + 2 * KILL_SECONDS))]


def test_counters_of_all_libraries_are_complete(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    with ProtocolPair(tmp_path, ["mqtt"]) as pair, contextlib.ExitStack() as stack:
        pair.wait_for_master()
        subscribers = _clients("subscriber", pair, stack)
        for each in subscribers.values():
            if isinstance(each, CountingClient):
                _wait(each.is_subscribed.is_set, [*subscribers.values()], "no subscription")
            else:
                each.wait_for_line("subscribed .")
        publishers = _clients("publisher", pair, stack)
        clients = [*subscribers.values(), *publishers.values()]
        kills = _kill_at_random(pair, clients)
        for publisher in publishers.values():
            publisher.stop()
        due = {(name, number) for name, publisher in publishers.items() for number in publisher.confirmed}
        for name, subscriber in subscribers.items():
            _wait(lambda: due <= subscriber.received.keys(), clients, f"{name} has not got everything")  # noqa: B023
        for subscriber in subscribers.values():
            subscriber.stop()
    print(f"{kills} kills in {KILL_SECONDS:.0f} s")
    for name, subscriber in subscribers.items():
        print(
            f"{name}: {publishers[name].connections} and {subscriber.connections} connections, "
            f"{len(publishers[name].confirmed)} confirmed, {len(due - subscriber.received.keys())} of {len(due)} lost, "
            f"{sum(count > 1 for count in subscriber.received.values())} more than once"
        )
    assert all(len(publisher.confirmed) > kills for publisher in publishers.values())
    assert_sound(tmp_path)


def _clients(role: str, pair: ProtocolPair, stack: contextlib.ExitStack) -> dict[str, Client]:
    ports = pair.ports_of("mqtt")
    urls = [f"mqtt://127.0.0.1:{port}" for port in ports]
    made: dict[str, Client] = {
        "paho311": PahoCounting(role, "paho311", ports, 1, V311),
        "paho5": PahoCounting(role, "paho5", ports, 2, V5),
        "aiomqtt": AiomqttCounting(role, "aiomqtt", ports, 1),
    }
    for each in made.values():
        assert isinstance(each, CountingClient)
        stack.callback(each.stopping.set)
    for name, version, qos in (("js311", 4, 2), ("js5", 5, 1)):
        arguments = {"urls": urls, "version": version, "qos": qos, "perSecond": PER_SECOND}
        made[name] = stack.enter_context(CountingProgram(SCRIPT, role=role, name=name, **arguments))
    return made


def _kill_at_random(pair: ProtocolPair, clients: Sequence[Client]) -> int:
    """Kill masters for a while; return how many."""
    chooser, kills = random.Random(SEED), 0
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        pair.wait_for_standby()
        before = sum(len(client.confirmed) for client in clients)
        threading.Event().wait(chooser.uniform(0.1, 2.0))
        _wait(lambda: sum(len(client.confirmed) for client in clients) > before, clients, "nothing is confirmed")  # noqa: B023
        master = pair.wait_for_master()
        master.kill()
        pair.restart(master)
        kills += 1
    return kills


def _wait(condition: object, clients: Sequence[Client], error_text: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        for client in clients:
            if isinstance(client, CountingClient) and client.failure is not None:
                raise AssertionError(f"{client.name} has failed") from client.failure
        assert time.monotonic() < deadline, error_text
        threading.Event().wait(0.01)
