"""The networks from which clients may connect."""

import pytest

from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError
from pybroker.security.networks import Networks, networks


@pytest.mark.parametrize(
    ("allow", "deny", "address", "is_welcome"),
    [
        ("", "", "10.0.0.1", True),
        ("", "", "unknown", True),
        ("10.0.0.0/8", "", "10.0.0.1", True),
        ("10.0.0.0/8", "", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "", "11.0.0.1", False),
        ("10.0.0.0/8", "", "fd00::1", False),
        ("10.0.0.0/8", "", "unknown", False),
        ("10.0.0.0/8, fd00::/8", "", "fd00::1%eth0", True),
        ("10.0.0.0/8", "10.0.0.7", "10.0.0.7", False),
        ("10.0.0.0/8", "10.0.0.7", "10.0.0.8", True),
        ("", "10.0.0.0/8,", "10.1.1.1", False),
        ("", "10.0.0.0/8", "11.0.0.1", True),
        ("", "10.0.0.0/8", "unknown", False),
    ],
)
def test_addresses(allow: str, deny: str, address: str, is_welcome: bool) -> None:
    assert Networks(allow=networks(allow), deny=networks(deny)).allows(address) is is_welcome


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "localhost", "10.0.0.0-10.0.0.9"])
@pytest.mark.parametrize("setting", ["allow", "deny"])
def test_what_is_no_network(setting: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{setting}: .*write for example 10.0.0.0/8, 192.168.1.7"):
        Config(**{setting: text})


def test_without_lists_there_is_nothing_to_ask() -> None:
    assert Config().networks is None
    made = Config(deny="127.0.0.0/8").networks
    assert made is not None
    assert not made.allows("127.0.0.1")
