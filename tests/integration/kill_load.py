"""Load for kill tests of several protocols: two members, clients that reconnect to the master, and the account.

A client works on one connection after the other, and also cuts connections while the master lives. It numbers what it
sends; the account has which masters a message went to, whether one confirmed it, and how it came.
"""

import contextlib
import random
import re
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.integration.cluster import BrokerProcess, Pair, free_port

SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.5
"""How often a client that gets nothing looks whether it is to stop."""

Key = tuple[str, int]
"""Producer, and its number of the message."""

_BODY: Final = re.compile(rb"<([^ <>]+) ([0-9]+)>")


def body_of(key: Key, padding: int) -> str:
    """Return the body of a message, with some bytes more behind its key."""
    return f"<{key[0]} {key[1]}>{'x' * padding}"


def key_in(data: bytes) -> Key:
    """Return the key in a body, whatever encoding is around it."""
    found = _BODY.search(data)
    assert found, data[:100]
    return found[1].decode(), int(found[2])


class ProtocolPair(Pair):
    """Two brokers on one store, each with ports for several protocols, of which STOMP is one."""

    def __init__(self, store: Path, protocols: Sequence[str], *extra: str) -> None:
        self._numbers = {name: {protocol: free_port() for protocol in protocols} for name in ("a", "b")}
        super().__init__(store, *extra)

    def ports_of(self, protocol: str) -> list[int]:
        """Return the ports of both members for a protocol."""
        return self.ports if protocol == "stomp" else [ports[protocol] for ports in self._numbers.values()]

    def _start(self, name: str) -> BrokerProcess:
        words = [word for each, port in self._numbers[name].items() for word in (f"--{each}", str(port))]
        return BrokerProcess(self.store, name=name, port=self._ports[name], extra=(*words, *self._extra))


@dataclass
class Reigns:
    """Numbers the masters, so that a client knows which one it is connected to."""

    begun: int = 0
    """Kills that have begun."""
    done: int = 0
    """Kills after which the killed master is gone."""


@dataclass
class Account:
    """The messages that producers sent and had confirmed, and those that consumers received."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    confirmed: set[Key] = field(default_factory=set[Key])
    published: dict[Key, set[int]] = field(default_factory=lambda: defaultdict[Key, set[int]](set))
    """The masters that each message was sent to."""
    sent: Counter[Key] = field(default_factory=Counter[Key])
    """How often each message was sent."""
    received: Counter[Key] = field(default_factory=Counter[Key])
    unmarked: Counter[Key] = field(default_factory=Counter[Key])
    """How often a message came without the mark of redelivery."""
    of_reign: Counter[tuple[Key, int]] = field(default_factory=Counter[tuple[Key, int]])
    """How often a message came from a master."""
    newest_reign: int = -1
    """The newest master that has confirmed something."""

    def publish(self, key: Key, reign: int) -> None:
        with self.lock:
            self.published[key].add(reign)
            self.sent[key] += 1

    def confirm(self, keys: Sequence[Key], reign: int) -> None:
        with self.lock:
            self.confirmed.update(keys)
            self.newest_reign = max(self.newest_reign, reign)

    def receive(self, key: Key, reign: int, *, is_redelivered: bool = False) -> None:
        with self.lock:
            self.received[key] += 1
            self.of_reign[key, reign] += 1
            self.unmarked[key] += not is_redelivered

    def lost(self) -> list[Key]:
        with self.lock:
            return sorted(self.confirmed - self.received.keys())

    def doubled(self, names: Sequence[str]) -> int:
        """Return how many messages of these producers came more than once."""
        with self.lock:
            return sum(1 for (name, _), count in self.received.items() if name in names and count > 1)

    def repeated(self) -> int:
        """Return how many messages were sent more than once."""
        with self.lock:
            return sum(1 for count in self.sent.values() if count > 1)

    def backlog(self) -> int:
        """Return about how many messages are confirmed and have not come."""
        return len(self.confirmed) - len(self.received)

    def unmarked_again(self) -> list[Key]:
        """Return messages that came more often without the mark of redelivery than they were sent."""
        with self.lock:
            return sorted(key for key, count in self.unmarked.items() if count > self.sent[key])

    def forbidden(self, names: Sequence[str]) -> list[tuple[Key, int]]:
        """Return messages that one master gave twice, although they were sent to one master only."""
        with self.lock:
            return sorted(
                (key, reign)
                for (key, reign), count in self.of_reign.items()
                if key[0] in names and count > len(self.published[key])
            )


class LoadWorker(threading.Thread):
    """A client that works on a connection to whichever member serves, again and again until it is stopped."""

    def __init__(self, name: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self.stopping = threading.Event()
        self.random = random.Random(f"{seed}-{name}")
        self.reign = -1
        self.connections = 0
        self.account = account
        self._ports = ports
        self._reigns = reigns
        self._pause = threading.Event()

    def run(self) -> None:
        try:
            while not self.is_done():
                for port in self._ports:
                    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                        self._connect(port, stack)
                self._pause.wait(0.005)
        except BaseException as error:  # reported by the test
            self.failure = error

    def _connect(self, port: int, stack: contextlib.ExitStack) -> None:
        """Work on one connection until it ends, is cut, or there is nothing more to do."""
        reigns, before = self._reigns, (self._reigns.begun, self._reigns.done)
        self.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=LOOK_SECONDS))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        inputs = self.inputs()
        self.log_in(inputs)
        if before != (reigns.begun, reigns.begun) or reigns.done != before[1]:
            return  # a master was being killed: which one has answered is not known
        self.reign = before[1]
        self.connections += 1
        left = self.random.randrange(50, 1000)
        self.begin()
        for received in inputs:
            self.handle(received)
            left -= 1
            if self.is_done() or left <= 0:
                return

    def chunks(self) -> Iterator[bytes]:
        """Yield what comes, until the client is to stop.

        Raises:
            OSError: the connection has ended.
        """
        while True:
            try:
                chunk = self.socket.recv(1 << 16)
            except TimeoutError:
                if self.is_done():
                    return
                self.on_idle()
                continue
            if not chunk:
                raise ConnectionResetError("the broker has closed")
            yield chunk

    def inputs(self) -> Iterator[Any]:
        """Yield the packets or frames of a new connection."""
        raise NotImplementedError

    def log_in(self, inputs: Iterator[Any]) -> None:
        """Begin the conversation on a new connection."""
        raise NotImplementedError

    def begin(self) -> None:
        """Go on with the work, on a new connection."""
        raise NotImplementedError

    def handle(self, received: Any) -> None:
        """Handle a packet or frame."""
        raise NotImplementedError

    def on_idle(self) -> None:
        """Do what is to be done although nothing comes."""

    def is_done(self) -> bool:
        """Return True if the client is to stop."""
        return self.stopping.is_set()


class Producer(LoadWorker):
    """Keeps a window of messages without an answer, and sends all of these again on its next connection.

    Attributes:
        most_open: the most messages that had no answer at a time.
        backlog: how far the consumers are behind; it waits while that is too much.
    """

    WINDOW = 100
    BACKLOG_MAX: Final = 5000

    def __init__(self, name: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self.most_open = 0
        self.backlog: Callable[[], int] = lambda: 0
        self._number = 0
        self._open: dict[int, Key] = {}
        self._again: list[Key] = []
        """The messages that were unconfirmed when the last connection ended."""
        self._next_token = 0

    def restart(self) -> None:
        """Have all that has no answer sent again; call it first on each connection."""
        self._again = [*self._open.values(), *self._again]
        self._open = {}
        self._next_token = 0

    def answered(self, tokens: Iterable[int]) -> None:
        """Confirm messages."""
        self.account.confirm([self._open.pop(token) for token in tokens], self.reign)
        self.fill()

    def fill(self) -> None:
        """Send as much as the window, and the other end, permits."""
        frames: list[bytes] = []
        while len(self._open) < self.WINDOW and self.may_send(self._next_token):
            if self._again:
                key = self._again.pop(0)
            elif self.stopping.is_set() or self.backlog() > self.BACKLOG_MAX:
                break
            else:
                self._number += 1
                key = self.name, self._number
            token = self._next_token
            self._next_token += 1
            self._open[token] = key
            self.account.publish(key, self.reign)
            frames.append(self.encode(token, body_of(key, self.random.choice([0, 10, 1000, 20_000]))))
        self.most_open = max(self.most_open, len(self._open))
        self.socket.sendall(b"".join(frames))

    def on_idle(self) -> None:
        self.fill()

    def is_done(self) -> bool:
        return self.stopping.is_set() and not self._open and not self._again  # what was sent is answered first

    def may_send(self, token: int) -> bool:
        """Return True if the other end permits one more message, the `token`th of this connection from 0."""
        del token
        return True

    def encode(self, token: int, body: str) -> bytes:
        """Return the frames of a persistent message that the broker is to answer."""
        raise NotImplementedError


def wait(condition: Callable[[], bool], workers: Sequence[LoadWorker]) -> None:
    """Wait until a condition holds; a client that fails, or a minute without it, is a failure."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        for worker in workers:
            if worker.failure is not None:
                raise AssertionError(f"{worker.name} has failed") from worker.failure
        assert time.monotonic() < deadline, "nothing moves any more"
        threading.Event().wait(0.002)


def stop(stopped: Sequence[LoadWorker], workers: Sequence[LoadWorker]) -> None:
    """Have workers finish what they have begun."""
    for worker in stopped:
        worker.stopping.set()
    wait(lambda: not any(worker.is_alive() for worker in stopped), workers)


def kill_master(
    pair: Pair,
    account: Account,
    reigns: Reigns,
    workers: Sequence[LoadWorker],
    confirmations: int,
) -> float:
    """Kill the master under load; return the seconds until its successor has confirmed something.

    Args:
        pair: the members.
        account: what is confirmed.
        reigns: counts the kills.
        workers: the load.
        confirmations: how many more are to come before.
    """
    master, standby = pair.wait_for_master(), pair.wait_for_standby()
    goal = len(account.confirmed) + confirmations
    wait(lambda: len(account.confirmed) >= goal, workers)
    reigns.begun += 1
    killed_at = time.monotonic()
    master.kill()
    reigns.done += 1
    wait(lambda: account.newest_reign == reigns.done, workers)
    outage = time.monotonic() - killed_at
    standby.wait_for("listening on")
    pair.restart(master)
    return outage
