"""The optional log of OpenWire clients: who connected, and how each connection ended."""

import logging

import pytest

from pybroker.broker.domain.openwire.commands import ConnectionId, RemoveInfo, ShutdownInfo
from pybroker.transports.client_log import LOGGER
from tests.unit.transports.openwire.conversation import World

CONNECTED = "ID:c1 (client id c1) from 127.0.0.1:50312 connected: OpenWire 12"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger=LOGGER)
    return caplog


def logged(log: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in log.records if each.name == LOGGER]


def test_a_client_that_vanishes_is_two_lines(world: World, log: pytest.LogCaptureFixture) -> None:
    client = world.client()
    assert logged(log) == [CONNECTED]
    client.session.lost()
    assert logged(log)[1:] == ["ID:c1 (client id c1) from 127.0.0.1:50312 disconnected: closed by the client"]


def test_a_client_that_leaves_in_order_is_two_lines(world: World, log: pytest.LogCaptureFixture) -> None:
    client = world.client()
    client.send_commands(RemoveInfo(object_id=ConnectionId(client.id)), ShutdownInfo())
    client.session.lost()
    assert logged(log)[1:] == ["ID:c1 (client id c1) from 127.0.0.1:50312 disconnected: RemoveInfo"]


def test_a_cut_connection_is_logged_differently_from_a_close(world: World, log: pytest.LogCaptureFixture) -> None:
    client = world.client()
    client.session.receive(b"\0\0\0\2\xff\xff")
    assert len(logged(log)) == 2
    assert not logged(log)[1].endswith("closed by the client")


def test_without_the_setting_nothing_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger=LOGGER)
    client = world.client()
    caplog.set_level(logging.INFO, logger=LOGGER)
    client.session.lost()
    assert logged(caplog) == []
