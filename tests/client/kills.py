"""Common parts of the kill tests: the kills, what was promised, what came, and what is still open afterwards."""

import json
import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from pybroker.client.errors import Timeout, TransactionInDoubt, TransactionRolledBack
from pybroker.client.messages import Message
from pybroker.client.sync import Connection
from pybroker.testing import Cluster
from pybroker.testing.process import State
from tests.descriptors import targets

KILL_SECONDS = float(os.environ.get("PYBROKER_KILL_SECONDS", "6"))
"""Seconds of kills in each of the tests; 600 for ten minutes."""

SEED = int(os.environ.get("PYBROKER_SEED", str(random.SystemRandom().randrange(1 << 32))))
PATIENCE_SECONDS = 60.0

Key = tuple[str, int]
"""Producer, and its number of the message."""


@dataclass
class Ledger:
    """Promises to producers and messages seen by consumers."""

    accepted: set[Key] = field(default_factory=set)
    doubtful: list[tuple[Key, ...]] = field(default_factory=list)
    refused: set[Key] = field(default_factory=set)
    received: Counter[Key] = field(default_factory=Counter)
    unflagged: list[Key] = field(default_factory=list)
    disorder: list[str] = field(default_factory=list)
    history: dict[Key, list[str]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def accept(self, *keys: Key) -> None:
        with self._lock:
            self.accepted.update(keys)

    def doubt(self, *keys: Key) -> None:
        """Record what may have been done, as a whole."""
        with self._lock:
            self.doubtful.append(keys)

    def refuse(self, *keys: Key) -> None:
        """Record what must never be seen."""
        with self._lock:
            self.refused.update(keys)

    def receive(self, key: Key, *, redelivered: bool, what: str = "") -> None:
        """Record a message; `what` is shown when it should not have come."""
        with self._lock:
            self.history[key].append(f"{time.monotonic():.3f} {what} {redelivered=}")
            self.received[key] += 1
            if self.received[key] > 1 and not redelivered:
                self.unflagged.append(key)

    def stories(self) -> str:
        """Return what happened to duplicates that are not marked."""
        return f"seed {SEED}\n" + "\n".join(f"{key}: {self.history[key]}" for key in self.unflagged)

    def missing(self) -> set[Key]:
        with self._lock:
            return self.accepted - self.received.keys()

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for count in self.received.values())

    def half(self) -> list[tuple[Key, ...]]:
        """Return transactions of which only a part was seen."""
        return [keys for keys in self.doubtful if 0 < len(self.received.keys() & set(keys)) < len(keys)]

    def row(self, name: str, kills: int) -> str:
        cells = (len(self.accepted), len(self.missing()), self.duplicates, len(self.unflagged), len(self.doubtful))
        return f"{name:<28}{kills:>6}" + "".join(f"{cell:>12}" for cell in cells)


HEAD = f"{'client':<28}{'kills':>6}{'accepted':>12}{'lost':>12}{'duplicates':>12}{'unflagged':>12}{'in doubt':>12}"


class Worker(threading.Thread):
    """A thread that repeats something until it is stopped; a failure is stored for the test."""

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self._work = work
        self._stopping = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self._work(self._stopping)
        except BaseException as error:  # shown by the test
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()


def stop(workers: Sequence[Worker]) -> None:
    """Have workers stop, and wait for them; a hang is a failure."""
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
        assert not worker.is_alive(), f"{worker.name} hangs"
        if worker.failure is not None:
            raise AssertionError(f"{worker.name} failed, seed {SEED}") from worker.failure


def kill_at_random(cluster: Cluster, workers: Sequence[Worker]) -> int:
    """Kill masters for a while, each at a random moment of its work; return how many."""
    chooser, kills = random.Random(SEED), 0
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline and not any(worker.failure for worker in workers):
        cluster.wait_standby()
        threading.Event().wait(chooser.uniform(0.0, 0.5))
        killed = cluster.kill9("master")
        kills += 1
        cluster.wait_master()
        assert killed.state is State.GONE
        cluster.restart(killed)
    return kills


def wait_until(condition: Callable[[], bool], error_text: Callable[[], str], workers: Sequence[Worker] = ()) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, error_text()
        failures = [worker.failure for worker in workers if worker.failure]
        assert not failures, f"{failures}: {error_text()}"
        threading.Event().wait(0.02)


def wait_for_the_rest(ledger: Ledger, workers: Sequence[Worker] = ()) -> None:
    """Wait until everything has come that was accepted; as long as something comes, there may be more."""
    while missing := ledger.missing():
        wait_until(partial(_is_less, ledger, len(missing)), lambda: f"lost: {sorted(ledger.missing())[:10]}", workers)


def _is_less(ledger: Ledger, count: int) -> bool:
    return len(ledger.missing()) < count


@contextmanager
def nothing_left(*, sockets: bool = True) -> Iterator[None]:
    """Check that no thread and no socket is left that was not there before."""
    threads, before = set(threading.enumerate()), _sockets()
    yield
    wait_until(
        lambda: set(threading.enumerate()) <= threads,
        lambda: f"threads are left: {set(threading.enumerate()) - threads}",
    )
    if sockets:
        wait_until(lambda: _sockets() <= before, lambda: f"sockets are left: {_sockets() - before}")


def _sockets() -> set[str]:
    return {each for each in targets() if each.startswith("socket:")}


class Order:
    """Each producer's order, within one consumer connection: what came late must be flagged."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: dict[str, int] = defaultdict(int)

    def see(self, key: Key, *, redelivered: bool) -> None:
        producer, number = key
        if number <= self._last[producer] and not redelivered:
            self._ledger.disorder.append(f"{producer}: {number} after {self._last[producer]}")
        self._last[producer] = max(number, self._last[producer])


# ---------------------------------------------------------------- work, and what is judged afterwards

BATCH = 5
"""Messages of a transaction."""


def key_of(message: Message) -> Key:
    producer, number = json.loads(str(message.body))
    return producer, number


def is_flagged(message: Message) -> bool:
    """Return True if it may be a duplicate; who moves a message marks the new one, too."""
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


def producing_in_transactions(
    connection: Connection, name: str, ledger: Ledger, pause: float = 0.0
) -> Callable[[threading.Event], None]:
    """Send several messages in each transaction, with a pause in seconds before it."""

    def work(stopping: threading.Event) -> None:
        number = 0
        while not stopping.wait(pause):
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


def moving(connection: Connection, source: str = "KILLS", target: str = "MOVED") -> Callable[[threading.Event], None]:
    """Take from one queue and send to the next, each message in a transaction."""

    def work(stopping: threading.Event) -> None:
        with connection.consumer(source, ack="transacted", prefetch=10) as consumer:
            while not stopping.is_set():
                try:
                    with connection.transaction() as transaction:
                        try:
                            message = transaction.receive(consumer, timeout=0.2)
                        except Timeout:
                            continue
                        transaction.send(target, str(message.body), properties={"flagged": is_flagged(message)})
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


ROWS: list[str] = []
"""Rows of the table that each test adds to."""


def finish(
    producers: Sequence[Worker], consumers: Sequence[Worker], connections: Sequence[Connection], ledger: Ledger
) -> None:
    """Have producers stop, wait for what was accepted, and close everything."""
    stop(producers)
    wait_for_the_rest(ledger, consumers)
    stop(consumers)
    for connection in connections:
        connection.close()


def judge(ledger: Ledger, name: str, kills: int, *, is_flagged: bool = True, is_ordered: bool = True) -> None:
    """Report what was counted, and check what is promised.

    Args:
        ledger: what was counted.
        name: of the row.
        kills: how many brokers were killed.
        is_flagged: each duplicate is marked as a possible one.
        is_ordered: each producer's messages come in their order.
    """
    report(ledger.row(name, kills))
    print(ledger.stories())
    assert kills > 0
    # A broker gives a message out before it is on disk. If it dies between the two, the next one cannot know that
    # someone has seen what the producer's client then sends again: that client marks it.
    assert not (is_flagged and ledger.unflagged), ledger.stories()
    assert not (is_ordered and ledger.disorder), f"seed {SEED}"
    assert not ledger.half(), f"seed {SEED}"
    assert not ledger.refused & ledger.received.keys(), f"seed {SEED}"


def report(row: str) -> None:
    ROWS.append(row)
    print("\n".join(("", HEAD, *ROWS)))
