"""Times that are none, brokers that lack a feature: one clear error, or the worker sees it."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import kombu
import pytest

from pybroker.client import NotAuthorized, connect
from pybroker.testing import Broker
from tests.client.brokers import stock_classes
from tests.integration.activemq_broker import ActiveMQProcess
from tests.kombu.channels import bodies, consume, drain, drain_rest, publish


@pytest.fixture(
    params=[
        ("pybroker", "scheduler = false\nvirtual_topics = []\n"),
        pytest.param(("activemq", "noScheduler noVirtualTopics"), marks=pytest.mark.component("activemq")),
    ],
    ids=["pybroker", "activemq"],
)
def poor(request, tmp_path):
    """The URI of a broker without a scheduler and without virtual topics."""
    kind, settings = request.param
    if kind == "pybroker":
        (tmp_path / "broker.toml").write_text(settings)
        with Broker(config=tmp_path / "broker.toml") as broker:
            yield broker.uri
    else:
        java = request.getfixturevalue("java")
        stock = ActiveMQProcess(stock_classes(java), tmp_path / "stock", policies=settings.split())
        try:
            yield stock.wait().uri
        finally:
            stock.close()


def test_a_broker_that_lacks_a_feature_is_reported_at_once(poor, name):
    """At the declaration, of a queue or of a binding; Celery's own queue needs no virtual topics."""
    url = f"activemq+failover:({poor})"
    with kombu.Connection(url, connect_timeout=30, transport_options={"scheduled_eta": True}) as connection:
        channel = connection.channel()
        with pytest.raises(NotImplementedError, match='no scheduler; set schedulerSupport="true"'):
            channel.queue_declare(name, durable=True)
    with kombu.Connection(url, connect_timeout=30) as connection:
        channel = connection.channel()
        channel.exchange_declare(name, "direct")
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, name, name)
        publish(channel, name, name, "x")
        assert bodies(drain(channel, consume(channel, name), 1)) == ["x"]
        with pytest.raises(NotImplementedError, match=r'no virtual topics.*useVirtualTopics="true"'):
            channel.queue_bind(name, name, "other")


def test_celery_waits_between_logins_that_are_refused(tmp_path):
    """Celery repeats an error at once that is not recoverable, and logs a traceback of frequent restarts each time."""
    users = tmp_path / "users.properties"
    users.touch(mode=0o600)
    users.write_text("shop=secret\n")
    (tmp_path / "broker.toml").write_text(f'users_file = "{users}"\n')
    failures: list[str] = []
    with (
        Broker(config=tmp_path / "broker.toml") as broker,
        kombu.Connection(f"activemq+failover:({broker.uri})", connect_timeout=30) as connection,
        pytest.raises(connection.connection_errors, match="refuses the login"),
    ):
        connection.ensure_connection(
            lambda error, interval: failures.append(str(error)),
            max_retries=1,
            interval_start=0,
            reraise_as_library_errors=False,
        )
    assert len(failures) == 1, "Kombu does not wait for the next attempt"
    assert "refuses the login" in failures[0]


def test_without_kombu_the_error_names_the_extra():
    script = """
import sys

class WithoutKombu:
    def find_spec(self, name, path=None, target=None):
        if name == "kombu":
            raise ModuleNotFoundError("No module named 'kombu'", name=name)

sys.meta_path.insert(0, WithoutKombu())
import pybroker.kombu
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pybroker.kombu needs Kombu: pip install kombu, which is the extra `kombu` of pybroker"
    )


def test_the_check_leaves_nothing_behind(connection, broker_uri, name, monkeypatch):
    monkeypatch.setattr("pybroker.kombu.environment.uuid", lambda: "checking")
    channel = connection.channel()
    channel.exchange_declare(name, "topic")
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name, "a.*")
    with connect(broker_uri) as client:
        assert not client.destination_exists("queue://Consumer.checking.VirtualTopic.kombu.check")
        assert client.destination_exists(f"queue://{name}")


def test_a_check_that_is_not_allowed_is_left_out(monkeypatch, name):
    """The user may have rights for the application's destinations alone."""

    def refuse(*_, **__):
        raise NotAuthorized("no right to create it")

    monkeypatch.setattr("pybroker.client.sync.Connection.temporary_destination", refuse)
    with Broker() as broker:
        url = f"activemq+failover:({broker.uri})"
        with kombu.Connection(url, connect_timeout=30, transport_options={"scheduled_eta": True}) as connection:
            channel = connection.channel()
            create = type(channel.connection.broker).create_destination
            monkeypatch.setattr(
                "pybroker.client.sync.Connection.create_destination",
                lambda self, where, **_: refuse() if "kombu.check" in str(where) else create(self, where),
            )
            channel.exchange_declare(name, "direct")
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, name, "k")
            eta = datetime.now(UTC) + timedelta(seconds=1.5)
            publish(channel, name, "k", "x", headers={"eta": eta.isoformat()})
            assert bodies(drain(channel, consume(channel, name), 1)) == ["x"]
            assert datetime.now(UTC) > eta - timedelta(milliseconds=2)


@pytest.mark.parametrize("eta", ["tomorrow", "", "2999-13-01T00:00:00+00:00", "2999-01-01T00:00:00"])
def test_a_time_that_is_none_is_left_to_the_worker(url, name, eta):
    """It reports it as an invalid task; and it knows the zone of one without."""
    with kombu.Connection(url, connect_timeout=30, transport_options={"scheduled_eta": True}) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        publish(channel, "", name, "x", headers={"eta": eta})
        assert bodies(drain(channel, consume(channel, name), 1)) == ["x"]


@pytest.mark.parametrize("days", [1, 25, 50, 400, 3000])
def test_a_time_far_ahead_stays_in_the_broker(url, name, days):
    """Also more than 2^31 and 2^32 milliseconds."""
    eta = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    with kombu.Connection(url, connect_timeout=30, transport_options={"scheduled_eta": True}) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        publish(channel, "", name, "later", headers={"eta": eta})
        publish(channel, "", name, "latest", headers={"eta": "9999-12-31T23:59:59+00:00"})
        publish(channel, "", name, "now", headers={"eta": datetime.now(UTC).isoformat()})
        received = drain(channel, consume(channel, name), 1)
        drain_rest(channel)
        assert bodies(received) == ["now"]
