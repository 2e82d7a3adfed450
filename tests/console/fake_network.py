"""Bridges of a simulated member: up, down, backing off, stopped, incoming and refused ones, with long names."""

import time
from collections.abc import Mapping
from typing import Any

from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.rows import (
    STOPPED,
    UP,
    BridgeRow,
    DemandRow,
    IncomingBridgeRow,
    NetworkConnectorRow,
    StrandedRow,
)

LONG = "a connector of a long name, as administrators give them -> it says everything, " + "and.more." * 10
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


def bridge(connector: str, state: str, **columns: Any) -> BridgeRow:
    """Return a bridge that has been in its state for a minute."""
    since_ms = time.time_ns() // 10**6 - 60_000
    row = BridgeRow(connector, "tcp://b:61616", state, since_ms, "berlin", "ID:b", "tcp://b:61616", 12, 10, 0, 0, "", 0, 0, 2, False)  # fmt: skip # noqa: E501
    return row._replace(**columns)


def incoming(connector: str, number: int, **columns: Any) -> IncomingBridgeRow:
    """Return a bridge that another broker has opened."""
    since_ms = time.time_ns() // 10**6 - 60_000
    row = IncomingBridgeRow(connector, "oslo", "ID:o", f"10.0.0.7:5000{number}", since_ms, "oslo", f"ID:in-{number}", f"{connector}_oslo_outbound", False, 0, 34, 0, 0, "")  # fmt: skip # noqa: E501
    return row._replace(**columns)


class FakeNetwork:
    """The lists below `network`.

    Attributes:
        names: the column of each that its filter looks at.
        bridges: the bridges of its own connectors.
        incoming: those of other brokers.
    """

    def __init__(self) -> None:
        """Begin with bridges of all kinds."""
        self.names = dict.fromkeys(("bridges", "incoming"), "connector") | {
            "connectors": "name",
            "demand": "destination",
            "stranded": "queue",
        }
        self.bridges = [
            bridge("to-berlin", UP, is_duplex=True, received=7),
            bridge(
                LONG, "waiting to connect again",
                target=",".join(f"tcp://{each * 30}.example.org:61616" for each in "ab"),
                remote_name="", failures=4, last_failure="connection refused " * 20,
                last_failure_ms=time.time_ns() // 10**6 - 500, next_attempt_ms=time.time_ns() // 10**6 + 30_000,
            ),
            bridge("off", STOPPED),
        ]  # fmt: skip
        self.incoming = [
            incoming("from-oslo", 1, is_duplex=True, demand=1, sent=5, forwarded=4),
            incoming(HOSTILE, 2, problem="a bridge needs the right admin for all queues: add a group of user oslo"),
        ]
        self._demand = [DemandRow("to-berlin", "berlin", "queue", "ORDERS." + "LONG." * 30, "n > 3", "", 1000, 2, -5, True, False)]  # fmt: skip # noqa: E501
        self._stranded = [StrandedRow("ORDERS", 300, 60, 100)]

    def rows(self, part: str) -> list[dict[str, Any]]:
        """Return a list, as REST has it."""
        connectors = [
            NetworkConnectorRow.of(NetworkConnector(name=each.connector), [each], is_started=each.state != STOPPED)
            for each in self.bridges
        ]
        lists: Mapping[str, list[Any]] = {
            "connectors": connectors,
            "bridges": self.bridges,
            "incoming": self.incoming,
            "demand": self._demand,
            "stranded": self._stranded,
        }
        return [each._asdict() for each in lists[part]]

    def switch(self, name: str, verb: str) -> None:
        """Stop or start the bridges of a connector."""
        state = STOPPED if verb == "stop" else UP
        self.bridges = [each._replace(state=state) if each.connector == name else each for each in self.bridges]
