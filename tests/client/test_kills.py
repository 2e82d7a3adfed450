# mypy: disable-error-code="misc"
"""The promise to an application: kill brokers at random for as long as you like, and count what it loses.

`PYBROKER_KILL_SECONDS=600` kills for ten minutes per client; a failure names its seed, and `PYBROKER_SEED` repeats it.
The same work done with stomp.py as most programs use it shows what the client is for.
"""

import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import stomp
from stomp.exception import StompException

from pybroker.broker.domain.message import RESENT
from pybroker.client.stomp_py import FailoverConnection
from pybroker.client.sync import connect
from pybroker.testing import Broker, Cluster
from tests.client.brokers import StockPair, stock_classes
from tests.client.kills import (
    KILL_SECONDS,
    Ledger,
    Worker,
    consuming,
    finish,
    judge,
    kill_at_random,
    moving,
    nothing_left,
    producing,
    producing_in_transactions,
    report,
    stop,
    wait_for_the_rest,
    wait_until,
)
from tests.conftest import Java

pytestmark = pytest.mark.timeout(120 + 2 * KILL_SECONDS)


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
        finish(producers, consumers, connections, ledger)
    judge(ledger, f"pybroker, {protocol}", kills)


def test_sixteen_threads_of_one_connection_lose_nothing() -> None:
    """Producers, consumers of each kind and movers wait for one I/O thread, and for each other's locks."""
    ledger = Ledger()
    with Broker():
        pass
    with nothing_left(), Cluster() as cluster:
        connection = connect(cluster.uri)
        producers = [Worker(f"p{n}", producing(connection, f"p{n}", ledger)) for n in range(5)]
        producers.append(Worker("tx", producing_in_transactions(connection, "tx", ledger)))
        consumers = [Worker(f"mover {n}", moving(connection)) for n in range(4)]
        for ack in ("auto", "client", "individual"):
            consumers += [Worker(f"{ack} {q}", consuming(connection, q, ack, ledger)) for q in ("KILLS", "MOVED")]
        assert len(producers) + len(consumers) == 16
        kills = kill_at_random(cluster, [*producers, *consumers])
        finish(producers, consumers, [connection], ledger)
    judge(ledger, "pybroker, 16 threads", kills, is_ordered=False)  # several movers overtake one another


@pytest.mark.component("activemq")
def test_the_client_loses_nothing_with_activemq(java: Java, tmp_path: Path) -> None:
    """The same with two stock brokers on one KahaDB, whose take-over is slower."""
    ledger, kills = Ledger(), 0
    with StockPair(stock_classes(java), tmp_path / "stock") as pair:
        connections = [connect(pair.uri) for _ in range(3)]
        producers = [
            Worker("p1", producing(connections[0], "p1", ledger)),
            Worker("tx", producing_in_transactions(connections[0], "tx", ledger)),
        ]
        consumers = [
            Worker("mover", moving(connections[1])),
            Worker("auto", consuming(connections[2], "MOVED", "auto", ledger)),
            Worker("individual", consuming(connections[2], "KILLS", "individual", ledger)),
        ]
        deadline = time.monotonic() + KILL_SECONDS
        while time.monotonic() < deadline:
            accepted = len(ledger.accepted)
            wait_until(lambda: len(ledger.accepted) > accepted + 50, lambda: "nothing is accepted", producers)  # noqa: B023
            pair.kill()
            kills += 1
            pair.revive()
        finish(producers, consumers, connections, ledger)
    # With its defaults ActiveMQ does not store that it has given a message out: after a kill another connection gets it
    # as new.
    judge(ledger, "ActiveMQ 5.17, OpenWire", kills, is_flagged=False, is_ordered=False)


# ---------------------------------------------------------------- stomp.py as most programs use it


_BROKEN = (StompException, OSError, AttributeError)
"""Exceptions of a broken connection; the last because stomp.py closes its socket while it sends."""


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
    """The same work loses messages without our client: the reason for its promise."""
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
