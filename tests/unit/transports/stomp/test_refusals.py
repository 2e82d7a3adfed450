# mypy: disable-error-code="arg-type"
"""The log of a producer that repeats its SEND while the store is full."""

import logging
from typing import Any

import pytest

from pybroker.broker.app import wiring
from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.store.memory import MemoryStore
from pybroker.transports.stomp.refusals import QUIET_SECONDS, Refusals
from tests.unit.transports.stomp.conftest import FakeLink

SEND = b"SEND\ndestination:/queue/Q\npersistent:true\n\nx\0"


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_first_refusal_is_logged_then_one_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    refusals, error = Refusals(), ResourceLimit("no space")
    for number in range(2_000):
        refusals.record(f"ID:{number}", error, 100.0 + number / 2_000)
    refusals.record("ID:late", error, 100.0 + QUIET_SECONDS)
    refusals.record("ID:later", error, 100.1 + QUIET_SECONDS)
    refusals.record("ID:next", error, 100.0 + 2 * QUIET_SECONDS)
    refusals.record("ID:last", error, 100.0 + 3 * QUIET_SECONDS)
    assert caplog.messages == [
        "ID:0: SEND refused: no space",
        "ID:late: SEND refused: no space (1,999 more since the last such line)",
        "ID:next: SEND refused: no space (1 more since the last such line)",
        "ID:last: SEND refused: no space",
    ]


class FullStore(MemoryStore):
    @property
    def is_full(self) -> bool:
        return True


def open_sessions(count: int) -> tuple[list[Any], list[FakeLink]]:
    """Return connected sessions as a broker makes them whose store is full."""
    config = Config(store="memory:", openwire=None)
    broker = wiring.make_broker(config, FullStore())
    make = wiring.make_protocols(config, broker, config.ports())["stomp"].session
    links = [FakeLink() for _ in range(count)]
    sessions = [make(link) for link in links]
    for number, session in enumerate(sessions):
        session.receive(f"CONNECT\naccept-version:1.2\nhost:h\nclient-id:{number}\n\n\0".encode())
    return sessions, links


def test_connections_share_the_line_of_refusals(caplog: pytest.LogCaptureFixture) -> None:
    sessions, links = open_sessions(3)
    for session in sessions:
        session.receive(SEND * 5)
    assert [bytes(link.output).count(b"ERROR\n") for link in links] == [5, 5, 5]
    [line] = caplog.messages
    assert "SEND refused: Usage Manager Store is Full: queue://Q" in line

    links[1].now += QUIET_SECONDS
    sessions[1].receive(SEND)
    assert [each.endswith(" (14 more since the last such line)") for each in caplog.messages] == [False, True]


def test_other_refusals_are_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    [session], _ = open_sessions(1)
    session.receive(b"SEND\n\nno destination\0" * 3)
    session.receive(b"UNSUBSCRIBE\nid:7\n\n\0" * 2)
    refused = [each.partition(" refused")[0].rpartition(" ")[2] for each in caplog.messages]
    assert refused == ["SEND"] * 3 + ["UNSUBSCRIBE"] * 2
