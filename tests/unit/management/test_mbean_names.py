"""The names of connectors, by which a connection and its listener find each other."""

import pytest

from pybroker.management.mbean_names import connector_name


@pytest.mark.parametrize(
    ("url", "name", "connector"),
    [
        ("tcp://127.0.0.1:61616", "tcp", "openwire"),
        ("stomp+ssl://[::1]:61612", "stomp+ssl", "stomp+ssl"),
        ("ssl://0.0.0.0:61617#partners", "partners", "partners"),
        ("tcp://127.0.0.1:61616#openwire", "openwire", "openwire"),
    ],
)
def test_connector_of_a_url_is_that_of_the_name(url: str, name: str, connector: str) -> None:
    assert connector_name(url) == connector_name(name) == connector
