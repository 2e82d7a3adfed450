"""The main job, in one minute: two brokers on one store, orders streaming in, the master killed with SIGKILL.

Starts a pair on a temporary store, a directory or a PostgreSQL of its own, sends the orders of `orders.csv` ten times
over through stomp.py with receipts, kills the master in mid-stream, goes on with the standby, receives everything
there, and counts. Exit code 0 means that every order that was accepted came out again.

Or each broker has a directory of its own, and an etcd of the demo's names the master. Then the killed one is started
again as well, and both directories have to become equal.

    python examples/demo.py             # the store is a directory, as ActiveMQ's KahaDB
    python examples/demo.py postgres    # the store is a database, as ActiveMQ's JDBC adapter
    python examples/demo.py replicated  # a directory for each broker
"""

import contextlib
import csv
import logging
import queue
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import stomp
from private_etcd import private_etcd
from private_postgres import private_postgres
from stomp.exception import StompException

from pybroker.store.journal.reader import DataFileWalk, data_files, load

ORDERS = Path(__file__).parent / "orders.csv"
ROUNDS = 10
QUEUE = "/queue/ORDERS"
WINDOW = 50  # orders that may wait for their receipts at once
PATIENCE_SECONDS = 30.0

BROKEN = "broken"  # what a listener reports when the connection is gone


def main(kind: str = "journal") -> int:
    """Run the demo and return the exit code."""
    if kind not in STORES:
        raise SystemExit(f"{kind!r} is not a kind of store: write one of {', '.join(STORES)}")
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # a connection that breaks is no news here
    orders = read_orders()
    with STORES[kind]() as stores, pair(stores) as brokers:
        addresses = [("127.0.0.1", port) for port in brokers]
        master = wait_for_master(list(brokers))
        say(f"two brokers on {stores.text}: port {master} is master, the other one waits")
        stores.wait_ready(brokers)
        kill_at, killed_at = len(orders) // 2, 0.0

        def on_accepted(count: int) -> None:
            nonlocal killed_at
            if count == kill_at:
                say(f"{count} orders accepted, more on their way: the master gets SIGKILL")
                brokers[master].process.kill()
                killed_at = time.monotonic()

        say(f"sending {len(orders)} orders with receipts")
        sender = Sender(addresses, on_accepted)
        sender.send_all(orders)
        brokers[master].process.wait()
        accepted = sender.accepted
        outage_ms = 1000 * (sender.first_accepted_at[1] - killed_at)  # [0] is the killed master's
        say(f"the standby took over, {len(accepted)} orders are accepted; receiving them")
        received = receive_all(addresses, expected=len(accepted))
        is_whole = stores.rejoin(brokers[master], brokers)
    lost = [order for order in accepted if order not in received]
    duplicates = received.total() - len(received)
    print()
    print(f"  accepted                      {len(accepted):6}")
    print(f"  lost                          {len(lost):6}")
    print(f"  duplicates                    {duplicates:6}   (sent again, because the receipt was lost in the kill)")
    print(f"  kill to next accepted order   {outage_ms:6.0f} ms")
    return 0 if not lost and len(accepted) == len(orders) and is_whole else 1


# ---------------------------------------------------------------- the store


@dataclass
class Broker:
    """A broker, and the command that starts it again."""

    store: str
    command: Sequence[str]
    process: subprocess.Popen[bytes]


class SharedStore:
    """One store for both brokers."""

    def __init__(self, store: str) -> None:
        self.text = f"the store {store}"
        self._store = store

    def arguments(self, name: str) -> Sequence[str]:
        """Return what a broker is started with, the store first."""
        return "--store", self._store

    def wait_ready(self, brokers: dict[int, Broker]) -> None:
        """Nothing: the other broker may take over at once."""

    def rejoin(self, killed: Broker, brokers: dict[int, Broker]) -> bool:
        """Nothing: there is one store alone."""
        return True


class ReplicatedStores:
    """A directory for each broker, and a register in etcd that names the master."""

    def __init__(self, directory: Path, etcd_port: int) -> None:
        self.text = f"two stores in {directory}"
        self._directory = directory
        self._register = f"etcd://127.0.0.1:{etcd_port}/demo"

    def arguments(self, name: str) -> Sequence[str]:
        """Return what a broker is started with, the store first."""
        store = str(self._directory / name)
        return "--store", store, "--replicate", self._register, "--replicate-port", str(free_port())

    def wait_ready(self, brokers: dict[int, Broker]) -> None:
        """Wait until both stores have everything: from then on either broker may take over."""
        for broker in brokers.values():
            if pybroker("status", "--store", broker.store, "--wait", "in-sync=30"):
                raise SystemExit(f"{broker.store} did not come in sync; the log above says why")
        say("both stores are in sync: what is accepted is on the disks of both")

    def rejoin(self, killed: Broker, brokers: dict[int, Broker]) -> bool:
        """Start the killed broker again, and return True if its store becomes equal to the other one."""
        say("all received; the killed broker is started again, and becomes the copy")
        began = time.monotonic()
        killed.process = subprocess.Popen(killed.command)
        time.sleep(0.2)  # the entry of its former process is not read for its own
        self.wait_ready(brokers)
        first: dict[str, bytes] = {}
        is_equal = False
        while not is_equal and time.monotonic() - began < PATIENCE_SECONDS:
            first, second = (contents(broker.store) for broker in brokers.values())
            is_equal = first == second
        size, answer = sum(map(len, first.values())), "equal" if is_equal else "DIFFERENT"
        say(f"{size:,} bytes in {len(first)} data files: {answer} in both stores")
        return is_equal


@contextlib.contextmanager
def directory() -> Iterator[SharedStore]:
    """Provide a directory for the journal and its lock."""
    with tempfile.TemporaryDirectory(prefix="pybroker-demo-") as store:
        yield SharedStore(store)


@contextlib.contextmanager
def database() -> Iterator[SharedStore]:
    """Provide a database for the messages and their lock."""
    with private_postgres(free_port()) as store:
        yield SharedStore(store)


@contextlib.contextmanager
def directories() -> Iterator[ReplicatedStores]:
    """Provide a directory for each broker, and an etcd."""
    with tempfile.TemporaryDirectory(prefix="pybroker-demo-") as directory:
        port = free_port()
        with private_etcd(Path(directory) / "etcd", port, free_port()):
            yield ReplicatedStores(Path(directory), port)


STORES: dict[str, Callable[[], AbstractContextManager[SharedStore | ReplicatedStores]]] = {
    "journal": directory,
    "postgres": database,
    "replicated": directories,
}


def contents(store: str) -> dict[str, bytes]:
    """Return the data files of a store, up to the last record of each: empty space follows it."""
    files: dict[str, bytes] = {}
    for journal in ("kahadb", "scheduler"):
        for number, path in data_files(Path(store) / journal).items():
            data = load(path)
            walk = DataFileWalk(data, number)
            for _ in walk.batches():
                pass
            files[f"{journal}/{path.name}"] = data[: walk.end]
    return files


# ---------------------------------------------------------------- the pair


@contextlib.contextmanager
def pair(stores: SharedStore | ReplicatedStores) -> Iterator[dict[int, Broker]]:
    """Run two brokers; yields them by the port they listen on when they are master."""
    brokers: dict[int, Broker] = {}
    try:
        for name in ("a", "b"):
            port = free_port()
            arguments = stores.arguments(name)
            command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", *arguments, "--name", name]
            command += ["--stomp", str(port), "--openwire", "off", "--log-level", "warning"]
            brokers[port] = Broker(arguments[1], command, subprocess.Popen(command))
        yield brokers
    finally:
        for broker in brokers.values():
            broker.process.kill()
            broker.process.wait()


def pybroker(*arguments: str) -> int:
    """Run a command, and return its exit code."""
    command = [sys.executable, "-m", "pybroker.broker.app.cli", *arguments]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_master(ports: list[int]) -> int:
    """Return the port that answers, once one does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for port in ports:
            if answers(("127.0.0.1", port)):
                return port
        time.sleep(0.01)
    raise SystemExit("no broker became master; its log above says why")


def answers(address: tuple[str, int]) -> bool:
    """Return True if a broker listens there: only a master does."""
    with contextlib.suppress(OSError), socket.create_connection(address):
        return True
    return False


# ---------------------------------------------------------------- the clients


class Events(stomp.ConnectionListener):
    """Hands what stomp.py's thread receives to the main thread."""

    def __init__(self) -> None:
        self.receipts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.messages: queue.SimpleQueue[stomp.utils.Frame] = queue.SimpleQueue()

    # Called by the library, which gives them their names and meaning.
    def on_receipt(self, frame: stomp.utils.Frame) -> None:  # noqa: D102
        self.receipts.put(frame.headers["receipt-id"])

    def on_message(self, frame: stomp.utils.Frame) -> None:  # noqa: D102
        self.messages.put(frame)

    def on_disconnected(self) -> None:  # noqa: D102
        self.receipts.put(BROKEN)


def connect(addresses: list[tuple[str, int]]) -> tuple[stomp.Connection12, Events]:
    """Connect to the master, trying all until one answers."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for address in addresses:
            if not answers(address):  # stomp.py itself would wait some time between attempts
                continue
            connection, events = stomp.Connection12([address]), Events()
            connection.set_listener("demo", events)
            with contextlib.suppress(StompException, OSError):
                connection.connect(wait=True)
                return connection, events
        time.sleep(0.005)
    raise SystemExit("no broker answers")


class Sender:
    """Sends orders until each has its receipt; after a broken connection those without are sent again."""

    def __init__(self, addresses: list[tuple[str, int]], on_accepted: Callable[[int], None]) -> None:
        self.addresses = addresses
        self.on_accepted = on_accepted
        self.accepted: set[str] = set()
        self.first_accepted_at: list[float] = []  # on each connection

    def send_all(self, orders: list[dict[str, str]]) -> None:
        """Return once every order was accepted."""
        while unsent := [order for order in orders if order["id"] not in self.accepted]:
            connection, events = connect(self.addresses)
            with contextlib.suppress(StompException, OSError):
                self.send(connection, events, unsent)
                connection.disconnect()

    def send(self, connection: stomp.Connection12, events: Events, orders: list[dict[str, str]]) -> None:
        """Send with a window of receipts due; ends early when the connection breaks."""
        due = accepted_here = 0
        for order in orders:
            headers = {"persistent": "true", "order": order["id"], "city": order["city"], "receipt": order["id"]}
            connection.send(QUEUE, ";".join(order.values()), "text/csv", headers)
            due += 1
            while due == WINDOW or (due and order is orders[-1]):
                receipt = events.receipts.get(timeout=PATIENCE_SECONDS)
                if receipt == BROKEN:
                    return
                if not accepted_here:
                    self.first_accepted_at.append(time.monotonic())
                due -= 1
                accepted_here += 1
                self.accepted.add(receipt)
                self.on_accepted(len(self.accepted))


def receive_all(addresses: list[tuple[str, int]], expected: int) -> Counter[str]:
    """Receive and acknowledge until nothing more comes; returns how often each order came."""
    received: Counter[str] = Counter()
    connection, events = connect(addresses)
    connection.subscribe(QUEUE, id="orders", ack="client-individual")
    with contextlib.suppress(queue.Empty):
        while True:
            message = events.messages.get(timeout=PATIENCE_SECONDS if len(received) < expected else 0.5)
            received[message.headers["order"]] += 1
            connection.ack(message.headers["ack"])
    connection.disconnect()
    return received


def read_orders() -> list[dict[str, str]]:
    """Read the orders, and repeat them as further days' orders with ids of their own."""
    with ORDERS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{"id": f"{row['order']}-{day}"} | row for day in range(1, ROUNDS + 1) for row in rows]


def say(text: str) -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
