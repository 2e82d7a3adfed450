"""What the transport cannot work with is one clear error, before anything is sent."""

import sys
from types import SimpleNamespace

import pytest
from kombu import Connection

import pybroker.kombu
from pybroker.client import UnusableURI
from pybroker.kombu.environment import check_threads
from pybroker.kombu.transport import Transport

pybroker.kombu.register()


@pytest.mark.parametrize(
    ("module", "function", "library"),
    [("gevent.monkey", "is_module_patched", "gevent"), ("eventlet.patcher", "is_monkey_patched", "eventlet")],
)
def test_threads_that_are_none_are_refused(
    monkeypatch: pytest.MonkeyPatch, module: str, function: str, library: str
) -> None:
    """With them, a second connection waits for ever for the event loop of the first."""
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{function: lambda _: True}))
    with pytest.raises(NotImplementedError, match=f"{library}, which replaces threads: .*--pool threads"):
        Connection("activemq://127.0.0.1:1").connect()
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{function: lambda _: False}))
    check_threads()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("activemq+stomp://a:61613", "speaks OpenWire.*61616"),
        ("activemq+stomp+ssl://a:61613", "speaks OpenWire.*61616"),
        ("activemq+failover:(tcp://a:61616,stomp://b:61613)", "speaks OpenWire.*61616"),
        ("activemq://a:61616/vhost", "no virtual hosts.*vhost"),
        ("activemq+amqp://a:5672", "no URL of an ActiveMQ"),
        ("activemq://a,b/?prefetch=0", "prefetch: 1 or more"),
        ("activemq://a,b/?randomise=false", "randomise.*randomize"),
        ("activemq://a:port/", "port"),
        ("activemq+failover:(tcp://a:61616", "parenthesis is not closed"),
        ("activemq://u:p@a;activemq://v:q@b", "same users"),
    ],
)
def test_a_wrong_url_is_one_clear_error(url: str, message: str) -> None:
    """And no connection error: Celery would try again for ever."""
    connection = Connection(url, connect_timeout=1)
    with pytest.raises(UnusableURI, match=message) as raised:
        connection.ensure_connection(max_retries=1, interval_start=0)
    assert not isinstance(raised.value, Transport.connection_errors + Transport.channel_errors)
