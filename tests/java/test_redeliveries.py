"""Redelivery by the broker: a Java client meets the same with ActiveMQ's plugin and with pybroker's table."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.java.checks import Outcomes, Programs
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

SETTINGS = """\
[redelivery]
fallback_to_dead_letter = false

[[redelivery.policies]]
queue = "Redeliveries.>"
maximum_redeliveries = 2
initial_redelivery_delay = "1s"
redelivery_delay = "1s"
use_exponential_back_off = true
back_off_multiplier = 1.5
"""


def _seen(count: int, delay: int | None) -> dict[str, Any]:
    return {
        "redelivered": count > 1,
        "count": count,
        "delay": delay,
        "same id": True,
        "color": "Redeliveries.dead",
        "mode": 2,
    }


EXPECTED: dict[str, Any] = {
    "acknowledgedAtLast": {"seen": 1, "count": 2},
    "droppedWithoutAPolicy": {"seen": 1, "dead": "none"},
    "untilItIsADeadLetter": {
        "seen": [_seen(1, None), _seen(2, 1000), _seen(3, 1500)],
        "dead": {"counter": 0, "delay": 1500, "original": "queue://Redeliveries.dead"},
    },
}


@pytest.fixture(scope="module", params=["pybroker", "activemq"])
def outcomes(request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: Any) -> Iterator[Outcomes]:
    """What the Java client saw."""
    directory: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "activemq":
        plugin = "redelivery=Redeliveries.>:2:1000:1.5:false"
        with closing(ActiveMQProcess(programs.class_path, directory / "data", policies=[plugin])) as other:
            yield programs.area("Redeliveries", other.wait().uri)
        return
    file = directory / "pybroker.toml"
    file.write_text(SETTINGS)
    openwire = free_port()
    extra = ("--config", str(file), "--openwire", str(openwire))
    broker = FollowedBroker(str(directory / "store"), name="a", port=free_port(), extra=extra)
    try:
        broker.wait_for("listening on")
        yield programs.area("Redeliveries", f"tcp://127.0.0.1:{openwire}")
    finally:
        broker.close()


@pytest.mark.parametrize("check", EXPECTED)
def test_outcome(outcomes: Outcomes, check: str) -> None:
    assert outcomes.keys() == EXPECTED.keys()
    assert outcomes[check] == EXPECTED[check]
