"""`FailoverConnection` in a program written for stomp.py: brokers die, and the program does not notice."""

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stomp
from stomp.exception import StompException

from pybroker.client.errors import (
    BadOption,
    BrokerMissing,
    ConnectionClosed,
    Refused,
    Timeout,
    TransactionRolledBack,
    UnusableURI,
)
from pybroker.client.stomp_messages import RESENT
from pybroker.client.stomp_py import FailoverConnection
from pybroker.testing import Broker, Cluster
from tests.client.kills import nothing_left

PATIENCE = 20.0


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


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def opened(uri: str, **options: Any) -> tuple[FailoverConnection, Inbox]:
    connection, inbox = FailoverConnection(uri, **options), Inbox()
    connection.set_listener("inbox", inbox)
    connection.connect(wait=True)
    return connection, inbox


def test_a_program_goes_on_on_the_next_broker(cluster: Cluster) -> None:
    with nothing_left(sockets=False), opened(cluster.stomp_uri)[0] as connection:
        inbox = connection.get_listener("inbox")
        assert isinstance(inbox, Inbox)
        connection.subscribe("/queue/ORDERS", id=1, ack="auto")
        connection.send("/queue/ORDERS", "tea", persistent="true")
        assert inbox.message().body == "tea"
        cluster.kill9("master")
        connection.send("/queue/ORDERS", "milk", persistent="true")
        assert inbox.new_message().body == "milk", "the subscription came back"
        assert [inbox.event(), inbox.event()] == ["interrupted", "resumed"]
    assert inbox.event() == "disconnected"


def test_a_message_that_is_not_acknowledged_comes_again_and_a_late_ack_does_no_harm(cluster: Cluster) -> None:
    connection, inbox = opened(cluster.stomp_uri)
    with connection:
        connection.subscribe("/queue/Q", id=1, ack="client-individual")
        connection.send("/queue/Q", "one", persistent="true")
        first = inbox.message()
        cluster.kill9("master")
        again = inbox.message()
        assert (again.body, again.headers["redelivered"]) == ("one", "true")
        connection.ack(first.headers["ack"])  # of the broker that is gone
        connection.ack(again.headers["ack"])
        connection.send("/queue/Q", "two", persistent="true")
        second = inbox.message()
        assert (second.body, second.headers.get("redelivered")) == ("two", None)


def test_an_auto_message_is_acknowledged_after_the_listener_and_not_before(cluster: Cluster) -> None:
    connection, _ = opened(cluster.stomp_uri)
    is_busy, goes_on, seen = threading.Event(), threading.Event(), list[Any]()

    class Slow(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            seen.append(frame)
            is_busy.set()
            assert goes_on.wait(PATIENCE)

    connection.set_listener("inbox", Slow())
    with connection:
        connection.subscribe("/queue/Q", id=1, ack="auto")
        connection.send("/queue/Q", "one", persistent="true")
        assert is_busy.wait(PATIENCE)
        cluster.kill9("master")
        connection.send("/queue/OTHER", "later", persistent="true")  # a broker serves again
        is_busy.clear()
        goes_on.set()
        assert is_busy.wait(PATIENCE)
        assert [frame.headers.get("redelivered") for frame in seen] == [None, "true"]


def test_a_listener_may_send_and_wait(broker: Broker) -> None:
    connection, inbox = opened(broker.stomp_uri)

    class Forwarder(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            if frame.headers["destination"] == "/queue/IN":
                connection.send("/queue/OUT", frame.body, persistent="true")

    connection.set_listener("forwarder", Forwarder())
    with connection:
        for number, name in enumerate(("IN", "OUT")):
            connection.subscribe(f"/queue/{name}", id=number)
        connection.send("/queue/IN", "x", persistent="true")
        assert [inbox.message().headers["destination"] for _ in range(2)] == ["/queue/IN", "/queue/OUT"]


def test_what_a_listener_cannot_use_goes_to_the_dead_letter_queue(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    connection, inbox = opened(broker.stomp_uri)

    class Failing(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            if frame.headers["destination"] == "/queue/BAD":
                raise ValueError("no use")

    connection.set_listener("failing", Failing())
    with connection:
        connection.subscribe("/queue/BAD", id=1)
        connection.subscribe("/queue/ActiveMQ.DLQ", id=2)
        connection.send("/queue/BAD", "x", persistent="true")
        assert [inbox.message().headers["subscription"] for _ in range(2)] == ["1", "2"]
    assert "listener failing failed in on_message" in caplog.text


def test_transactions_that_a_break_touches_say_so(cluster: Cluster) -> None:
    connection, inbox = opened(cluster.stomp_uri)
    with connection:
        connection.subscribe("/queue/Q", id=1)
        name = connection.begin()
        connection.send("/queue/Q", "one", transaction=name, persistent="true")
        connection.commit(name)
        assert inbox.message().body == "one"
        name = connection.begin()
        connection.send("/queue/Q", "never", transaction=name, persistent="true")
        cluster.kill9("master")
        connection.send("/queue/Q", "two", persistent="true")
        with pytest.raises(TransactionRolledBack):
            connection.commit(name)
        with pytest.raises(TransactionRolledBack):
            connection.send("/queue/Q", "never", transaction=name)
        assert inbox.new_message().body == "two"


def test_transactions_take_and_roll_back(broker: Broker) -> None:
    connection, inbox = opened(broker.stomp_uri)
    with connection:
        connection.subscribe("/queue/TX", id=1, ack="client-individual")
        connection.send("/queue/TX", "one", persistent="true")
        frame = inbox.message()
        name = connection.begin()
        connection.ack(frame.headers["ack"], name)
        connection.send("/queue/TX", "never", transaction=name)
        connection.abort(name)
        connection.ack(frame.headers["ack"])
        connection.send("/queue/TX", "two", receipt="mine", persistent="true")
        assert inbox.event() == "receipt mine"
        assert inbox.message().body == "two"


def test_a_refused_message_raises_and_tells_listeners(broker: Broker) -> None:
    connection, inbox = opened(broker.stomp_uri)
    with connection:
        with pytest.raises(Refused):
            connection.send("/queue/Q", "x", {}, {"amq-msg-type": "nonsense"}, persistent="true")
        assert inbox.event() == "error"


def test_what_a_program_did_after_a_reconnect_itself_does_no_harm(broker: Broker) -> None:
    connection, inbox = opened(broker.stomp_uri)
    with connection:
        for _ in range(2):
            connection.connect(wait=True)
            connection.subscribe("/queue/TWICE", id=1)
        connection.send("/queue/TWICE", "x", persistent="true")
        assert inbox.message().body == "x"
        connection.unsubscribe(id=1)
        connection.send("/queue/TWICE", "y", persistent="true")
        assert inbox.messages.empty()
        assert connection.is_connected()
        assert connection.get_listener("inbox") is inbox
        connection.remove_listener("inbox")
    with pytest.raises(ConnectionClosed):
        connection.send("/queue/TWICE", "z")


def test_a_message_that_was_sent_again_says_so(cluster: Cluster) -> None:
    connection, inbox = opened(cluster.stomp_uri)
    with connection:
        connection.subscribe("/queue/Q", id=1)
        cluster.partition("master")
        sender = threading.Thread(
            target=connection.send, args=("/queue/Q", "x"), kwargs={"persistent": "true"}, daemon=True
        )
        sender.start()
        sender.join(0.2)
        assert sender.is_alive(), "nobody can have answered"
        cluster.kill9("master")
        cluster.heal()
        sender.join(PATIENCE)
        assert inbox.message().headers[RESENT] == "true"


def test_no_broker_is_an_error_and_a_timeout_is_one(broker: Broker) -> None:
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
    """Each call at each moment of a failover: nothing of stomp.py's, whoever is master."""
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
