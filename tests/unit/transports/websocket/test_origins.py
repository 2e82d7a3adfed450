"""Pages connect if their origin is that of the host or is listed; programs have none, and always connect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.transports.websocket.origins import OriginRule

HOST = "broker.example:61614"


@pytest.mark.parametrize(
    ("setting", "origin", "is_allowed"),
    [
        ("same-host", None, True),
        ("same-host", "http://broker.example", True),
        ("same-host", "https://BROKER.example:8161", True),
        ("same-host", "http://evil.example", False),
        ("same-host", "http://broker.example.evil.example", False),
        ("same-host", "null", False),
        ("same-host", "", False),
        ("same-host", "broker.example", False),
        ("same-host", "http://broker.example:nine", False),
        ("same-host", "http://[::1", False),
        ("https://app.example", None, True),
        ("https://app.example", "https://app.example", True),
        ("https://app.example:443", "https://app.example", True),
        ("https://app.example", "https://APP.example:443", True),
        ("https://app.example", "http://app.example", False),
        ("https://app.example", "https://app.example:8443", False),
        ("https://app.example", "http://broker.example", False),
        ("same-host, https://app.example/", "https://app.example", True),
        ("same-host, https://app.example", "http://broker.example", True),
        ("http://[::1]:80", "http://[::1]", True),
        ("null", "null", True),
        ("*", "http://evil.example", True),
        ("*", "null", True),
        ("", None, True),
        ("", "http://broker.example", False),
    ],
)
def test_rule_is_that_of_the_setting(setting, origin, is_allowed):
    assert OriginRule(setting).allows(origin, HOST) is is_allowed


def test_same_host_needs_a_host():
    rule = OriginRule("same-host")
    assert not rule.allows("http://broker.example", None)
    assert not rule.allows("http://broker.example", "")
    assert rule.allows("http://[::1]:8080", "[::1]:61614")


@pytest.mark.parametrize(
    "setting", ["app.example", "https://", "https://app.example/path", "https://a@b", "https://a:x", "*.example"]
)
def test_setting_that_is_no_origin_says_what_to_write(setting):
    with pytest.raises(ValueError, match=r"write a comma list of origins such as https://app\.example\.com"):
        OriginRule(setting)


@given(st.text(), st.text())
def test_any_header_is_judged_without_an_error(origin, host):
    assert OriginRule("same-host, https://app.example").allows(origin, host) in (True, False)
