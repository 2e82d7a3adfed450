# mypy: disable-error-code="arg-type"
"""Three members under a load made of the cases that once lost messages or ended masters, with kills and lost locks.

`PYBROKER_KILLS=200` makes it long. A failure prints its seed; `PYBROKER_SEED` repeats the choices.
"""

import contextlib
import itertools
import json
import os
import random
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, Queue

import pytest

from pybroker.broker.domain.openwire.values import Long
from pybroker.client.consumers import Redelivery
from pybroker.client.errors import Refused, Timeout, TransactionInDoubt, TransactionRolledBack
from pybroker.client.messages import Message
from pybroker.client.sync import Connection, connect
from pybroker.testing import Cluster
from pybroker.testing.process import State
from tests.client.kills import PATIENCE_SECONDS, SEED, Key, Ledger, Worker, moving, stop, wait_for_the_rest
from tests.postgres_cluster import USER, PostgresDatabase, postgres_cluster, postgres_database
from tests.soundness import assert_sound

__all__ = ["postgres_cluster", "postgres_database"]

KILLS = int(os.environ.get("PYBROKER_KILLS", "5"))
MEMORY_LIMIT_MB = 32
SETTINGS = {
    "memory_limit": f"{MEMORY_LIMIT_MB}mb",
    "expire_interval": "1s",
    "max_redeliveries": 2,
    "destinations_max": 200,
}

POLICIES = """
[[policies]]
queue = "OWN.>"
inactive_timeout_before_gc = "2s"
"""
"""Queues that are used once free space for others: there are more of them than `destinations_max`."""

RESIDENT_MB_MAX = 450
"""Interpreter, memory limit, two frames of the largest message, and what the allocator keeps."""

OWN_QUEUES_MAX = 50
"""Queues that hold a message of their own at a time."""

LARGE_BYTES = 3_000_000
LARGE_IN_TRANSACTION = 12
"""Together more than the memory limit."""

LARGE_PAUSE_SECONDS = 1.0
"""Between two large transactions: on a database they would leave no time for anything else."""

LONG = "\N{PILE OF POO}" * 16_000

DEAD_LETTERS = "ActiveMQ.DLQ"

pytestmark = pytest.mark.timeout(300 + 15 * KILLS)


class Load:
    """The workers' shared state: one ledger for each kind of work, and what must never be seen."""

    def __init__(self, cluster: Cluster) -> None:
        self.ledgers: dict[str, Ledger] = {}
        self.wrong: list[str] = []
        self.connections: list[Connection] = []
        self.producers: list[Worker] = []
        self.consumers: list[Worker] = []
        self._cluster = cluster

    def connect(self, client_id: str | None = None, *, stomp: bool = False) -> Connection:
        uri = self._cluster.stomp_uri if stomp else self._cluster.uri
        redelivery = Redelivery(maximum=3, initial_delay=0.01)
        connection = connect(uri, client_id=client_id, timeout=PATIENCE_SECONDS, redelivery=redelivery)
        self.connections.append(connection)
        return connection

    def ledger(self, name: str) -> Ledger:
        return self.ledgers.setdefault(name, Ledger())

    def produce(self, name: str, work: Callable[[int], None]) -> None:
        """Repeat work that is handed the number of the round, from 0."""
        self.producers.append(Worker(name, partial(_repeat, work)))

    def consume(self, name: str, connection: Connection, destination: str, **options: object) -> None:
        """Receive and acknowledge, each message by itself, into the ledger of that name."""
        work = partial(_receive, connection, destination, self.ledger(name), options)
        self.consumers.append(Worker(f"{name} consumer", work))

    @property
    def workers(self) -> list[Worker]:
        return [*self.producers, *self.consumers]


def _repeat(work: Callable[[int], None], stopping: threading.Event) -> None:
    for number in itertools.count():
        if stopping.is_set():
            return
        work(number)


def _receive(
    connection: Connection, destination: str, ledger: Ledger, options: dict[str, object], stopping: threading.Event
) -> None:
    with connection.consumer(destination, ack="individual", **options) as consumer:
        while not stopping.is_set():
            try:
                message = consumer.receive(timeout=0.2)
            except Timeout:
                continue
            ledger.receive(_key_of(message), redelivered=message.redelivered, what=message.id)
            message.ack()


def _key_of(message: Message) -> Key:
    producer, number, *_ = json.loads(str(message.body))
    return producer, number


def _send(connection: Connection, ledger: Ledger, where: str, key: Key, padding: int = 0, **headers: object) -> None:
    connection.send(where, json.dumps([*key, "x" * padding]), **headers)
    ledger.accept(key)


def _commit(connection: Connection, ledger: Ledger, where: str, keys: list[Key], **how: object) -> None:
    """Send messages in one transaction; `padding` is the length that each has, the rest are headers."""
    padding = how.pop("padding", 0)
    assert isinstance(padding, int)
    try:
        with connection.transaction() as transaction:
            for key in keys:
                transaction.send(where, json.dumps([*key, "x" * padding]), **how)
    except TransactionInDoubt:
        ledger.doubt(*keys)
    except TransactionRolledBack:
        ledger.refuse(*keys)
    else:
        ledger.accept(*keys)


# ---------------------------------------------------------------- the cases


def add_large_transactions(load: Load) -> None:
    """Transactions whose messages together are larger than the memory limit, and large messages waiting in a queue."""
    ledger, connection = load.ledger("large"), load.connect()

    def work(number: int) -> None:
        keys = [("large", number * LARGE_IN_TRANSACTION + each) for each in range(LARGE_IN_TRANSACTION)]
        _commit(connection, ledger, "LARGE", keys, padding=LARGE_BYTES)
        threading.Event().wait(LARGE_PAUSE_SECONDS)

    load.produce("large", work)
    load.consume("large", load.connect(), "LARGE", prefetch=2)


def add_selective_durable(load: Load) -> None:
    """A durable subscription with a selector, beside one without, and transactions of which it wants every other."""
    connection = load.connect()
    wanted, every = load.ledger("wanted"), load.ledger("every")
    for name, selector in (("wanted", "wanted"), ("every", None)):
        subscriber = load.connect(f"soak-{name}")
        subscriber.consumer("topic://NEWS", durable="d", selector=selector).close()  # it is there before any news
        load.consume(name, subscriber, "topic://NEWS", durable="d", selector=selector)

    def work(number: int) -> None:
        is_wanted = number % 2 == 0
        key = ("wanted" if is_wanted else "unwanted", number)
        try:
            with connection.transaction() as transaction:
                transaction.send("topic://NEWS", json.dumps(key), properties={"wanted": is_wanted})
        except TransactionInDoubt:
            return
        except TransactionRolledBack:
            every.refuse(key)
            wanted.refuse(key)
            return
        every.accept(key)
        if is_wanted:
            wanted.accept(key)
        else:
            wanted.refuse(key)

    load.produce("news", work)


def add_scheduled(load: Load) -> None:
    """Scheduled and ordinary messages of one producer under way together, and scheduled ones in transactions."""
    ledger, connection = load.ledger("scheduled"), load.connect()
    soon = {"AMQ_SCHEDULED_DELAY": Long(30)}
    load.produce("scheduled", lambda n: _send(connection, ledger, "LATER", ("scheduled", n), properties=soon))
    load.produce("ordinary", lambda n: _send(connection, ledger, "LATER", ("ordinary", n)))
    committing = load.connect()

    def work(number: int) -> None:
        keys = [("committed", number * 3 + each) for each in range(3)]
        _commit(committing, ledger, "LATER", keys, properties=soon)

    load.produce("committed", work)
    load.consume("scheduled", load.connect(), "LATER")


def add_moving(load: Load) -> None:
    """Consuming transactions: from one queue to the next."""
    ledger, connection, mover = load.ledger("moved"), load.connect(), load.connect()
    load.produce("moved", lambda n: _send(connection, ledger, "HERE", ("moved", n)))
    load.consume("moved", load.connect(stomp=True), "THERE")
    load.consumers.append(Worker("mover", moving(mover, "HERE", "THERE")))


def add_short_lived_destinations(load: Load) -> None:
    """A queue of its own for each message, which is gone once it is consumed."""
    ledger, connection, consuming = load.ledger("own"), load.connect(), load.connect()
    sent: Queue[str] = Queue(OWN_QUEUES_MAX)

    def work(number: int) -> None:
        with contextlib.suppress(Refused):  # too many for the moment
            _send(connection, ledger, f"OWN.{number}", ("own", number))
            sent.put(f"OWN.{number}")

    def consume(stopping: threading.Event) -> None:
        while not (stopping.is_set() and sent.empty()):
            with contextlib.suppress(Empty), consuming.consumer(sent.get(timeout=0.2), ack="individual") as consumer:
                message = consumer.receive(timeout=PATIENCE_SECONDS)
                ledger.receive(_key_of(message), redelivered=message.redelivered, what=message.id)
                message.ack()

    load.produce("own", work)
    load.consumers.append(Worker("own consumer", consume))


def add_expiring(load: Load) -> None:
    """Messages that expire, since the queue has no consumer, and must then be among the dead letters."""
    ledger, connection = load.ledger("expired"), load.connect()
    load.produce("expired", lambda n: _send(connection, ledger, "EXPIRING", ("expired", n), ttl=0.05))
    load.consume("expired", load.connect(), DEAD_LETTERS)


def add_long_texts(load: Load) -> None:
    """Headers that fit a frame in standard UTF-8, as C++ clients write it, and not in Java's form: on all ways out."""
    dead, scheduled, connection = load.ledger("expired"), load.ledger("scheduled"), load.connect()
    soon = {"AMQ_SCHEDULED_DELAY": Long(30)}

    def work(number: int) -> None:
        _send(connection, dead, "EXPIRING", ("long, expired", number), ttl=0.05, correlation_id=LONG)
        _send(connection, scheduled, "LATER", ("long, scheduled", number), properties=soon, type=LONG)
        _commit(connection, dead, "REJECTED", [("long, rejected", number)], group_id=LONG)

    load.produce("long", work)
    rejecting = load.connect()

    def reject(stopping: threading.Event) -> None:
        with rejecting.consumer("REJECTED", ack="transacted") as consumer:
            while not stopping.is_set():
                with contextlib.suppress(Timeout, _Rejected, TransactionRolledBack), rejecting.transaction() as one:
                    one.receive(consumer, timeout=0.2)
                    raise _Rejected

    load.consumers.append(Worker("rejecting", reject))


class _Rejected(Exception):
    """Rolls a transaction back."""


CASES = (
    add_long_texts,
    add_large_transactions,
    add_selective_durable,
    add_scheduled,
    add_moving,
    add_short_lived_destinations,
    add_expiring,
)


def _overwrite_lock(cluster: Cluster) -> None:
    """Write other bytes into the lock file: its holder must step back, and goes on as a standby."""
    master = cluster.wait_master()
    with (cluster.store / "kahadb" / "lock").open("r+b") as lock:
        lock.write(random.randbytes(8))
    _wait(lambda: master.state is not State.MASTER, "the lock is lost")


def _end_sessions(database: PostgresDatabase) -> None:
    """End every session, as a restart of the database does: the master goes on, or another one takes over."""
    database.sql(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{USER}'")


def _wait(condition: Callable[[], bool], what: str) -> None:
    for _ in range(int(PATIENCE_SECONDS / 0.01)):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{what}: not within {PATIENCE_SECONDS:g} s")


def _resident_mb(pid: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


@pytest.fixture(autouse=True)
def any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client send texts that its own check refuses, because Java could not read them."""
    monkeypatch.setattr("pybroker.client.openwire.string", lambda text: text)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "policies.toml"
    path.write_text(POLICIES)
    return path


def test_soak_on_journal_loses_nothing(config: Path) -> None:
    with Cluster(3, settings=SETTINGS, config=config) as cluster:
        _soak(cluster, partial(_overwrite_lock, cluster))
        for member in cluster.members:
            member.stop()
        assert_sound(cluster.store)


@pytest.mark.parametrize("lock", ["postgres-row", "postgres-lease"])
def test_soak_on_database_loses_nothing(postgres_database: PostgresDatabase, config: Path, lock: str) -> None:
    settings = SETTINGS | {"lock": lock, "lock_lease": "3s"}
    with Cluster(3, database=postgres_database.url, settings=settings, config=config) as cluster:
        _soak(cluster, partial(_end_sessions, postgres_database))


def _soak(cluster: Cluster, lose_lock: Callable[[], None]) -> None:
    print(f"seed {SEED}")
    chooser, peak_mb, load = random.Random(SEED), 0.0, Load(cluster)
    for add in CASES:
        add(load)
    for number in range(KILLS):
        cluster.wait_standby()
        threading.Event().wait(chooser.uniform(0.1, 1.5))
        assert not _failures(load), f"seed {SEED}"
        peak_mb = max(peak_mb, *(_resident_mb(each.pid) for each in cluster.members))
        if number % 5 == 4:
            lose_lock()
        else:
            cluster.restart(cluster.kill9("master"))
        cluster.wait_master()
    stop(load.producers)
    for name, ledger in load.ledgers.items():
        print(name, len(ledger.accepted), "accepted", ledger.duplicates, "again", len(ledger.missing()), "open")
        wait_for_the_rest(ledger, load.consumers)
    stop(load.consumers)
    for connection in load.connections:
        connection.close()
    assert all(each.state is not State.GONE for each in cluster.members)
    print(f"{KILLS} kills and lost locks, at most {peak_mb:.0f} MB resident")
    for name, ledger in load.ledgers.items():
        assert not ledger.refused & ledger.received.keys(), f"{name}, seed {SEED}"
        assert not ledger.half(), f"{name}, seed {SEED}"
        assert not ledger.unflagged, f"{name}: {ledger.stories()}"
    assert peak_mb < RESIDENT_MB_MAX


def _failures(load: Load) -> list[str]:
    return [f"{each.name}: {each.failure!r}" for each in load.workers if each.failure]
