"""Destinations that a bridge may serve, by the lists of its connector."""

import pytest

from pybroker.broker.domain.destination import Destination, DestinationType, parse, queue, topic
from pybroker.broker.domain.network.connector import NetworkConnector
from pybroker.broker.domain.network.permission import Permissions

TEMPORARY = Destination(DestinationType.TEMP_QUEUE, "ID:host-1:1:1")


def admits(connector: NetworkConnector, destination: Destination) -> bool:
    return Permissions(connector).admits(destination)


def test_a_connector_without_lists_admits_everything() -> None:
    for destination in (queue("Q"), topic("T"), queue(">"), TEMPORARY):
        assert admits(NetworkConnector(), destination)


@pytest.mark.parametrize("is_bridged", [True, False])
def test_temporary_destinations_obey_their_attribute_alone(is_bridged: bool) -> None:
    connector = NetworkConnector(
        bridge_temp_destinations=is_bridged, excluded=(queue(">"),), dynamically_included=(queue("Q"),)
    )

    assert admits(connector, TEMPORARY) is is_bridged


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("queue://A", True),
        ("queue://A.secret", False),
        ("queue://X", False),
        ("queue://S.1", True),
        ("queue://S.2", False),
        ("topic://A", False),
        ("topic://T.1", True),
        ("topic://A.secret", False),
    ],
)
def test_lists_apply_in_their_order_and_by_type(name: str, expected: bool) -> None:
    connector = NetworkConnector(
        excluded=(queue("*.secret"), queue("S.2")),
        statically_included=(queue("S.>"),),
        dynamically_included=(queue("A.>"), topic("T.*")),
    )

    assert admits(connector, parse(name)) is expected


def test_static_destinations_do_not_limit_dynamic_ones() -> None:
    assert admits(NetworkConnector(statically_included=(queue("S"),)), queue("Q"))


@pytest.mark.parametrize(
    ("name", "expected"), [(">", True), ("A.*", True), ("A.secret.>", False), ("A.secret.*.x", False), ("B.>", False)]
)
def test_a_pattern_needs_one_name_that_is_admitted(name: str, expected: bool) -> None:
    connector = NetworkConnector(excluded=(queue("A.secret.>"),), dynamically_included=(queue("A.>"),))

    assert admits(connector, queue(name)) is expected


def test_a_composite_entry_lists_its_parts() -> None:
    connector = NetworkConnector(dynamically_included=(queue("A,topic://B"),))

    assert admits(connector, queue("A"))
    assert admits(connector, topic("B"))
    assert not admits(connector, queue("B"))
