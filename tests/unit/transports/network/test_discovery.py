"""URIs of network connectors."""

import pytest

from pybroker.transports.network.discovery import BridgeTarget, parse


def _texts(uri: str) -> list[str]:
    return [str(each) for each in parse(uri)]


def test_static_has_one_target_for_each_address() -> None:
    assert _texts("static:(tcp://a:61616,ssl://b:61617)") == ["tcp://a:61616", "ssl://b:61617"]
    assert _texts("simple://(tcp://a:1, nio://[::1]:2)") == ["tcp://a:1", "tcp://[::1]:2"]
    assert _texts("static:tcp://a:1,tcp://b:2") == ["tcp://a:1", "tcp://b:2"]


def test_plain_address_is_one_target() -> None:
    assert _texts("auto+ssl://a:61617") == ["ssl://a:61617"]


def test_masterslave_is_one_target_of_all_addresses() -> None:
    assert _texts("masterslave:(tcp://a:1,tcp://b:2)") == ["tcp://a:1,tcp://b:2"]


@pytest.mark.parametrize(
    "uri",
    [
        "static:(failover:(tcp://a:1,tcp://b:2))",
        "static:(failover:(tcp://a:1,tcp://b:2)?randomize=false&maxReconnectAttempts=0)",
        "failover:(tcp://a:1,tcp://b:2)",
        "static:(masterslave:(tcp://a:1,tcp://b:2))",
    ],
)
def test_failover_is_taken_as_masterslave(uri: str) -> None:
    assert _texts(uri) == ["tcp://a:1,tcp://b:2"]


def test_options_of_discovery_are_delays() -> None:
    (target,) = parse(
        "static:(tcp://a:1)?initialReconnectDelay=100&maxReconnectDelay=2000&backOffMultiplier=1.5"
        "&amp;useExponentialBackOff=false&maxReconnectAttempts=7&minConnectTime=250"
    )
    delays = target.delays
    assert delays.initial_reconnect_delay_seconds == 0.1
    assert delays.max_reconnect_delay_seconds == 2
    assert delays.back_off_multiplier == 1.5
    assert not delays.use_exponential_back_off
    assert delays.max_reconnect_attempts == 7
    assert delays.min_connect_seconds == 0.25


def test_discovered_options_reach_each_address() -> None:
    uri = "static:(tcp://a:1?connectionTimeout=5000,tcp://b:2)?discovered.wireFormat.maxInactivityDuration=0"
    first, second = (target.addresses[0] for target in parse(uri))
    assert first.connection_timeout_seconds == 5
    assert second.connection_timeout_seconds == 30
    assert first.max_inactivity_ms == second.max_inactivity_ms == 0


def test_options_of_javas_sockets_have_no_effect() -> None:
    (target,) = parse("static:(tcp://a:1?soTimeout=0&wireFormat.cacheEnabled=false)")
    assert target == BridgeTarget(addresses=parse("tcp://a:1")[0].addresses, delays=target.delays)


@pytest.mark.parametrize(
    ("uri", "cause"),
    [
        ("static:()", "no address"),
        ("static:(tcp://a:1,)", "empty entry"),
        ("static:(tcp://a:1", "not closed"),
        ("static:tcp://a:1)", "not opened"),
        ("static:(tcp://a:1)x", "follows the list"),
        ("masterslave:(tcp://a:1)", "two addresses"),
        ("static:(tcp://a)", "no address"),
        ("static:(tcp://a:70000)", "no address"),
        ("static:(stomp://a:1)", "no scheme"),
        ("multicast://default", "not supported yet"),
        ("ldap://a:389", "not supported yet"),
        ("a", "no URI"),
        ("static:(tcp://user:secret@a:1)", "user_name"),
        ("static:(tcp://a:1)?initalDelay=3", "no option"),
        ("static:(tcp://a:1)?maxReconnectDelay=-3", "whole number"),
        ("static:(tcp://a:1)?useExponentialBackOff=yes", "true or false"),
        ("static:(tcp://a:1)?backOffMultiplier=0.5", "from 1"),
    ],
)
def test_unusable_uri_is_refused_with_its_cause(uri: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause) as caught:
        parse(uri)
    assert "secret" not in str(caught.value)
