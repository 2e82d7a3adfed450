"""The promise to an application: kill brokers at random for as long as you like, and count what it loses.

`PYBROKER_KILL_SECONDS=600` kills for ten minutes per client; a failure names its seed, and `PYBROKER_SEED` repeats it.
The same work done with stomp.py as most programs use it shows what the client is for.
"""

import gc
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import stomp
from stomp.exception import StompException

from pybroker.client.errors import Timeout, TransactionInDoubt, TransactionRolledBack
from pybroker.client.messages import RESENT, Message
from pybroker.client.stomp_py import FailoverConnection
from pybroker.client.sync import Connection, connect
from pybroker.testing import Broker, Cluster
from tests.client.kills import (
    HEAD,
    KILL_SECONDS,
    PATIENCE_SECONDS,
    SEED,
    Key,
    Ledger,
    Order,
    Worker,
    kill_at_random,
    nothing_left,
    stop,
    wait_for_the_rest,
)

pytestmark = pytest.mark.timeout(120 + 2 * KILL_SECONDS)

BATCH = 5
"""Messages of a transaction."""

ROWS: list[str] = []


def key_of(message: Message) -> Key:
    producer, number = json.loads(str(message.body))
    return producer, number


def is_flagged(message: Message) -> bool:
    """Tell whether it may be a duplicate; who moves a message says so of the new one, too."""
    return message.redelivered or message.properties.get("flagged") in (True, "true")


def producing(connection: Connection, name: str, ledger: Ledger) -> Callable[[threading.Event], None]:
    """Send one message after the other."""

    def work(stopping: threading.Event) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            connection.send("KILLS", json.dumps([name, number]), timeout=PATIENCE_SECONDS)
            ledger.accept((name, number))

    return work


def producing_in_transactions(connection: Connection, name: str, ledger: Ledger) -> Callable[[threading.Event], None]:
    def work(stopping: threading.Event) -> None:
        number = 0
        while not stopping.is_set():
            keys = tuple((name, number + offset) for offset in range(1, BATCH + 1))
            number += BATCH
            try:
                with connection.transaction() as transaction:
                    for key in keys:
                        transaction.send("KILLS", json.dumps(key))
            except TransactionInDoubt:
                ledger.doubt(*keys)
            except TransactionRolledBack:
                ledger.refuse(*keys)
            else:
                ledger.accept(*keys)

    return work


def moving(connection: Connection) -> Callable[[threading.Event], None]:
    """Take from one queue and send to the next, each message in a transaction."""

    def work(stopping: threading.Event) -> None:
        with connection.consumer("KILLS", ack="transacted", prefetch=10) as consumer:
            while not stopping.is_set():
                try:
                    with connection.transaction() as transaction:
                        try:
                            message = transaction.receive(consumer, timeout=0.2)
                        except Timeout:
                            continue
                        transaction.send("MOVED", str(message.body), properties={"flagged": is_flagged(message)})
                except (TransactionRolledBack, TransactionInDoubt):
                    continue  # it comes again, or it was done

    return work


def consuming(
    connection: Connection, queue: str, ack: str, ledger: Ledger, *, prefetch: int = 20
) -> Callable[[threading.Event], None]:
    def work(stopping: threading.Event) -> None:
        order = Order(ledger)
        with connection.consumer(queue, ack=ack, prefetch=prefetch) as consumer:
            while not stopping.is_set():
                try:
                    message = consumer.receive(timeout=0.2)
                except Timeout:
                    continue
                order.see(key_of(message), redelivered=is_flagged(message))
                ledger.receive(key_of(message), redelivered=is_flagged(message), what=f"{queue} {message.id}")
                if ack != "auto":
                    message.ack()

    return work


@pytest.mark.parametrize("protocol", ["OpenWire", "STOMP"])
def test_the_client_loses_nothing_that_was_accepted(protocol: str) -> None:
    ledger = Ledger()
    with Broker():
        pass  # what serves all brokers of a test run is there from now on
    with nothing_left(), Cluster() as cluster:
        uri = cluster.uri if protocol == "OpenWire" else cluster.stomp_uri
        connections = [connect(uri) for _ in range(4)]
        producers = [
            Worker("p1", producing(connections[0], "p1", ledger)),
            Worker("p2", producing(connections[0], "p2", ledger)),
            Worker("tx", producing_in_transactions(connections[1], "tx", ledger)),
        ]
        consumers = [
            Worker("mover", moving(connections[2])),
            Worker("auto", consuming(connections[3], "MOVED", "auto", ledger)),
            Worker("individual", consuming(connections[3], "KILLS", "individual", ledger)),
        ]
        if protocol == "OpenWire":
            one_by_one = consuming(connections[3], "MOVED", "individual", ledger, prefetch=0)
            consumers.append(Worker("one by one", one_by_one))
        kills = kill_at_random(cluster, [*producers, *consumers])
        stop(producers)
        wait_for_the_rest(ledger, consumers)
        stop(consumers)
        for connection in connections:
            connection.close()
    report(ledger.row(f"pybroker, {protocol}", kills))
    print(ledger.stories())
    assert kills > 0
    # A broker gives a message out before it is on disk. If it dies between the two, the next one cannot know that
    # somebody has seen what the producer's client then sends again: that client says so.
    assert not ledger.unflagged, ledger.stories()
    assert not ledger.disorder, f"seed {SEED}"
    assert not ledger.half(), f"seed {SEED}"
    assert not ledger.refused & ledger.received.keys(), f"seed {SEED}"


def report(row: str) -> None:
    ROWS.append(row)
    print("\n".join(("", HEAD, *ROWS)))


# ---------------------------------------------------------------- stomp.py as most programs use it


_BROKEN = (StompException, OSError, AttributeError)
"""What a broken connection raises; the last because stomp.py takes its socket away while it sends."""


class Receiving(stomp.ConnectionListener):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def on_message(self, frame: Any) -> None:
        producer, number = json.loads(frame.body)
        is_flagged = "true" in (frame.headers.get("redelivered"), frame.headers.get(RESENT))
        self.ledger.receive((producer, number), redelivered=is_flagged)


class Reconnecting(Receiving):
    """stomp.py's documentation has this: connect and subscribe again when the connection is lost."""

    def __init__(self, connection: stomp.Connection12, subscribe: bool, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.connection = connection
        self.subscribes = subscribe
        self.is_over = False

    def connect(self) -> None:
        while not self.is_over:
            try:
                self.connection.connect(wait=True)
                if self.subscribes:
                    self.connection.subscribe("/queue/KILLS", id="1", ack="auto")
                return
            except _BROKEN:
                threading.Event().wait(0.05)

    def on_disconnected(self) -> None:
        self.connect()


def test_stomp_py_with_failover_connection_loses_nothing() -> None:
    """The same program with another class for its connection."""
    ledger = Ledger()
    with Cluster() as cluster, nothing_left(sockets=False):
        sender, receiver = FailoverConnection(cluster.stomp_uri), FailoverConnection(cluster.stomp_uri)
        receiver.set_listener("kills", Receiving(ledger))
        receiver.subscribe("/queue/KILLS", id="1", ack="auto")
        for connection in (sender, receiver):
            connection.connect()

        def produce(stopping: threading.Event) -> None:
            number = 0
            while not stopping.is_set():
                number += 1
                sender.send("/queue/KILLS", json.dumps(["p", number]), persistent="true")
                ledger.accept(("p", number))

        producer = Worker("p", produce)
        kills = kill_at_random(cluster, [producer])
        stop([producer])
        wait_for_the_rest(ledger)
        for connection in (sender, receiver):
            connection.disconnect()
    report(ledger.row("stomp.py, FailoverConnection", kills))
    assert not ledger.unflagged, ledger.stories()


# What it leaves behind when a connection breaks while it connects is its own, and not counted here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_stomp_py_by_itself_loses_messages() -> None:
    """Not a promise of ours, but the reason for it: the same work, and messages that nobody gets."""
    ledger, kills = Ledger(), 0
    with Cluster() as cluster:
        listeners = [
            Reconnecting(stomp.Connection12(cluster.stomp_addresses, reconnect_attempts_max=1), subscribe, ledger)
            for subscribe in (False, True)
        ]
        for listener in listeners:
            listener.connection.set_listener("kills", listener)
            listener.connect()
        sender = listeners[0].connection

        def produce(stopping: threading.Event) -> None:
            number = 0
            while not stopping.is_set():
                number += 1
                try:
                    sender.send("/queue/KILLS", json.dumps(["p", number]), persistent="true")
                except _BROKEN:
                    threading.Event().wait(0.01)  # a program that notices tries the next one
                else:
                    ledger.accept(("p", number))
                threading.Event().wait(0.0002)

        producer = Worker("p", produce)
        kills = kill_at_random(cluster, [producer])
        stop([producer])
        quiet = -1
        while quiet != len(ledger.received):
            quiet = len(ledger.received)
            threading.Event().wait(1.0)
        for listener in listeners:
            listener.is_over = True
            if listener.connection.is_connected():
                listener.connection.disconnect()
    gc.collect()
    report(ledger.row("stomp.py, reconnecting", kills))
    assert ledger.accepted
