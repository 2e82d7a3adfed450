# mypy: disable-error-code="arg-type"
"""The promise, under fire: the master is killed again and again while clients send, commit, receive and acknowledge.

Afterwards every message that was accepted was received; in every connection of a consumer each producer's messages came
in order; a message that came twice was marked redelivered; a transaction came whole or not at all; and at no time did
two members listen. `PYBROKER_KILLS` and `PYBROKER_SEED` change the number of kills and repeat a run.
"""

import contextlib
import os
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Pair, _listens
from tests.integration.stomp_client import Disconnected, StompClient
from tests.soundness import assert_sound

KILLS = int(os.environ.get("PYBROKER_KILLS", "25"))
SEED = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
QUEUE = "/queue/KILLS"
ACCEPTED_BETWEEN_KILLS = 40
TRANSACTION_SENDS = 5
QUIET_SECONDS = 60


@dataclass
class Ledger:
    """Promises to producers and messages seen by consumers."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    accepted: set[tuple[str, int]] = field(default_factory=set)
    received: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    unmarked_duplicates: list[str] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    seen_ids: set[str] = field(default_factory=set)
    duplicates: int = 0
    newest_connection: float = 0.0
    """Opening time of the newest connection on which something was accepted."""

    def accept(self, keys: list[tuple[str, int]], connected_at: float) -> None:
        with self.lock:
            self.accepted.update(keys)
            self.newest_connection = max(self.newest_connection, connected_at)

    def receive(self, key: tuple[str, int], message_id: str, redelivered: bool) -> None:
        with self.lock:
            self.received[key] += 1
            if message_id in self.seen_ids:
                self.duplicates += 1
                if not redelivered:
                    self.unmarked_duplicates.append(f"{key} {message_id}")
            self.seen_ids.add(message_id)

    def missing(self) -> set[tuple[str, int]]:
        with self.lock:
            return self.accepted - self.received.keys()


class Client(threading.Thread):
    """A thread that works on a connection to whichever member is master, again and again."""

    def __init__(self, name: str, ports: list[int], ledger: Ledger, stop: threading.Event, seed: int) -> None:
        super().__init__(name=name)
        self.ports = ports
        self.ledger = ledger
        self.stop_event = stop
        self.random = random.Random(f"{seed}-{name}")
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop_event.is_set():
                for port in self.ports:
                    with contextlib.suppress(Disconnected), contextlib.closing(StompClient(port)) as client:
                        self.work(client)
                self.stop_event.wait(0.005)
        except BaseException as error:  # reported by the test
            self.failure = error

    def work(self, client: StompClient) -> None:
        raise NotImplementedError


class Producer(Client):
    """Keeps a window of sends open; what has no receipt when the connection breaks is never sent again."""

    sequence = 0

    def work(self, client: StompClient) -> None:
        connected_at = time.monotonic()
        due: list[Any] = []
        while not self.stop_event.is_set():
            while len(due) < 20:
                self.sequence += 1
                self.send(client, self.sequence)
                due.append(self.sequence)
            receipt = int(client.read_until("RECEIPT").headers["receipt-id"])
            self.ledger.accept([(self.name, receipt)], connected_at)
            due.remove(receipt)

    def send(self, client: StompClient, sequence: int) -> None:
        body = b"x" * self.random.choice([0, 10, 1000, 20_000])
        headers = {"persistent": "true", "producer": self.name, "sequence": str(sequence)}
        client.send("SEND", body, destination=QUEUE, receipt=str(sequence), **headers)


class TransactedProducer(Client):
    """Sends in transactions of a few messages."""

    sequence = 0

    def work(self, client: StompClient) -> None:
        connected_at = time.monotonic()
        while not self.stop_event.is_set():
            client.send("BEGIN", transaction="t")
            # Taken as a whole: a connection that breaks between two sends must not shift the transactions after it.
            sequences = range(self.sequence + 1, self.sequence + 1 + TRANSACTION_SENDS)
            self.sequence += TRANSACTION_SENDS
            for sequence in sequences:
                headers = {"persistent": "true", "producer": self.name, "sequence": str(sequence)}
                client.send("SEND", b"tx", destination=QUEUE, transaction="t", **headers)
            client.send("COMMIT", transaction="t", receipt="c")
            client.read_until("RECEIPT", receipt_id="c")
            self.ledger.accept([(self.name, sequence) for sequence in sequences], connected_at)


class Consumer(Client):
    """Acknowledges each message by itself; everything it received before the connection broke counts as seen."""

    def work(self, client: StompClient) -> None:
        client.send("SUBSCRIBE", id="1", destination=QUEUE, ack="client-individual", **{"activemq.prefetchSize": "30"})
        last: dict[str, int] = defaultdict(int)
        while not self.stop_event.is_set():
            frame = client.read()
            assert frame.command == "MESSAGE", frame
            producer, sequence = frame.headers["producer"], int(frame.headers["sequence"])
            # At the end consumers leave one after the other, and what one held comes to the next, late and marked.
            if sequence <= last[producer] and not self.stop_event.is_set():
                self.ledger.disorder.append(f"{producer}: {sequence} after {last[producer]}")
            last[producer] = sequence
            redelivered = frame.headers.get("redelivered") == "true"
            self.ledger.receive((producer, sequence), frame.headers["message-id"], redelivered)
            client.send("ACK", id=frame.headers["ack"])
        client.request("DISCONNECT")  # so that what it held is back in its place before the queue is emptied


def test_random_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    ledger, stop, chooser = Ledger(), threading.Event(), random.Random(SEED)
    with Pair(tmp_path) as pair:
        producers = [Producer(f"p{n}", pair.ports, ledger, stop, SEED) for n in range(3)]
        producers.append(TransactedProducer("tx", pair.ports, ledger, stop, SEED))
        consuming = threading.Event()
        consumers = [Consumer(f"c{n}", pair.ports, ledger, consuming, SEED) for n in range(3)]
        watcher = _Watcher(pair)
        clients = [*producers, *consumers, watcher]
        for client in clients:
            client.start()
        try:
            outages = [_kill_master(pair, ledger, chooser, clients) for _ in range(KILLS)]
            stop.set()
            _join(producers)
            _wait(lambda: not ledger.missing() or _failed(clients), QUIET_SECONDS)
            consuming.set()
            _join(consumers)
            _empty_queue(pair.wait_for_master().port, ledger)
        finally:
            stop.set()
            consuming.set()
            watcher.stop()
            for node in pair.nodes.values():
                node.close()
            _join(clients)
    outages.sort()
    print(
        f"{KILLS} kills, {len(ledger.accepted)} accepted, {len(ledger.missing())} lost, "
        f"{ledger.duplicates} redelivered; first accepted message after a kill: "
        f"median {outages[len(outages) // 2] * 1000:.0f} ms, max {outages[-1] * 1000:.0f} ms"
    )
    assert not _failed(clients), f"seed {SEED}"
    assert not ledger.missing(), f"seed {SEED}"
    assert not ledger.unmarked_duplicates, f"seed {SEED}"
    assert not ledger.disorder, f"seed {SEED}: {ledger.disorder[:5]}"
    assert watcher.count > KILLS
    assert not watcher.both, f"seed {SEED}: two members listened at once"
    _assert_transactions_whole(ledger)
    assert_sound(tmp_path)


class _Watcher(threading.Thread):
    """Looks for two listeners at one time: the first must still answer after the second did, as the same process."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(name="watcher")
        self.pair = pair
        self.count = 0
        self.both = 0
        self.failure: BaseException | None = None
        self._stop_watching = threading.Event()

    def run(self) -> None:
        first, second = self.pair.ports
        while not self._stop_watching.wait(0.01):
            members = [*self.pair.nodes.values()]
            both = _listens(first) and _listens(second) and _listens(first)
            self.both += both and members == [*self.pair.nodes.values()]
            self.count += 1

    def stop(self) -> None:
        self._stop_watching.set()


def _kill_master(pair: Pair, ledger: Ledger, chooser: random.Random, clients: list[Any]) -> float:
    """Kill the master at a random moment under load; return the seconds until a message was accepted again."""
    master = pair.wait_for_master()
    standby = pair.wait_for_standby()
    goal = len(ledger.accepted) + chooser.randrange(1, ACCEPTED_BETWEEN_KILLS)
    _wait(lambda: len(ledger.accepted) >= goal or _failed(clients), QUIET_SECONDS)
    killed_at = time.monotonic()
    master.process.kill()
    _wait(lambda: ledger.newest_connection > killed_at or _failed(clients), QUIET_SECONDS)
    outage = time.monotonic() - killed_at
    standby.wait_for("listening on")
    pair.restart(master)
    return outage


def _empty_queue(port: int, ledger: Ledger) -> None:
    """Receive what was stored without its producer ever hearing of it, up to a last message sent now."""
    with contextlib.closing(StompClient(port)) as client:
        client.request("SEND", b"last", destination=QUEUE, persistent="true", producer="last", sequence="0")
        client.send("SUBSCRIBE", id="1", destination=QUEUE, ack="client")
        while (frame := client.read()).headers["producer"] != "last":
            key = (frame.headers["producer"], int(frame.headers["sequence"]))
            ledger.receive(key, frame.headers["message-id"], frame.headers.get("redelivered") == "true")
            client.send("ACK", id=frame.headers["ack"])


def _failed(clients: list[Any]) -> list[str]:
    return [f"{client.name}: {client.failure!r}" for client in clients if client.failure]


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(QUIET_SECONDS)
        assert not thread.is_alive(), f"{thread.name} hangs"


def _wait(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing moves any more"
        time.sleep(0.001)


def _assert_transactions_whole(ledger: Ledger) -> None:
    received = {sequence for producer, sequence in ledger.received if producer == "tx"}
    for sequence in received:
        first = (sequence - 1) // TRANSACTION_SENDS * TRANSACTION_SENDS + 1
        assert set(range(first, first + TRANSACTION_SENDS)) <= received, f"seed {SEED}: half a transaction"


pytestmark = pytest.mark.timeout(300 + 12 * KILLS)
