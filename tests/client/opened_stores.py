"""Stores that faults have left, opened by a stock ActiveMQ: each holds the same, and what clients left last is in it.

Source: specification of replication, section 14.
"""

from pathlib import Path

from pybroker.client.sync import connect
from tests.client.kills import PATIENCE_SECONDS
from tests.conftest import Java
from tests.integration.replicated_register import ObservedCluster

OPEN_STORE = Path(__file__).parents[1] / "integration" / "java" / "OpenStore.java"
LEFT = 20


def leave_messages(cluster: ObservedCluster) -> None:
    """Leave something in a queue and for a durable subscription: what faults were about has been consumed."""
    with connect(cluster.uri, client_id="left", timeout=PATIENCE_SECONDS) as connection:
        connection.consumer("topic://LEFT.TOPIC", durable="sub").close()
        for number in range(LEFT):
            for destination in ("queue://LEFT.QUEUE", "topic://LEFT.TOPIC"):
                connection.send(destination, f"left {number}", timeout=PATIENCE_SECONDS)


def check_in_activemq(java: Java, cluster: ObservedCluster, *names: str) -> None:
    """Open each store, whose member has stopped, in an ActiveMQ; all must hold the same, in the same order."""
    found = {
        name: sorted(
            java.run(OPEN_STORE, str(cluster.store(name) / "kahadb"), timeout_seconds=120).splitlines(),
            key=lambda line: line.split(" ID:")[0],
        )
        for name in names
    }
    lines = found[names[0]]
    assert all(each == lines for each in found.values()), found
    queued = [line.split(maxsplit=3)[3] for line in lines if line.startswith("queue LEFT.QUEUE ")]
    assert queued == [f"left {number}" for number in range(LEFT)], lines
    assert sum(line.startswith("pending LEFT.TOPIC left:sub null ID:") for line in lines) == LEFT, lines
    print(f"ActiveMQ opened {len(names)} stores: {len(lines)} messages in each")
