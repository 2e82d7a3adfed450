"""An application: a queue of orders on a broker, or on a pair of brokers of which one may die at any time."""

import contextlib
import queue
import time
from collections.abc import Iterator

import stomp
from stomp.exception import StompException

QUEUE = "/queue/ORDERS"
PATIENCE_SECONDS = 20.0


class Connection(stomp.ConnectionListener):
    """A connection to whichever broker serves; what comes over it waits in two queues, None for its end."""

    def __init__(self, brokers: list[tuple[str, int]]) -> None:
        """Connect, waiting for a broker that serves."""
        self.is_subscribed = False
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.answers: queue.SimpleQueue[stomp.utils.Frame | None] = queue.SimpleQueue()
            self.orders: queue.SimpleQueue[stomp.utils.Frame | None] = queue.SimpleQueue()
            self.stomp = stomp.Connection12(brokers, reconnect_attempts_max=1)
            self.stomp.set_listener("orders", self)
            try:
                self.stomp.connect(wait=True)
                break
            except (StompException, OSError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    # What stomp.py calls, in a thread of its own.

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        """Note that a request was carried out."""
        self.answers.put(frame)

    def on_error(self, frame: stomp.utils.Frame) -> None:
        """Note that a request was refused."""
        self.answers.put(frame)

    def on_message(self, frame: stomp.utils.Frame) -> None:
        """Note an order."""
        self.orders.put(frame)

    def on_disconnected(self) -> None:
        """Note the end."""
        self.answers.put(None)
        self.orders.put(None)


class OrderRefused(Exception):
    """The broker does not take the order; it says why."""


class Orders:
    """Places orders and takes them, each at least once, whatever becomes of a broker."""

    def __init__(self, brokers: list[tuple[str, int]]) -> None:
        """Connect later, when there is something to do."""
        self.brokers = brokers
        self.connection: Connection | None = None

    def place(self, order: str) -> None:
        """Return once a broker has the order on disk.

        Raises:
            OrderRefused: it does not take it.
        """
        while True:
            with self.connected() as connection:
                connection.stomp.send(QUEUE, order, persistent="true", receipt="placed")
                if answer := connection.answers.get(timeout=PATIENCE_SECONDS):
                    if answer.cmd == "ERROR":
                        raise OrderRefused(answer.headers["message"])
                    return

    def take(self) -> str:
        """Return the next order, which no other consumer gets then. One whose broker died may come twice."""
        while True:
            with self.connected() as connection:
                if not connection.is_subscribed:
                    one_at_a_time = {"activemq.prefetchSize": "1"}
                    connection.stomp.subscribe(QUEUE, id="1", ack="client-individual", headers=one_at_a_time)
                    connection.is_subscribed = True
                if order := connection.orders.get(timeout=PATIENCE_SECONDS):
                    connection.stomp.ack(order.headers["ack"], receipt="taken")
                    if connection.answers.get(timeout=PATIENCE_SECONDS):
                        return order.body

    @contextlib.contextmanager
    def connected(self) -> Iterator[Connection]:
        """Use the connection, or a new one; the caller tries again when it breaks."""
        if self.connection is None or not self.connection.stomp.is_connected():
            self.connection = Connection(self.brokers)
        with contextlib.suppress(StompException, OSError):
            yield self.connection

    def close(self) -> None:
        """End the connection."""
        if self.connection is not None and self.connection.stomp.is_connected():
            self.connection.stomp.disconnect()
