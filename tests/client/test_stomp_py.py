# mypy: disable-error-code="arg-type, attr-defined, misc"
"""`FailoverConnection` in a program written for stomp.py: brokers die, and the program does not notice."""

import contextlib
import dataclasses
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import stomp
import trustme
from stomp.exception import StompException

from pybroker.broker.domain.message import RESENT
from pybroker.client import stomp_py
from pybroker.client.errors import (
    BadOption,
    BrokerMissing,
    ConnectionClosed,
    ConnectionFailed,
    LoginRefused,
    Refused,
    Timeout,
    TransactionRolledBack,
    UntrustedBroker,
    UnusableURI,
)
from pybroker.client.stomp_py import FailoverConnection
from pybroker.testing import Broker, Cluster
from tests.client.brokers import Pair
from tests.client.kills import nothing_left, wait_until
from tests.integration.cluster import free_port

PATIENCE = 30.0


class Inbox(stomp.ConnectionListener):
    """A listener as programs have them."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.events: queue.SimpleQueue[str] = queue.SimpleQueue()

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.events.put(f"receipt {frame.headers['receipt-id']}")

    def on_error(self, frame: Any) -> None:
        self.events.put("error")

    def on_disconnected(self) -> None:
        self.events.put("disconnected")

    def on_interrupted(self, error: Exception) -> None:
        self.events.put("interrupted")

    def on_resumed(self, broker: str) -> None:
        self.events.put("resumed")

    def message(self) -> Any:
        return self.messages.get(timeout=PATIENCE)

    def new_message(self) -> Any:
        """Return the next message that is none for the second time: acknowledgements may die with their broker."""
        while (frame := self.message()).headers.get("redelivered") == "true":
            pass
        return frame

    def event(self) -> str:
        return self.events.get(timeout=PATIENCE)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own, as STOMP has it."""
    return f"/queue/{request.path.stem}.{request.node.name.replace('[', '.').replace(']', '')}"


def opened(uri: str, **options: Any) -> tuple[FailoverConnection, Inbox]:
    connection, inbox = FailoverConnection(uri, **options), Inbox()
    connection.set_listener("inbox", inbox)
    try:
        connection.connect(wait=True)
    except BaseException:
        connection.disconnect()
        raise
    return connection, inbox


def test_a_program_goes_on_on_the_next_broker(pair: Pair, name: str) -> None:
    with nothing_left(sockets=False), opened(pair.stomp_uri)[0] as connection:
        inbox = connection.get_listener("inbox")
        assert isinstance(inbox, Inbox)
        connection.subscribe(name, id=1, ack="auto")
        connection.send(name, "tea", persistent="true")
        assert inbox.message().body == "tea"
        pair.kill()
        connection.send(name, "milk", persistent="true")
        assert inbox.new_message().body == "milk", "the subscription came back"
        assert [inbox.event(), inbox.event()] == ["interrupted", "resumed"]
    assert inbox.event() == "disconnected"


def test_message_that_comes_before_the_subscriptions_are_restored_is_delivered(
    pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, inbox = opened(pair.stomp_uri)
    subscribe, is_seen = stomp_py._subscribe, threading.Event()

    class Watching(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            is_seen.set()

    def subscribe_and_wait(*arguments: Any) -> None:
        subscribe(*arguments)
        is_seen.wait(PATIENCE / 10)

    with connection:
        connection.subscribe(name, id=1, ack="client-individual")
        connection.send(name, "one", persistent="true")
        inbox.message()
        connection.set_listener("watching", Watching())
        monkeypatch.setattr(stomp_py, "_subscribe", subscribe_and_wait)
        pair.kill()
        assert inbox.message().body == "one"


def test_unacked_message_is_redelivered_and_late_ack_ignored(pair: Pair, name: str) -> None:
    connection, inbox = opened(pair.stomp_uri)
    with connection:
        connection.subscribe(name, id=1, ack="client-individual")
        connection.send(name, "one", persistent="true")
        first = inbox.message()
        pair.kill()
        again = inbox.message()
        assert (again.body, again.headers["redelivered"]) == ("one", "true")
        connection.ack(first.headers["ack"])  # of the broker that is gone
        connection.ack(again.headers["ack"])
        connection.send(name, "two", persistent="true")
        second = inbox.message()
        assert (second.body, second.headers.get("redelivered")) == ("two", None)


def test_auto_ack_follows_the_listener(pair: Pair, name: str) -> None:
    connection, _ = opened(pair.stomp_uri)
    is_busy, goes_on, seen = threading.Event(), threading.Event(), list[Any]()

    class Slow(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            seen.append(frame)
            is_busy.set()
            assert goes_on.wait(PATIENCE)

    connection.set_listener("inbox", Slow())
    with connection:
        connection.subscribe(name, id=1, ack="auto")
        connection.send(name, "one", persistent="true")
        assert is_busy.wait(PATIENCE)
        pair.kill()
        connection.send(f"{name}.OTHER", "later", persistent="true")  # a broker serves again
        is_busy.clear()
        goes_on.set()
        assert is_busy.wait(PATIENCE)
        assert [frame.headers.get("redelivered") for frame in seen] == [None, "true"]


def test_transactions_cut_by_a_lost_connection_raise(pair: Pair, name: str) -> None:
    connection, inbox = opened(pair.stomp_uri)
    with connection:
        connection.subscribe(name, id=1)
        transaction = connection.begin()
        connection.send(name, "one", transaction=transaction, persistent="true")
        connection.commit(transaction)
        assert inbox.message().body == "one"
        transaction = connection.begin()
        connection.send(name, "never", transaction=transaction, persistent="true")
        pair.kill()
        connection.send(name, "two", persistent="true")
        with pytest.raises(TransactionRolledBack):
            connection.commit(transaction)
        with pytest.raises(TransactionRolledBack):
            connection.send(name, "never", transaction=transaction)
        assert inbox.new_message().body == "two"


def test_a_listener_may_send_and_wait(stomp_uri: str, name: str) -> None:
    connection, inbox = opened(stomp_uri)

    class Forwarder(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            if frame.headers["destination"] == f"{name}.IN":
                connection.send(f"{name}.OUT", frame.body, persistent="true")

    connection.set_listener("forwarder", Forwarder())
    with connection:
        for number, end in enumerate(("IN", "OUT")):
            connection.subscribe(f"{name}.{end}", id=number)
        connection.send(f"{name}.IN", "x", persistent="true")
        assert [inbox.message().headers["destination"] for _ in range(2)] == [f"{name}.IN", f"{name}.OUT"]


def test_message_failing_its_listener_is_dead_lettered(
    stomp_uri: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection, inbox = opened(stomp_uri)

    class Failing(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            if frame.headers["destination"] == name:
                raise ValueError("no use")

    connection.set_listener("failing", Failing())
    with connection:
        connection.subscribe(name, id=1)
        connection.subscribe("/queue/ActiveMQ.DLQ", id=2)
        connection.send(name, name, persistent="true")
        assert inbox.message().headers["subscription"] == "1"
        while (dead := inbox.message()).body != name:  # of other tests
            pass
        assert dead.headers["subscription"] == "2"
    assert "listener failing failed in on_message" in caplog.text


def test_a_listener_that_exits_ends_the_connection(stomp_uri: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    class Leaving(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            sys.exit("no more")

    connection = FailoverConnection(f"failover:({stomp_uri})")
    connection.set_listener("leaving", Leaving())
    connection.connect()
    connection.subscribe(f"/queue/{name}", id="1", ack="auto")
    listening = connection._threads[1]
    with contextlib.suppress(ConnectionFailed):  # the message may come before its receipt
        connection.send(f"/queue/{name}", "x", persistent="true")
    listening.join(PATIENCE)
    assert not listening.is_alive()
    with pytest.raises(ConnectionFailed, match="no more"):
        connection.send(f"/queue/{name}", "y", persistent="true")
    assert "no more" in caplog.text
    connection.disconnect()
    inbox = Inbox()
    with FailoverConnection(stomp_uri) as other:
        other.set_listener("inbox", inbox)
        other.connect()
        other.subscribe(f"/queue/{name}", id="1", ack="auto")
        assert inbox.message().body == "x", "it was not acknowledged"


def test_a_commit_for_a_connection_that_is_gone_rolls_back(
    stomp_uri: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks between the look for it and the sending: COMMIT has not left, so nothing is in doubt."""
    with FailoverConnection(f"failover:({stomp_uri})") as connection:
        connection.connect()
        transaction = connection.begin()
        connection.send(f"/queue/{name}", "x", transaction=transaction)
        assert connection._broker is not None
        gone = dataclasses.replace(connection._broker)
        monkeypatch.setattr(connection, "_connection_of", lambda _: gone)
        with pytest.raises(TransactionRolledBack):
            connection.commit(transaction)


def test_transactions_take_and_roll_back(stomp_uri: str, name: str) -> None:
    connection, inbox = opened(stomp_uri)
    with connection:
        connection.subscribe(name, id=1, ack="client-individual")
        connection.send(name, "one", persistent="true")
        frame = inbox.message()
        transaction = connection.begin()
        connection.ack(frame.headers["ack"], transaction)
        connection.send(name, "never", transaction=transaction)
        connection.abort(transaction)
        connection.ack(frame.headers["ack"])
        connection.send(name, "two", receipt="mine", persistent="true")
        assert inbox.event() == "receipt mine"
        assert inbox.message().body == "two"


def test_a_refused_message_raises_and_notifies_listeners(stomp_uri: str, name: str) -> None:
    connection, inbox = opened(stomp_uri)
    with connection:
        with pytest.raises(Refused):
            connection.send(name, "x", {}, {"amq-msg-type": "nonsense"}, persistent="true")
        assert inbox.event() == "error"


def test_repeated_subscriptions_after_a_reconnect_are_ignored(stomp_uri: str, name: str) -> None:
    connection, inbox = opened(stomp_uri)
    with connection:
        for _ in range(2):
            connection.connect(wait=True)
            connection.subscribe(name, id=1)
        connection.send(name, "x", persistent="true")
        assert inbox.message().body == "x"
        connection.unsubscribe(id=1)
        connection.send(name, "y", persistent="true")
        assert inbox.messages.empty()
        assert connection.is_connected()
        assert connection.get_listener("inbox") is inbox
        connection.remove_listener("inbox")
    with pytest.raises(ConnectionClosed):
        connection.send(name, "z")


def test_a_refused_login_is_not_tried_again(stomp_uri: str, name: str) -> None:
    first, second = (FailoverConnection(f"failover:({stomp_uri})") for _ in range(2))
    with first, second:
        first.connect(headers={"client-id": name})
        with pytest.raises(LoginRefused):
            second.connect(headers={"client-id": name})


# ---------------------------------------------------------------- TLS


@dataclass(frozen=True)
class Pem:
    """The files of an authority, of a broker that it vouches for, and of such a client."""

    directory: Path
    port: int

    @property
    def settings(self) -> dict[str, str | int]:
        certificate, key = self.directory / "127.0.0.1.pem", self.directory / "127.0.0.1-key.pem"
        return {"stomp_ssl": self.port, "tls_certificate": str(certificate), "tls_key": str(key)}

    @property
    def authority(self) -> str:
        return str(self.directory / "authority.pem")

    @property
    def client(self) -> dict[str, str]:
        return {"cert_file": str(self.directory / "client.pem"), "key_file": str(self.directory / "client-key.pem")}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    directory, authority = tmp_path_factory.mktemp("pem"), trustme.CA()
    authority.cert_pem.write_to_path(directory / "authority.pem")
    for identity in ("127.0.0.1", "client"):
        issued = authority.issue_cert(identity)
        issued.private_key_pem.write_to_path(directory / f"{identity}-key.pem")
        issued.cert_chain_pems[0].write_to_path(directory / f"{identity}.pem")
    return Pem(directory, free_port())


def secured(port: int, **files: str) -> tuple[FailoverConnection, Inbox]:
    connection, inbox = FailoverConnection(f"failover:(stomp+ssl://127.0.0.1:{port})?maxReconnectDelay=50"), Inbox()
    connection.set_listener("inbox", inbox)
    connection.set_ssl(**files)
    return connection, inbox


def test_a_program_goes_on_over_tls(pem: Pem) -> None:
    """The master and its standby have one port: that of the one that serves."""
    with Cluster(settings=pem.settings) as cluster, nothing_left(sockets=False):
        connection, inbox = secured(pem.port, ca_certs=pem.authority)
        with connection:
            connection.connect(wait=True)
            connection.subscribe("/queue/Q", id=1, ack="auto")
            connection.send("/queue/Q", "one" * 100_000, persistent="true")
            assert inbox.message().body == "one" * 100_000
            cluster.kill9("master")
            connection.send("/queue/Q", "two", persistent="true")
            assert inbox.new_message().body == "two"


def test_a_broker_that_is_not_trusted_is_not_tried_again(pem: Pem) -> None:
    with Broker(settings=pem.settings):
        connection, _ = secured(pem.port)  # the system's authorities do not know it
        with connection, pytest.raises(UntrustedBroker, match="certificate verify failed"):
            connection.connect(wait=True)
        connection, inbox = secured(pem.port, verify=False)
        with connection:
            connection.connect(wait=True)
            connection.subscribe("/queue/Q", id=1)
            connection.send("/queue/Q", "x")
            assert inbox.message().body == "x"


def test_a_client_that_is_not_trusted_does_not_try_again(pem: Pem) -> None:
    with Broker(settings={**pem.settings, "tls_client_ca": pem.authority}):
        connection, _ = secured(pem.port, ca_certs=pem.authority)
        with connection, pytest.raises(UntrustedBroker, match="does not trust this client"):
            connection.connect(wait=True)
        connection, _ = secured(pem.port, ca_certs=pem.authority, **pem.client)
        with connection:
            connection.connect(wait=True)
            connection.send("/queue/Q", "x", persistent="true")


def test_files_of_tls_are_looked_at_at_once(pem: Pem) -> None:
    with pytest.raises(FileNotFoundError):
        secured(pem.port, ca_certs=str(pem.directory / "none.pem"))


# ---------------------------------------------------------------- what only a broker of ours is made to do


def test_a_message_sent_again_is_marked(cluster: Cluster) -> None:
    connection, inbox = opened(cluster.stomp_uri)
    with connection:
        connection.subscribe("/queue/Q", id=1)
        cluster.partition("master")
        sender = threading.Thread(
            target=connection.send, args=("/queue/Q", "x"), kwargs={"persistent": "true"}, daemon=True
        )
        sender.start()
        wait_until(lambda: bool(connection._broker and connection._broker.results), lambda: "it is not sent")
        assert sender.is_alive(), "no one can have answered"
        cluster.kill9("master")
        cluster.heal()
        sender.join(PATIENCE)
        assert inbox.message().headers[RESENT] == "true"


def test_no_broker_is_an_error_and_a_timeout_is_one() -> None:
    with pytest.raises(BrokerMissing):
        opened("stomp://127.0.0.1:1")
    with pytest.raises(Timeout):
        opened("failover:(stomp://127.0.0.1:1)?timeout=100")


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("failover:(tcp://a:61616)", UnusableURI),
        ("failover:(stomp://a:61613)?backup=true", BadOption),
        ("failover:(stomp://a:61613)?priorityBackup=true", BadOption),
    ],
)
def test_uris_that_it_cannot_use(uri: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        FailoverConnection(uri)


def test_the_example_goes_on_when_its_broker_dies(cluster: Cluster) -> None:
    program = Path(__file__).parents[2] / "examples" / "stomp_orders.py"
    command = [sys.executable, str(program), cluster.stomp_uri, "0.02"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            seen: dict[str, set[str]] = {"placed": set(), "taken": set()}
            for line in process.stdout:
                for what, order in re.findall(r"(placed|taken): (order \d+)", line):  # two threads print
                    seen[what].add(order)
                    if (what, order) == ("placed", "order 10"):
                        cluster.kill9("master")
                if "order 20" in seen["taken"]:
                    break
            assert seen["taken"] >= {f"order {number}" for number in range(1, 21)}
            assert seen["placed"] >= {f"order {number}" for number in range(1, 20)}
        finally:
            process.kill()


def test_errors_of_stomp_py_do_not_come_through(cluster: Cluster) -> None:
    """Each call at each moment of a failover: nothing of stomp.py's, whichever member is master."""
    connection, _ = opened(cluster.stomp_uri)
    with connection:
        killer = threading.Thread(target=cluster.kill9, args=("master",))
        killer.start()
        for number in range(200):
            try:
                connection.send("/queue/Q", "x")
                connection.subscribe("/queue/Q", id=str(number))
                connection.unsubscribe(id=str(number))
                connection.ack("1@x")
            except StompException as error:
                pytest.fail(f"{error!r}")
        killer.join()
