"""The main job, in one minute: two brokers on one store, orders streaming in, the master killed with SIGKILL.

Starts a pair on a temporary store, a directory or a PostgreSQL of its own, sends the orders of `orders.csv` ten times
over through stomp.py with receipts, kills the master in mid-stream, goes on with the standby, receives everything
there, and counts. Exit code 0 means that every order that was accepted came out again.

    python examples/demo.py             # the store is a directory, as ActiveMQ's KahaDB
    python examples/demo.py postgres    # the store is a database, as ActiveMQ's JDBC adapter
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
from collections.abc import Callable, Iterator
from pathlib import Path

import stomp
from private_postgres import private_postgres
from stomp.exception import StompException

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
    with STORES[kind]() as store, pair(store) as brokers:
        addresses = [("127.0.0.1", port) for port in brokers]
        master = wait_for_master(list(brokers))
        say(f"two brokers on the store {store}: port {master} is master, the other one waits")
        kill_at, killed_at = len(orders) // 2, 0.0

        def on_accepted(count: int) -> None:
            nonlocal killed_at
            if count == kill_at:
                say(f"{count} orders accepted, more on their way: the master gets SIGKILL")
                brokers[master].kill()
                killed_at = time.monotonic()

        say(f"sending {len(orders)} orders with receipts")
        sender = Sender(addresses, on_accepted)
        sender.send_all(orders)
        brokers[master].wait()
        accepted = sender.accepted
        outage_ms = 1000 * (sender.first_accepted_at[1] - killed_at)  # [0] is the killed master's
        say(f"the standby took over, {len(accepted)} orders are accepted; receiving them")
        received = receive_all(addresses, expected=len(accepted))
    lost = [order for order in accepted if order not in received]
    duplicates = received.total() - len(received)
    print()
    print(f"  accepted                      {len(accepted):6}")
    print(f"  lost                          {len(lost):6}")
    print(f"  duplicates                    {duplicates:6}   (sent again, because the receipt was lost in the kill)")
    print(f"  kill to next accepted order   {outage_ms:6.0f} ms")
    return 0 if not lost and len(accepted) == len(orders) else 1


# ---------------------------------------------------------------- the store


def directory() -> contextlib.AbstractContextManager[str]:
    """Provide a directory for the journal and its lock."""
    return tempfile.TemporaryDirectory(prefix="pybroker-demo-")


def database() -> contextlib.AbstractContextManager[str]:
    """Provide a database for the messages and their lock."""
    return private_postgres(free_port())


STORES = {"journal": directory, "postgres": database}


# ---------------------------------------------------------------- the pair


@contextlib.contextmanager
def pair(store: str) -> Iterator[dict[int, subprocess.Popen[bytes]]]:
    """Run two brokers on one store; yields them by the port they listen on when they are master."""
    brokers = {}
    try:
        for name in ("a", "b"):
            port = free_port()
            command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", "--store", store, "--name", name]
            command += ["--stomp", str(port), "--openwire", "off", "--log-level", "warning"]
            brokers[port] = subprocess.Popen(command)
        yield brokers
    finally:
        for broker in brokers.values():
            broker.kill()
            broker.wait()


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
