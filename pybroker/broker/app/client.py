"""The command line as a client: produce, consume and browse over STOMP, on the stomp.py library.

Needs no broker code, so it works against an ActiveMQ too. Failover is simple here: the brokers are tried in turn when
connecting; a connection that breaks ends the command with an error that says how far it got.
"""

import queue
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import stomp
from stomp.exception import ConnectFailedException

from pybroker.broker.domain.errors import BrokerError, ConfigError

DEFAULT_URL = "stomp://127.0.0.1:61613"
_STOMP_PORT = 61613
_WINDOW = 100
"""Sends that may wait for their receipts at once: enough for the broker to group them into one disk sync."""


class ClientFailed(BrokerError):
    """The broker refused a request, or the connection broke."""


class _Frame(Protocol):
    """What stomp.py hands to a listener; it brings no types of its own."""

    headers: dict[str, str]
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as it came."""

    headers: dict[str, str]
    body: str

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {"headers": self.headers, "body": self.body}


def parse_url(url: str) -> list[tuple[str, int]]:
    """Return hosts and ports of `stomp://host:port`, or of several in `failover:(…,…)`.

    Raises:
        ConfigError: not such a URL.
    """
    match = re.fullmatch(r"failover:(?://)?\(([^)]*)\)(?:\?.*)?", url)
    brokers: list[tuple[str, int]] = []
    for part in match[1].split(",") if match else [url]:
        try:
            split = urlsplit(part.strip())
            host, port = split.hostname, split.port or _STOMP_PORT
        except ValueError as error:
            raise ConfigError(f"{part!r}: {error}", setting="--url", hint=f"write for example {DEFAULT_URL}") from error
        if split.scheme not in ("stomp", "tcp") or not host:
            raise ConfigError(
                f"{part!r} is not a STOMP address",
                setting="--url",
                hint=f"write for example {DEFAULT_URL} or failover:(stomp://a:61613,stomp://b:61613)",
            )
        brokers.append((host, port))
    return brokers


class Client(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py is untyped
    """One STOMP 1.2 connection to the first broker that answers."""

    def __init__(self, url: str, *, timeout_seconds: float = 10.0) -> None:
        self._url = url
        self._brokers = parse_url(url)
        self._timeout = timeout_seconds
        self._inbox: queue.SimpleQueue[Received | ClientFailed | str] = queue.SimpleQueue()
        self._waiting: set[str] = set()
        self._receipt_count = 0
        self._messages: list[Received] = []
        self._connection: Any = None

    def __enter__(self) -> Self:
        self._connection = stomp.Connection12(
            self._brokers, reconnect_attempts_max=1, timeout=self._timeout, auto_content_length=False
        )
        self._connection.set_listener("client", self)
        try:
            self._connection.connect(wait=True)
        except (ConnectFailedException, OSError) as error:
            raise ClientFailed(f"no broker answers at {self._url}: is a master running there?") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection.is_connected():
            self._connection.disconnect()

    # ------------------------------------------------------------ requests

    def send(self, destination: str, body: str, headers: dict[str, str]) -> None:
        """Send with a receipt; waits only when many receipts are due."""
        self._connection.send(destination, body, headers={**headers, "receipt": self._receipt()})
        while len(self._waiting) >= _WINDOW:
            self._take(self._timeout)

    def settle(self) -> None:
        """Wait until every receipt has come."""
        while self._waiting:
            self._take(self._timeout)

    def subscribe(self, destination: str, headers: dict[str, str]) -> None:
        """Begin to receive."""
        self._connection.subscribe(destination, id="1", ack="client-individual", headers=headers)

    def browse(self, destination: str, headers: dict[str, str]) -> Iterator[Received]:
        """Yield what waits on a queue, consuming nothing."""
        self._connection.subscribe(destination, id="1", ack="auto", headers={**headers, "browser": "true"})
        while (message := self._receive(self._timeout)) is not None and message.headers.get("browser") != "end":
            yield message

    def receive(self, timeout_seconds: float | None) -> Received | None:
        """Return the next message; None when none comes in time. Without a time: wait for ever."""
        return self._receive(timeout_seconds)

    def acknowledge(self, message: Received) -> None:
        """Acknowledge a message, with a receipt."""
        self._connection.ack(message.headers["ack"], receipt=self._receipt())

    # ------------------------------------------------------------ stomp.py's listener, on its own thread

    def on_message(self, frame: _Frame) -> None:
        """Take a message."""
        self._inbox.put(Received(headers=dict(frame.headers), body=frame.body))

    def on_receipt(self, frame: _Frame) -> None:
        """Take a receipt."""
        self._inbox.put(str(frame.headers["receipt-id"]))

    def on_error(self, frame: _Frame) -> None:
        """Take an error."""
        self._inbox.put(ClientFailed(f"the broker says: {frame.headers.get('message', frame.body)}"))

    def on_disconnected(self) -> None:
        """Note that the connection broke."""
        self._inbox.put(ClientFailed("the connection to the broker broke"))

    # ------------------------------------------------------------ private

    def _receipt(self) -> str:
        self._receipt_count += 1
        receipt = f"r{self._receipt_count}"
        self._waiting.add(receipt)
        return receipt

    def _receive(self, timeout_seconds: float | None) -> Received | None:
        while not self._messages:
            try:
                self._take(timeout_seconds)
            except queue.Empty:
                return None
        return self._messages.pop(0)

    def _take(self, timeout_seconds: float | None) -> None:
        """Take one event; raises `queue.Empty` when there is none in time."""
        event = self._inbox.get(timeout=timeout_seconds)
        if isinstance(event, ClientFailed):
            raise event
        if isinstance(event, Received):
            self._messages.append(event)
        else:
            self._waiting.discard(event)
