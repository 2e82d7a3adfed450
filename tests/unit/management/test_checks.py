"""What each health check answers in each state of the node."""

import json
from http import HTTPStatus

import pytest

from pybroker.broker.domain.node_state import LINE_BYTES_MAX, NodeState
from pybroker.broker.domain.role import Role
from pybroker.management.checks import PATHS, SILENT_SECONDS, check


def state(role: Role, obstacle: str = "", age: float = 0.5) -> NodeState:
    return NodeState(role=role, obstacle=obstacle, at=100.0 - age)


STATES = {
    "unknown": None,
    "standby": state(Role.STANDBY),
    "degraded": state(Role.STANDBY, "stomp: cannot use 127.0.0.1 port 61613"),
    "starting": state(Role.PROMOTING),
    "master": state(Role.MASTER),
    "stopping": state(Role.RELINQUISHING),
    "stopped": state(Role.STOPPED),
    "silent": state(Role.MASTER, age=SILENT_SECONDS + 1),
}
WELL = {
    "/live": {"unknown", "standby", "degraded", "starting", "master", "stopping", "stopped"},
    "/ready": {"standby", "master"},
    "/master": {"master"},
    "/standby": {"standby"},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", STATES)
def test_each_check_in_each_state(path: str, name: str) -> None:
    expected = HTTPStatus.OK if name in WELL[path] else HTTPStatus.SERVICE_UNAVAILABLE
    assert check(path, STATES[name], now=100.0).status is expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("unknown", "starting"),
        ("standby", "standby"),
        ("degraded", "degraded: stomp: cannot use 127.0.0.1 port 61613"),
        ("starting", "starting"),
        ("master", "master"),
        ("stopping", "stopping"),
        ("stopped", "stopping"),
        ("silent", "silent for 11 s"),
    ],
)
def test_the_answer_names_the_state(name: str, text: str) -> None:
    assert check("/ready", STATES[name], now=100.0).text == text


def test_a_state_is_one_line_that_is_read_back() -> None:
    sent = state(Role.STANDBY, "two\nlines, and \N{LATIN SMALL LETTER E WITH ACUTE}")
    line = sent.as_line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert NodeState.of(json.loads(line)) == sent


def test_a_long_obstacle_is_cut() -> None:
    line = state(Role.STANDBY, "\N{GRINNING FACE}" * 100_000).as_line()
    assert len(line) < LINE_BYTES_MAX
    assert NodeState.of(json.loads(line)).obstacle == "\N{GRINNING FACE}" * 500
