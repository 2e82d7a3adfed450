"""The advisories about bridges: each that begins and ends, and what the remote broker refuses."""

from collections.abc import Sequence
from typing import Any

import pytest

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.openwire.commands import BrokerInfo, MessageDispatch
from pybroker.broker.domain.openwire.values import decode_map
from tests.compiled import interpreted
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind

Q = queue("Q")
BRIDGES = topic("ActiveMQ.Advisory.NetworkBridge")
FAILURES = topic("ActiveMQ.Advisory.NetworkBridge.ForwardFailure")

_PROPERTIES_MAX = 100


def properties(dispatch: MessageDispatch) -> dict[str, Any]:
    assert dispatch.message is not None
    return dict(decode_map(dispatch.message.marshalled_properties or b"", _PROPERTIES_MAX))


def about(dispatches: Sequence[MessageDispatch]) -> list[tuple[str | None, bool]]:
    """Return the names of the peers, and whether their bridges have started."""
    found: list[tuple[str | None, bool]] = []
    for each in dispatches:
        assert each.message is not None
        info = each.message.data_structure
        assert isinstance(info, BrokerInfo)
        found.append((info.broker_name, properties(each)["started"]))
    return found


def got(client: OpenWireClient) -> list[MessageDispatch]:
    return of_kind(client.receive(), MessageDispatch)


def test_bridge_that_begins_and_ends_is_announced() -> None:
    brokers = TwoBrokers(user_name="bridge", password="secret")
    watcher = brokers.client(brokers.near.broker, "watcher")
    (late,) = watcher.consume(BRIDGES)
    assert about([late]) == [("far", True)], "a late subscriber gets the bridges that stand"
    assert properties(late)["createdByDuplex"] is False
    assert properties(late)["remoteIp"].startswith("tcp://")
    assert late.message is not None
    info = late.message.data_structure
    assert isinstance(info, BrokerInfo)
    assert info.broker_id is not None
    assert (info.broker_id.value, info.broker_url) == (brokers.far.id, "tcp://b1:61616")
    assert (info.network_connection, info.network_properties) == (True, None)
    brokers.cut()
    (end,) = got(watcher)
    assert about([end]) == [("far", False)]
    assert "remoteIp" not in properties(end)
    brokers.connect()
    assert about(got(watcher)) == [("far", True)]


def test_bridge_that_has_ended_is_not_replayed() -> None:
    brokers = TwoBrokers()
    brokers.cut()
    watcher = brokers.client(brokers.near.broker, "watcher")
    assert watcher.consume(BRIDGES) == []


def test_acceptor_of_a_bridge_in_one_way_announces_none() -> None:
    brokers = TwoBrokers()
    assert brokers.client(brokers.far, "watcher").consume(BRIDGES) == []


def test_duplex_bridge_is_announced_at_both_ends() -> None:
    brokers = TwoBrokers(duplex=True, user_name="bridge", password="secret")
    (near,) = brokers.client(brokers.near.broker, "w").consume(BRIDGES)
    assert (about([near]), properties(near)["createdByDuplex"]) == ([("far", True)], False)
    watcher = brokers.client(brokers.far, "w")
    (far,) = watcher.consume(BRIDGES)
    assert (about([far]), properties(far)["createdByDuplex"]) == ([("near", True)], True)
    assert far.message is not None
    info = far.message.data_structure
    assert isinstance(info, BrokerInfo)
    assert (info.broker_url, info.network_properties) == ("tcp://near:61616", None)
    brokers.cut()
    assert about(got(watcher)) == [("near", False)]


@interpreted
@pytest.mark.parametrize("is_asked", [True, False])
def test_refused_message_is_announced_if_the_connector_asks(monkeypatch: pytest.MonkeyPatch, is_asked: bool) -> None:
    brokers = TwoBrokers(advisory_for_failed_forward=is_asked)

    def refuse(*_: Any) -> bool:
        raise RequestError("not today")

    monkeypatch.setattr(brokers.far, "accept_bridged", refuse)
    watcher, producer = brokers.client(brokers.near.broker, "watcher"), brokers.client(brokers.near.broker, "p")
    watcher.consume(FAILURES)
    brokers.client(brokers.far, "c").consume(Q)
    brokers.pump()
    producer.send(Q, "refused")
    brokers.pump()
    found = got(watcher)
    assert len(found) == is_asked
    for each in found:
        assert "not today" in properties(each)["cause"]
        assert each.message is not None
        assert each.message.data_structure is not None
