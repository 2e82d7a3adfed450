"""URIs: grammar, every option with its default, and errors with part and hint."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.client.errors import BadOption, UnknownOption, UnusableURI
from pybroker.client.uri import (
    ADDRESSES_MAX,
    URI_CHARACTERS_MAX,
    Address,
    FailoverOptions,
    Scheme,
    TransportOptions,
    WireProtocol,
    parse,
    parse_list,
)

A = Address(scheme=Scheme.TCP, host="a", port=61616)
B = Address(scheme=Scheme.TCP, host="b", port=61617)


def failover(query: str) -> FailoverOptions:
    options = parse(f"failover:(tcp://a:61616,tcp://b:61617)?{query}").failover
    assert options is not None
    return options


def transport(query: str) -> TransportOptions:
    return parse(f"tcp://a:61616?{query}").addresses[0].options


# ---------------------------------------------------------------- grammar


@pytest.mark.parametrize(
    "text",
    [
        "failover:(tcp://a:61616,tcp://b:61617)",
        "failover://(tcp://a:61616,tcp://b:61617)",
        "failover:tcp://a:61616,tcp://b:61617",
        "failover://tcp://a:61616,tcp://b:61617",
        " failover: ( tcp://a:61616 , tcp://b:61617/ ) ",
        "failover:(tcp://a:61616,tcp://b:61617)?",
        "failover:(tcp://a:61616,\n          tcp://b:61617,\n          tcp://a:61616)",
    ],
)
def test_a_composite_is_written_in_many_ways(text: str) -> None:
    uri = parse(text)
    assert uri.addresses == (A, B)
    assert uri.failover == FailoverOptions()
    assert not uri.warnings


def test_a_single_broker_has_no_failover() -> None:
    uri = parse("tcp://a:61616")
    assert (uri.addresses, uri.failover, uri.protocol) == ((A,), None, WireProtocol.OPENWIRE)


@pytest.mark.parametrize(
    ("text", "scheme", "protocol", "is_tls"),
    [
        ("tcp://h:1", Scheme.TCP, WireProtocol.OPENWIRE, False),
        ("ssl://h:1", Scheme.SSL, WireProtocol.OPENWIRE, True),
        ("stomp://h:1", Scheme.STOMP, WireProtocol.STOMP, False),
        ("stomp+ssl://h:1", Scheme.STOMP_SSL, WireProtocol.STOMP, True),
    ],
)
def test_schemes(text: str, scheme: Scheme, protocol: WireProtocol, is_tls: bool) -> None:
    for uri in (parse(text), parse(f"failover:({text})")):
        assert uri.addresses == (Address(scheme=scheme, host="h", port=1),)
        assert uri.protocol is protocol
        assert uri.addresses[0].scheme.is_tls is is_tls
        assert str(uri.addresses[0]) == text


@pytest.mark.parametrize(
    ("text", "meant"), [("auto", "tcp"), ("auto+ssl", "ssl"), ("auto+nio", "tcp"), ("auto+nio+ssl", "ssl")]
)
def test_auto_is_taken_as_openwire_without_warning(text: str, meant: str) -> None:
    uri = parse(f"{text}://a:1")
    assert (str(uri.addresses[0]), uri.warnings) == (f"{meant}://a:1", ())


@pytest.mark.parametrize(
    ("text", "meant"),
    [("nio", "tcp"), ("nio+ssl", "ssl"), ("stomp+nio", "stomp"), ("stomp+nio+ssl", "stomp+ssl")],
)
def test_nio_schemes_mean_the_plain_ones_with_a_warning(text: str, meant: str) -> None:
    for uri in (parse(f"{text}://a:1"), parse(f"failover:({text}://a:1,{text}://b:1)")):
        assert {address.scheme.value for address in uri.addresses} == {meant}
        assert len(uri.warnings) == 1
        assert f"taken as {meant}:" in uri.warnings[0]


def test_hosts_may_be_ipv6() -> None:
    (address,) = parse("tcp://[fe80::1]:61616").addresses
    assert (address.host, str(address)) == ("fe80::1", "tcp://[fe80::1]:61616")


def test_addresses_are_equal_whatever_their_options() -> None:
    assert parse("tcp://a:61616?tcpNoDelay=false").addresses == (A,)


# ---------------------------------------------------------------- options


def test_defaults_are_activemqs() -> None:
    """The defaults are those of `FailoverTransport` 5.17.2."""
    assert failover("") == FailoverOptions(
        initial_reconnect_delay_seconds=0.01,
        max_reconnect_delay_seconds=30,
        use_exponential_back_off=True,
        reconnect_delay_exponent=2.0,
        max_reconnect_attempts=-1,
        startup_max_reconnect_attempts=-1,
        randomize=True,
        backup=False,
        backup_pool_size=1,
        timeout_seconds=None,
        track_messages=False,
        max_cache_bytes=131072,
        track_transaction_producers=True,
        update_uris_supported=True,
        update_uris_url=None,
        rebalance_update_uris=True,
        reconnect_supported=True,
        priority_backup=False,
        priority_uris=(),
        warn_after_reconnect_attempts=10,
        nested=(),
    )


FAILOVER = [
    ("initialReconnectDelay=250", "initial_reconnect_delay_seconds", 0.25),
    ("maxReconnectDelay=5000", "max_reconnect_delay_seconds", 5.0),
    ("useExponentialBackOff=false", "use_exponential_back_off", False),
    ("reconnectDelayExponent=1.5", "reconnect_delay_exponent", 1.5),
    ("backOffMultiplier=3", "reconnect_delay_exponent", 3.0),
    ("maxReconnectAttempts=0", "max_reconnect_attempts", 0),
    ("startupMaxReconnectAttempts=7", "startup_max_reconnect_attempts", 7),
    ("randomize=false", "randomize", False),
    ("backup=true", "backup", True),
    ("backupPoolSize=2", "backup_pool_size", 2),
    ("timeout=3000", "timeout_seconds", 3.0),
    ("timeout=-1", "timeout_seconds", None),
    ("timeout=0", "timeout_seconds", None),
    ("trackMessages=TRUE", "track_messages", True),
    ("maxCacheSize=0", "max_cache_bytes", 0),
    ("trackTransactionProducers=false", "track_transaction_producers", False),
    ("updateURIsSupported=false", "update_uris_supported", False),
    ("updateURIsURL=file:/etc/brokers%20here", "update_uris_url", "file:/etc/brokers here"),
    ("rebalanceUpdateURIs=false", "rebalance_update_uris", False),
    ("reconnectSupported=false", "reconnect_supported", False),
    ("priorityBackup=true", "priority_backup", True),
    ("priorityURIs=tcp://b:61617,tcp://a:61616", "priority_uris", (B, A)),
    ("warnAfterReconnectAttempts=-1", "warn_after_reconnect_attempts", -1),
    ("nested.keepAlive=true", "nested", (("keepAlive", "true"),)),
]


@pytest.mark.parametrize(("query", "attribute", "value"), FAILOVER)
def test_a_failover_option_sets_its_attribute_and_no_other(query: str, attribute: str, value: object) -> None:
    options = failover(query)
    changed = {each.name: getattr(options, each.name) for each in fields(options)}
    assert changed.pop(attribute) == value
    assert all(getattr(FailoverOptions(), name) == default for name, default in changed.items())


def test_every_failover_option_is_tested() -> None:
    assert {attribute for _, attribute, _ in FAILOVER} == {each.name for each in fields(FailoverOptions)}


TRANSPORT = [
    ("connectionTimeout=500", "connection_timeout_seconds", 0.5),
    ("connectionTimeout=0", "connection_timeout_seconds", None),
    ("tcpNoDelay=false", "tcp_no_delay", False),
    ("keepAlive=true", "keep_alive", True),
    ("socketBufferSize=65536", "socket_buffer_bytes", 65536),
    ("socket.verifyHostName=false", "verify_host_name", False),
    ("wireFormat.maxInactivityDuration=1000", "inactivity_seconds", 1.0),
    ("wireFormat.maxInactivityDuration=0", "inactivity_seconds", None),
    ("useInactivityMonitor=false", "inactivity_seconds", None),
    ("wireFormat.maxInactivityDuration=1000&useInactivityMonitor=false", "inactivity_seconds", None),
    ("wireFormat.maxInactivityDuration=1000&useInactivityMonitor=true", "inactivity_seconds", 1.0),
    ("wireFormat.maxInactivityDurationInitalDelay=0", "inactivity_initial_seconds", 0.0),
    ("wireFormat.maxFrameSize=1048576", "frame_bytes_max", 1048576),
]


@pytest.mark.parametrize(("query", "attribute", "value"), TRANSPORT)
def test_a_transport_option_sets_its_attribute(query: str, attribute: str, value: object) -> None:
    assert getattr(transport(query), attribute) == value


def test_every_transport_option_is_tested() -> None:
    assert {attribute for _, attribute, _ in TRANSPORT} == {each.name for each in fields(TransportOptions)}


def test_nested_options_override_those_of_each_broker() -> None:
    uri = parse("failover:(tcp://a:1?keepAlive=true&tcpNoDelay=false,tcp://b:1)?nested.tcpNoDelay=true")
    assert [(each.options.keep_alive, each.options.tcp_no_delay) for each in uri.addresses] == [
        (True, True),
        (False, True),
    ]


def test_preferred_brokers_have_nested_options_too() -> None:
    (preferred,) = failover("priorityURIs=tcp://z:1&nested.keepAlive=true").priority_uris
    assert preferred.options.keep_alive


def test_the_last_of_two_values_counts_as_in_java() -> None:
    assert failover("randomize=true&backup=true&amp;randomize=false").randomize is False


def test_options_of_java_are_accepted_with_a_warning() -> None:
    uri = parse("tcp://a:1?wireFormat.cacheEnabled=false&soTimeout=1")
    assert uri.addresses[0].options == TransportOptions()
    assert [warning.split()[0] for warning in uri.warnings] == ["wireFormat.cacheEnabled", "soTimeout"]


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "part", "hint"),
    [
        ("failover:(tcp://a:1)?randomise=false", "randomise", "did you mean randomize?"),
        ("failover:(tcp://a:1)?Randomize=false", "Randomize", "did you mean randomize?"),
        ("failover:(tcp://a:1)?maxReconnectDelays=1", "maxReconnectDelays", "did you mean maxReconnectDelay?"),
        ("failover:(tcp://a:1)?nested.keepalive=1", "nested.keepalive", "did you mean nested.keepAlive?"),
        ("failover:tcp://a:1,tcp://b:1?randomize=false", "randomize", "behind the list's parentheses"),
        ("failover:(tcp://a:1?backup=true)", "backup", "behind the list's parentheses"),
        ("failover:(tcp://a:1)?keepAlive=true", "keepAlive", "write nested.keepAlive"),
        ("failover:(tcp://a:1)?soTimeout=1", "soTimeout", "write nested.soTimeout"),
        (
            "tcp://a:1?wireFormat.maxInactivityDurationInitialDelay=1",
            "wireFormat.maxInactivityDurationInitialDelay",
            "did you mean wireFormat.maxInactivityDurationInitalDelay?",  # ActiveMQ's spelling
        ),
        ("tcp://a:1?jms.prefetchPolicy.all=1", "jms.prefetchPolicy.all", "arguments of connect()"),
        ("tcp://a:1?xyzzy", "xyzzy", "there are connectionTimeout"),
    ],
)
def test_an_unknown_option_has_a_suggestion(text: str, part: str, hint: str) -> None:
    with pytest.raises(UnknownOption) as raised:
        parse(text)
    assert raised.value.part == part
    assert hint in raised.value.hint
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("randomize=no", "true or false"),
        ("randomize", "true or false"),
        ("maxReconnectDelay=1s", "milliseconds"),
        ("maxReconnectDelay=-1", "milliseconds"),
        ("initialReconnectDelay=999999999999999999999", "milliseconds"),
        ("timeout=-2", "milliseconds"),
        ("maxReconnectAttempts=-2", "-1"),
        ("maxReconnectAttempts=2147483648", "2147483647"),
        ("maxReconnectAttempts=１", "a whole number"),
        ("reconnectDelayExponent=0.5", "a number from 1"),
        ("reconnectDelayExponent=nan", "a number from 1"),
        ("reconnectDelayExponent=two", "a number from 1"),
        ("backupPoolSize=0", "from 1"),
        ("updateURIsURL=", "not empty"),
        ("nested.keepAlive=1", "true or false"),
    ],
)
def test_an_invalid_value_has_a_hint(query: str, hint: str) -> None:
    with pytest.raises(BadOption) as raised:
        failover(query)
    assert raised.value.part.startswith(query.partition("=")[0])
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown scheme"),
        ("a:61616", "there are tcp, ssl, stomp, stomp+ssl, auto, auto+ssl and failover:"),
        ("aut://a:61616", "did you mean auto:"),
        ("tpc://a:61616", "did you mean tcp:?"),
        ("failovr:(tcp://a:1)", "did you mean failover:?"),
        ("http://a:61616", "there are tcp, ssl, stomp"),
        ("failover:(failover:(tcp://a:1))", "no parentheses"),
        ("failover:failover:tcp://a:1", "at the beginning"),
        ("tcp:a:61616", "two slashes"),
        ("tcp://a", "usually 61616"),
        ("stomp://a", "usually 61613"),
        ("tcp://a:0", "1 to 65535"),
        ("tcp://a:65536", "1 to 65535"),
        ("tcp://:61616", "not valid"),
        ("tcp://a:61616/path", "not valid"),
        ("tcp://a b:1", "not valid"),
        ("tcp://::1:61616", "not valid"),
        ("failover:()", "empty entry"),
        ("failover:", "empty entry"),
        ("failover:(tcp://a:1,,tcp://b:1)", "empty entry"),
        ("failover:(tcp://a:1", "not closed"),
        ("failover:tcp://a:1)", "no parentheses"),
        ("failover:(tcp://a:1)(tcp://b:1)", "only options"),
        ("failover:(tcp://a:1)&randomize=false", "only options"),
        ("failover:(tcp://a:1,stomp://b:1)", "speaks STOMP"),
        ("failover:(tcp://a:1)?priorityURIs=stomp://b:1", "speaks STOMP"),
        ("x" * (URI_CHARACTERS_MAX + 1), "characters"),
        ("failover:(" + ",".join(["tcp://a:1"] * (ADDRESSES_MAX + 1)) + ")", "at most"),
    ],
)
def test_an_unusable_uri_has_a_reason(text: str, message: str) -> None:
    with pytest.raises(UnusableURI) as raised:
        parse(text)
    assert not isinstance(raised.value, UnknownOption | BadOption)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "tcp://user:geheim@a:61616",
        "failover:(tcp://user:geheim@a:61616)",
        "failover:(tcp://user:geheim@a:61616",
        "failover:(tcp://a:1),tcp://user:geheim@b:2",
        "user:geheim@a:61616",
        "amqp://user:geheim@a:61616",
        "failover:(tcp://a:1)?password=geheim",
        "tcp://a:1?jms.password=geheim",
    ],
)
def test_no_error_shows_a_password(text: str) -> None:
    with pytest.raises(UnusableURI) as raised:
        parse(text)
    assert "geheim" not in str(raised.value) + raised.value.part + raised.value.hint


PIECES = st.sampled_from(
    [
        *"(),?&=:/@#% \n[]",
        "failover:",
        "tcp://",
        "stomp://",
        "nio://",
        "a:1",
        "b:65536",
        "nested.",
        "randomize",
        "=true",
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join)))
def test_random_text_raises_only_what_is_documented(text: str) -> None:
    try:
        uri = parse(text)
    except UnusableURI:
        pass
    else:
        assert uri.addresses
        assert parse(f"failover:({','.join(map(str, uri.addresses))})").addresses == uri.addresses


# ---------------------------------------------------------------- lists that a broker or a file gives


def test_a_list_returns_its_usable_brokers() -> None:
    addresses, errors = parse_list(" tcp://a:61616 ,, bad:1,tcp://b:61617?oops=1,tcp://b:61617,tcp://a:61616")
    assert addresses == (A, B)
    assert len(errors) == 2


def test_brokers_of_a_list_have_nested_options() -> None:
    (address,), _ = parse_list("tcp://a:61616", (("keepAlive", "true"),))
    assert address.options.keep_alive


@given(st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join)))
def test_a_list_never_raises(text: str) -> None:
    parse_list(text)


def test_a_list_has_a_limit() -> None:
    addresses, errors = parse_list("tcp://a:1," * URI_CHARACTERS_MAX)
    assert not addresses
    assert len(errors) == 1
