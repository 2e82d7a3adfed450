"""Durable subscribers over a bridge between pybroker and a stock ActiveMQ, through kills of both."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import free_port
from tests.integration.network_durables import DELAYS, PybrokerEnd, check_deletion, check_restarts, started_near
from tests.java.checks import Programs

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(240)]


class ActiveMQEnd:
    """An ActiveMQ on KahaDB; it keeps its ports over restarts."""

    def __init__(self, class_path: str, directory: Path, *policies: str) -> None:
        self._class_path, self._directory, self._policies = class_path, directory, policies
        self.stomp, self.openwire = free_port(), free_port()
        self.broker: ActiveMQProcess

    def start(self) -> None:
        ports = {"openwire": self.openwire, "stomp": self.stomp}
        self.broker = ActiveMQProcess(self._class_path, self._directory, policies=self._policies, **ports)
        self.broker.wait()

    def kill(self) -> None:
        self.broker.close()

    def close(self) -> None:
        self.broker.close()


@pytest.fixture
def stock_far(programs: Programs, tmp_path: Path) -> Iterator[ActiveMQEnd]:
    end = ActiveMQEnd(programs.class_path, tmp_path / "far")
    end.start()
    with closing(end):
        yield end


@pytest.fixture
def near(tmp_path: Path, stock_far: ActiveMQEnd) -> Iterator[PybrokerEnd]:
    with closing(started_near(tmp_path / "near", stock_far.openwire)) as end:
        yield end


def test_pybroker_bridges_to_activemq(near: PybrokerEnd, stock_far: ActiveMQEnd) -> None:
    check_restarts(near, stock_far)


def test_activemq_lists_its_subscriptions_when_asked(near: PybrokerEnd, stock_far: ActiveMQEnd) -> None:
    check_deletion(near, stock_far, "stock")


def test_activemq_bridges_to_pybroker(programs: Programs, tmp_path: Path) -> None:
    far = PybrokerEnd(tmp_path / "far", "far")
    far.start()
    network = f"network=nc:static:(tcp://127.0.0.1:{far.openwire}){DELAYS}"
    with closing(far):
        near = ActiveMQEnd(programs.class_path, tmp_path / "near", network)
        near.start()
        with closing(near):
            check_restarts(near, far)
