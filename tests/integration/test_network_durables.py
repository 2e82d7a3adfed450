"""Durable subscribers over a bridge of two pybrokers with journals, through kills of both."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.network_durables import (
    PybrokerEnd,
    check_restarts,
    leave,
    subscriber,
    unsubscribe,
    wait_for_demand,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[PybrokerEnd]:
    end = PybrokerEnd(tmp_path / "far", "far")
    end.start()
    with closing(end):
        yield end


@pytest.fixture
def near(tmp_path: Path, far: PybrokerEnd) -> Iterator[PybrokerEnd]:
    uri = f"static:(tcp://127.0.0.1:{far.openwire})?initialReconnectDelay=200&maxReconnectDelay=500"
    end = PybrokerEnd(tmp_path / "near", "near", f'name = "nc"\nuri = "{uri}"')
    end.start()
    with closing(end):
        yield end


def test_each_message_arrives_once_through_kills_of_both(near: PybrokerEnd, far: PybrokerEnd) -> None:
    check_restarts(near, far)


def test_deleted_while_the_bridge_is_down_leaves_nothing(near: PybrokerEnd, far: PybrokerEnd) -> None:
    client = subscriber(far)
    wait_for_demand(near, client)
    leave(client)
    near.kill()
    unsubscribe(far)
    near.start()
    near.wait_for_deletion("nc_far_inbound_near:NC-DS_near_D")
