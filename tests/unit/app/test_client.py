"""Addresses on the command line."""

import pytest

from pybroker.broker.app.client import parse_url
from pybroker.broker.domain.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "brokers"),
    [
        ("stomp://a:1", [("a", 1)]),
        ("stomp://a", [("a", 61613)]),
        ("tcp://[::1]:7", [("::1", 7)]),
        ("failover:(stomp://a:1,stomp://b:2)", [("a", 1), ("b", 2)]),
        ("failover://(tcp://a:1,tcp://b:2)?randomize=false", [("a", 1), ("b", 2)]),
    ],
)
def test_urls(url, brokers):
    assert parse_url(url) == brokers


@pytest.mark.parametrize("url", ["", "a:1", "http://a", "stomp://", "stomp://a:port", "failover:()", "stomp://a:99999"])
def test_what_is_no_url(url):
    with pytest.raises(ConfigError, match="--url"):
        parse_url(url)
