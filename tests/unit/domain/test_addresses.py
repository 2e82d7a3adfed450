"""Addresses as logs show them."""

import pytest

from pybroker.broker.domain.addresses import peer_name


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (("127.0.0.1", 57004), "127.0.0.1:57004"),
        (("::1", 61620, 0, 0), "[::1]:61620"),
        ("", ""),
        (None, "None"),
    ],
)
def test_the_other_end_of_a_connection(address: object, shown: str) -> None:
    assert peer_name(address) == shown
