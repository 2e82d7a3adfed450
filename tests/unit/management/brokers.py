"""A simulated broker with a few queues, topics and clients, for tests of what is made of its rows."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.rows import BridgeRow, IncomingBridgeRow, NetworkConnectorRow
from pybroker.broker.domain.node_requests import (
    ConnectionRow,
    ConsumerRow,
    ProducerRow,
    RequestFailed,
    SubscriptionRow,
)
from tests.unit.management.simulated import row

COUNTS = {name: 0 for name in ("size", "enqueued", "dequeued", "dispatched", "expired", "in_flight")}

MASTER = {
    "version": "1.2",
    "broker_name": "B",
    "broker_id": "ID:b",
    "role": "MASTER",
    "since_ms": 0,
    "is_persistent": True,
    "store": "/s",
    "journal_directory": "/s/KahaDB",
    "epoch": 3,
    "has_scheduler": True,
    "listeners": ["tcp://127.0.0.1:61616", "stomp://127.0.0.1:61613"],
    "totals": {
        "connections": 1,
        "connections_ever": 4,
        "memory_bytes": 50,
        "memory_bytes_max": 100,
        "scheduled": 2,
        "loop_lag_seconds": 0.0,
    },
    "removed": COUNTS | {"enqueued": 100},
    "usage": {
        "storeUsage": 10,
        "storeLimit": 1000,
        "storePercentUsage": 1,
        "tempUsage": 0,
        "tempLimit": 2000,
        "tempPercentUsage": 0,
    },
}
STANDBY = {name: MASTER[name] for name in ("version", "broker_name", "since_ms", "is_persistent", "store")} | {
    "role": "STANDBY"
}

DESTINATIONS = [
    row("ORDERS", size=7, enqueued=11, dequeued=4, consumers=1, memory_bytes=25, memory_bytes_max=100),
    row("a=b:c*?", size=1),
    row("EMPTY", producers=1),
    row("PRICES", "topic", enqueued=6),
    row("ID:h:1", is_temporary=True),
]
CONSUMERS = [
    ConsumerRow(
        "ID:c:1:2", "ID:c", "app", "anonymous", "queue", "ORDERS", "n > 3", "", 5, 8, 3, 5, 0,
        False, False, False, False, 0, False, 1, 2, 0, 0,
    ),
    ConsumerRow(
        "ID:c:1:3", "ID:c", "app", "ann", "topic", "PRICES", "", "sub1", 100, 2, 1, 1, 0,
        False, False, False, False, 0, False, 1, 3, 0, 0,
    ),
    ConsumerRow(
        "ID:c:1:5", "ID:c", "app", "anonymous", "topic", "PRICES", "", "", 2, 2, 0, 2, 0,
        False, False, False, False, 0, False, 1, 5, 3, 1,
    ),
]  # fmt: skip
SUBSCRIPTIONS = [
    SubscriptionRow("app:sub1", "app", "sub1", "PRICES", "", False, True, "ID:c", 1, 1, 6, 2, 1, 0),
    SubscriptionRow("off:gone", "off", "gone", "PRICES", "x < 1", False, False, "", 4, 0, 4, 0, 0, 0),
]
PRODUCERS = [
    ProducerRow("ID:c:1:1", "ID:c", "app", "anonymous", "queue", "EMPTY", False, 1),
    ProducerRow("ID:c:1:4", "ID:c", "app", "anonymous", "", "", False, 1),
]
CONNECTIONS = [ConnectionRow("ID:c", "app", "anonymous", "127.0.0.1:40000", "tcp", 2, 2, 0, False)]


BRIDGES = [
    BridgeRow("hub", "tcp://h:1", "up", 5, "far", "ID:far", "tcp://h:1", 12, 10, 3, 0, "refused", 4, 0, 2, False),
    BridgeRow("hub", "tcp://i:2", "waiting to connect again", 6, "", "", "", 0, 0, 8, 8, "refused", 6, 9, 0, False),
]
NETWORK_CONNECTORS = [
    NetworkConnectorRow.of(
        NetworkConnector(name="hub", uri="static:(tcp://h:1,tcp://i:2)", user_name="u", password="secret-word"),
        BRIDGES,
        is_started=True,
    )
]


def destinations(arguments: Mapping[str, Any]) -> Any:
    if arguments.get("name") is None:
        return DESTINATIONS
    kind = "topic" if "TOPIC" in arguments["type"] else "queue"
    return [each for each in DESTINATIONS if (each.kind, each.name) == (kind, arguments["name"])]


INCOMING = [
    IncomingBridgeRow("in", "sp\ud800", "ID:o", "10.0.0.7:5000", 1000, "o", "ID:c", "in_sp_outbound",
                      True, 1, 34, 12, 11, ""),
    IncomingBridgeRow("edge", "d", "ID:d", "10.0.0.8:5000", 1000, "d", "ID:e", "edge_d_outbound",
                      False, 0, 2, 0, 0, "no right"),
]  # fmt: skip

PAIR = {
    "lock": {"holder": "one"},
    "members": [
        {"role": "MASTER", "is_alive": True},
        {"role": "STANDBY", "is_alive": True},
        {"role": "STANDBY", "is_alive": False},
    ],
}

METHODS = {
    "ha": lambda _: PAIR,
    "overview": lambda _: MASTER,
    "destinations": destinations,
    "consumers": lambda _: CONSUMERS,
    "subscriptions": lambda _: SUBSCRIPTIONS,
    "producers": lambda _: PRODUCERS,
    "connections": lambda _: CONNECTIONS,
    "network_connectors": lambda _: NETWORK_CONNECTORS,
    "bridges": lambda _: BRIDGES,
    "incoming_bridges": lambda _: INCOMING,
    "denied": lambda _: None,
}


def refuse(_: Mapping[str, Any]) -> Any:
    raise RequestFailed(HTTPStatus.SERVICE_UNAVAILABLE, "this member is not the master: it is standby")


STANDBY_METHODS = {name: refuse for name in METHODS} | {"overview": lambda _: STANDBY, "ha": lambda _: PAIR}
