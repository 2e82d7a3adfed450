"""`pybroker network` over the real HTTP server of a simulated node."""

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybroker.broker.app.cli import commands
from pybroker.broker.app.operator_network import described
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.rows import (
    BridgeRow,
    DemandRow,
    IncomingBridgeRow,
    NetworkConnectorRow,
    StrandedRow,
)
from pybroker.broker.domain.node_requests import RequestFailed
from tests.unit.management.served import ServedNode, served

UP = BridgeRow(
    "berlin", "tcp://b:61616", "up", 1000, "b", "ID:b", "tcp://b:61616", 12, 10, 3, 0, "refused", 500, 0, 1, False
)
WAITING = UP._replace(
    connector="rome", target="tcp://r:61616", state="waiting to connect again", remote_name="", next_attempt_ms=64_000,
    last_failure="tcp://r:61616: refused", last_failure_ms=2_000,
)  # fmt: skip
CONNECTORS = [
    NetworkConnectorRow.of(NetworkConnector(name="berlin", uri="static:(tcp://b:61616)"), [UP], is_started=True)
]
DEMAND = [DemandRow("berlin", "b", "queue", "ORDERS", "n > 3", "", 1000, 2, -5, True, False)]
INCOMING = [
    IncomingBridgeRow("to-us", "oslo", "ID:o", "10.0.0.7:5000", 1000, "o", "ID:c", "to-us_oslo_outbound",
                      True, 1, 34, 12, 11, ""),
    IncomingBridgeRow("edge", "bonn", "ID:d", "10.0.0.8:5000", 1000, "d", "ID:e", "edge_bonn_outbound",
                      False, 0, 2, 0, 0, "a bridge needs the right admin"),
]  # fmt: skip
STRANDED = [StrandedRow("LOST", 300, 60, 100)]


def switch(arguments: Mapping[str, Any]) -> Any:
    if arguments["connector"] != "berlin":
        raise RequestFailed(HTTPStatus.NOT_FOUND, "there is no network connector 'rome'")
    return {"changed": True}


METHODS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "overview": lambda _: {"broker_name": "amq", "host": "h", "role": "MASTER", "since_ms": 0},
    "network_connectors": lambda _: CONNECTORS,
    "bridges": lambda _: [UP, WAITING],
    "incoming_bridges": lambda _: INCOMING,
    "demand": lambda _: DEMAND,
    "stranded": lambda _: STRANDED,
    "stop_connector": switch,
    "start_connector": lambda _: {"changed": False},
}


@pytest.fixture
def node() -> Iterator[ServedNode]:
    with served(METHODS) as found:
        yield found


def run(node: ServedNode, *arguments: str) -> Result:
    return CliRunner().invoke(commands, ["network", *arguments, "--url", node.url])


def test_network_as_json_has_all_lists(node: ServedNode) -> None:
    found = json.loads(run(node, "--json").stdout)
    assert [each["name"] for each in found["connectors"]] == ["berlin"]
    assert "password" not in found["connectors"][0]
    assert [each["state"] for each in found["bridges"]] == ["up", "waiting to connect again"]
    assert [each["received"] for each in found["incoming"]] == [34, 2]
    assert found["demand"][0]["outstanding"] == 2
    assert found["stranded"] == [STRANDED[0]._asdict()]


def test_network_as_text_has_a_table_for_each_list(node: ServedNode) -> None:
    lines = run(node).stdout.splitlines()
    assert [line.split()[0] for line in lines if line] == ["CONNECTOR", "berlin", "rome", "INCOMING", "to-us", "edge", "CONNECTOR", "berlin", "QUEUE", "LOST"]  # fmt: skip # noqa: E501
    assert lines[-1].endswith("60 of the first 100")


def test_bridge_that_waits_shows_when_and_why() -> None:
    answer: dict[str, Any] = {
        "connectors": [CONNECTORS[0]._asdict()],
        "bridges": [WAITING._asdict()],
        "incoming": [],
        "demand": [],
        "stranded": [],
    }
    _, line = described(answer, 62_000)
    assert "waits, connects in 2 s" in line
    assert line.endswith("1 min ago: tcp://r:61616: refused")


def test_network_without_connectors_says_so() -> None:
    answer: dict[str, Any] = {"connectors": [], "bridges": [], "incoming": [], "demand": [], "stranded": []}
    assert list(described(answer, 0)) == ["there is no network connector"]


def test_incoming_bridges_show_ways_counts_and_problems(node: ServedNode) -> None:
    served, refused = run(node).stdout.splitlines()[5:7]
    assert "both ways" in served
    assert "oslo at 10.0.0.7:5000" in served
    assert served.split()[-2:] == ["34", "11"]
    assert "REFUSED" in refused
    assert refused.endswith("a bridge needs the right admin")


def test_stop_of_a_connector_is_a_request_of_the_user(node: ServedNode) -> None:
    assert run(node, "stop", "berlin").stdout == "berlin: stopped\n"
    (arguments,) = node.asked("stop_connector")
    assert arguments["connector"] == "berlin"
    assert arguments["user"]


def test_start_of_a_started_connector_changes_nothing(node: ServedNode) -> None:
    assert run(node, "start", "berlin").stdout == "berlin: was started before\n"


def test_stop_of_an_unknown_connector_fails(node: ServedNode) -> None:
    found = run(node, "stop", "rome")
    assert found.exit_code != 0
    assert "there is no network connector 'rome'" in found.stderr


def test_stop_without_a_name_is_a_usage_error(node: ServedNode) -> None:
    assert "Name the network connector" in run(node, "stop").stderr
