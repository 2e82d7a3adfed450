"""rhea as a client of AMQP, over TCP and WebSocket."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.conftest import start
from tests.javascript.counting import CountingProgram, WebMembers, require_nothing_lost

__all__ = ["start"]

pytestmark = pytest.mark.component("node")

SCRIPT = "amqp_counting.mjs"
COUNT = 200
Start = Callable[..., BrokerProcess]


@pytest.mark.parametrize("scheme", ["amqp", "ws"])
def test_messages_come_once_and_in_order(start: Start, scheme: str) -> None:
    port = free_port()
    start(f"--{scheme}", str(port), store="memory:").wait_for("listening on")
    common = {"urls": [f"{scheme}://127.0.0.1:{port}"], "address": "queue://js.order"}
    with (
        CountingProgram(SCRIPT, role="receiver", name="r", **common) as receiver,
        CountingProgram(SCRIPT, role="sender", name="s", count=COUNT, **common) as sender,
    ):
        sender.wait_for(lambda: len(sender.confirmed) == COUNT)
        receiver.wait_for(lambda: ("s", COUNT) in receiver.received)
        sender.stop()
        receiver.stop()
        assert list(receiver.received.items()) == [(("s", number), 1) for number in range(1, COUNT + 1)]
        assert not sender.errors() | receiver.errors()


@pytest.mark.parametrize("address", ["queue://js.kills", "topic://js.kills"])
@pytest.mark.parametrize("scheme", ["amqp", "ws"])
def test_nothing_accepted_is_lost_over_failovers(tmp_path: Path, scheme: str, address: str) -> None:
    """A receiver of the topic is durable: its backlog comes to the next master's connection."""
    with WebMembers(tmp_path / "store", scheme) as pair:
        common = {"urls": pair.urls, "address": address, "durable": address.startswith("topic")}
        with (
            CountingProgram(SCRIPT, role="receiver", name="r", **common) as receiver,
            CountingProgram(SCRIPT, role="sender", name="s", **common) as sender,
        ):
            receiver.wait_for_line("attached")
            require_nothing_lost(pair, sender, "s", receiver)
            receiver.stop()
            assert receiver.connections > 3
