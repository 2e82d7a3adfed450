"""stompjs as a client over WebSocket."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.conftest import start
from tests.javascript.counting import CountingProgram, WebMembers

__all__ = ["start"]

pytestmark = pytest.mark.component("node")

SCRIPT = "stomp_counting.mjs"
FORMS = [
    {"binary": False, "split": False},
    {"binary": True, "split": False},
    {"binary": False, "split": True},
]


@pytest.mark.parametrize("form", FORMS, ids=["text", "binary", "split"])
def test_large_messages_come_in_their_order(start: Callable[..., BrokerProcess], form: dict[str, bool]) -> None:
    """stompjs sends each as one message, of text or binary, or cut into messages of 8 KiB."""
    port = free_port()
    start("--ws", str(port), store="memory:").wait_for("listening on")
    urls = [f"ws://127.0.0.1:{port}/stomp"]
    with (
        CountingProgram(SCRIPT, role="consumer", name="c", urls=urls, **form) as consumer,
        CountingProgram(SCRIPT, role="producer", name="p", urls=urls, size=200_000, **form) as producer,
    ):
        assert producer.wait_for_line("up (.*)")[1] == "1.2"
        producer.wait_for(lambda: len(producer.confirmed) >= 30)
        producer.stop()
        consumer.wait_for(lambda: len(consumer.received) >= len(producer.confirmed))
        consumer.stop()
        assert consumer.received == {("p", number): 1 for number in producer.confirmed}
        assert not producer.errors() | consumer.errors()


@pytest.mark.parametrize("form", FORMS, ids=["text", "binary", "split"])
def test_nothing_confirmed_is_lost_over_failovers(tmp_path: Path, form: dict[str, bool]) -> None:
    with WebMembers(tmp_path / "store", "ws") as pair:
        common = {"urls": pair.urls, **form}
        with (
            CountingProgram(SCRIPT, role="consumer", name="c", **common) as consumer,
            CountingProgram(SCRIPT, role="producer", name="p", size=10_000, **common) as producer,
        ):
            for _ in range(3):
                goal = len(producer.confirmed) + 200
                producer.wait_for(lambda: len(producer.confirmed) >= goal)  # noqa: B023
                pair.replace_master()
            producer.stop()
            due = {("p", number) for number in producer.confirmed}
            consumer.wait_for(lambda: due <= consumer.received.keys())
            assert min(producer.connections, consumer.connections) > 3
