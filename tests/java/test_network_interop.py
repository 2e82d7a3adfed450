"""Bridges in each direction between pybroker and a stock ActiveMQ: a table of rows and pairs, one way and duplex.

The rows of "one way" run in a pair of brokers that has two connectors, as ActiveMQ's documentation has it for request
and reply. Those of "duplex" run in a pair with one connection, "there" in the direction of the connector, and "back".
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.java.bridged import BridgedPair
from tests.java.checks import Programs
from tests.java.network_rows import CUTS, REPLIES, ROWS, Row

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180 + 10 * CUTS)]

KINDS = {
    "activemq to pybroker": ("activemq", "pybroker"),
    "pybroker to activemq": ("pybroker", "activemq"),
    "pybroker to pybroker": ("pybroker", "pybroker"),
}


@pytest.fixture(scope="module", params=KINDS)
def one_way(
    request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgedPair]:
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("one-way")
        yield BridgedPair(KINDS[request.param], directory, programs, stack, is_duplex=False)


@pytest.fixture(scope="module", params=KINDS)
def duplex(
    request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgedPair]:
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("duplex")
        yield BridgedPair(KINDS[request.param], directory, programs, stack, is_duplex=True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_row_holds_for_bridges_of_one_way(one_way: BridgedPair, row: Row) -> None:
    row(one_way.ways["there"])


DUPLEX_CELLS = [(way, row) for way in ("there", "back") for row in ROWS if way == "there" or row not in REPLIES]


@pytest.mark.parametrize(("way", "row"), DUPLEX_CELLS, ids=[f"{way}-{row.__name__}" for way, row in DUPLEX_CELLS])
def test_row_holds_for_duplex_bridges(duplex: BridgedPair, way: str, row: Row) -> None:
    row(duplex.ways[way])
