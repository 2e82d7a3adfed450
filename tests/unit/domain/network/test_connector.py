"""Attributes of a network connector."""

from pybroker.broker.domain.network.connector import NetworkConnector


def test_a_connector_does_not_show_its_passwords() -> None:
    shown = repr(NetworkConnector(user_name="u", password="geheim", remote_user_name="r", remote_password="geheim2"))

    assert "geheim" not in shown
    assert "user_name='u'" in shown
