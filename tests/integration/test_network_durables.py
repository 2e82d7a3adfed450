"""Durable subscribers over a bridge of two pybrokers with journals, through kills of both."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.network_durables import PybrokerEnd, check_deletion, check_restarts, started_near

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[PybrokerEnd]:
    end = PybrokerEnd(tmp_path / "far", "far")
    end.start()
    with closing(end):
        yield end


@pytest.fixture
def near(tmp_path: Path, far: PybrokerEnd) -> Iterator[PybrokerEnd]:
    with closing(started_near(tmp_path / "near", far.openwire)) as end:
        yield end


def test_each_message_arrives_once_through_kills_of_both(near: PybrokerEnd, far: PybrokerEnd) -> None:
    check_restarts(near, far)


def test_deleted_while_the_bridge_is_down_leaves_nothing(near: PybrokerEnd, far: PybrokerEnd) -> None:
    check_deletion(near, far, "far")
