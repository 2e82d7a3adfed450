"""A client with a connection of its own to each member of a cluster, which records who answers it, and in what order.

Of all members one at most may answer clients at a time: confirm a send, or deliver a message. A connection never
outlives its master's term, for that cuts clients off. So what came over connections to different members must never
interleave.

One thread reads all connections, in rounds. What is found in one round may have come in any order; what is found in a
later one came later, by the order in which the kernel had it.
"""

import contextlib
import errno
import itertools
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

QUEUE = "/queue/WITNESS"
_DIAL_AGAIN_SECONDS = 0.05
_PAUSE_SECONDS = 0.01
_LOGIN = b"CONNECT\naccept-version:1.2\nhost:witness\n\n\0"
_SUBSCRIBE = f"SUBSCRIBE\nid:1\ndestination:{QUEUE}\nack:client-individual\n\n\0".encode()


@dataclass
class AnswerSpan:
    """What came over one connection: confirmed sends and delivered messages.

    Attributes:
        member: its name.
        first: the round of the first one.
        last: the round of the last one.
        since: the time of the first one, by `time.time`, as in the members' logs.
        until: the time of the last one.
        count: how many there were.
    """

    member: str
    first: int
    last: int
    since: float
    until: float
    count: int = 1

    def overlaps(self, other: "AnswerSpan") -> bool:
        """Return True if another member's answers came between these."""
        return self.member != other.member and self.first < other.last and other.first < self.last

    def __str__(self) -> str:
        return f"{self.member}: {self.count} answers, {_clock(self.since)} to {_clock(self.until)}"


class _Line:
    """The connection to one member, which is made anew whenever it ends."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self.name = name
        self._address = address
        self.socket: socket.socket | None = None
        self.span: AnswerSpan | None = None
        self._received = b""
        self._sent_at = 0.0
        self._is_ready = self._is_waiting = False
        self._dial_at = 0.0
        self._numbers = itertools.count(1)

    def dial(self, now: float) -> bool:
        """Begin to connect, if that is due; return True if it was."""
        if self.socket is not None or now < self._dial_at:
            return False
        self._dial_at = now + _DIAL_AGAIN_SECONDS
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if self.socket.connect_ex(self._address) not in (0, errno.EINPROGRESS):
            self.end()
            return False
        self._received, self._is_ready, self._is_waiting, self.span = b"", False, False, None
        return True

    def end(self) -> None:
        assert self.socket is not None
        self.socket.close()
        self.socket = None

    def log_in(self) -> bool:
        """Go on once the connection is there; return False if it is not."""
        assert self.socket is not None
        if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return False
        return self._send(_LOGIN + _SUBSCRIBE)

    def read(self) -> tuple[bool, int]:
        """Read what there is; return if the connection goes on, and how many answers came."""
        assert self.socket is not None
        answers = 0
        try:
            chunk = self.socket.recv(1 << 18)
        except BlockingIOError:
            return True, 0
        except OSError:
            return False, 0
        if not chunk:
            return False, 0
        *frames, self._received = (self._received + chunk).split(b"\0")
        for frame in frames:
            command, _, rest = frame.lstrip(b"\n").partition(b"\n")
            if command == b"CONNECTED":
                self._is_ready = True
            elif command == b"RECEIPT":
                answers += 1
                self._is_waiting = False
            elif command == b"MESSAGE":
                answers += 1
                ack = next(line[4:] for line in rest.split(b"\n") if line.startswith(b"ack:"))
                if not self._send(b"ACK\nid:" + ack + b"\n\n\0"):
                    return False, answers
            elif command == b"ERROR":  # refused, as when too few replicas are in sync
                return False, answers
        return True, answers

    def send_next(self, now: float) -> bool:
        """Send another message, if that is due; return False if the connection has ended."""
        if not self._is_ready or self._is_waiting or now < self._sent_at + _PAUSE_SECONDS:
            return True
        self._sent_at, self._is_waiting = now, True
        header = f"SEND\ndestination:{QUEUE}\npersistent:true\nreceipt:{next(self._numbers)}\n\n"
        return self._send(header.encode() + b"seen\0")

    def _send(self, data: bytes) -> bool:
        assert self.socket is not None
        with contextlib.suppress(OSError):
            return self.socket.send(data) == len(data)
        return False


class Witness:
    """Sends to every member that takes connections, and takes what it delivers, until closed."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Start.

        Args:
            addresses: host and port for STOMP by the members' names.
        """
        self.spans: list[AnswerSpan] = []
        self.longest_silence = 0.0
        """Seconds without an answer from any member."""
        self.failure: BaseException | None = None
        self._lines = [_Line(*each) for each in addresses.items()]
        self._selector = selectors.DefaultSelector()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and raise what has failed. May be repeated."""
        self._is_closed.set()
        self._thread.join()
        if self.failure is not None:
            raise AssertionError("the witness failed") from self.failure

    def overlaps(self) -> list[str]:
        """Return each case in which two members answered at once."""
        pairs = itertools.combinations(self.spans, 2)
        return [f"{one}; {other}" for one, other in pairs if one.overlaps(other)]

    def summary(self) -> str:
        """Return what was seen, in short."""
        count, silence = sum(each.count for each in self.spans), self.longest_silence
        return f"witness: {count} answers over {len(self.spans)} connections, longest silence {silence:.2f} s"

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # raised by `close`
            self.failure = error
        finally:
            for line in self._lines:
                if line.socket is not None:
                    line.end()
            self._selector.close()

    def _watch(self) -> None:
        answered_at = 0.0
        for number in itertools.count():
            if self._is_closed.is_set():
                return
            now = time.monotonic()
            for line in self._lines:
                if line.dial(now):
                    assert line.socket is not None
                    self._selector.register(line.socket, selectors.EVENT_WRITE, line)
                elif line.socket is not None and not line.send_next(now):
                    self._drop(line)
            for key, events in self._selector.select(_PAUSE_SECONDS):
                answers = self._handle(key.data, events)
                if answers:
                    now = time.monotonic()
                    if answered_at:
                        self.longest_silence = max(self.longest_silence, now - answered_at)
                    answered_at = now
                    self._note(key.data, number, answers)

    def _handle(self, line: _Line, events: int) -> int:
        assert line.socket is not None
        if events & selectors.EVENT_WRITE:
            if line.log_in():
                self._selector.modify(line.socket, selectors.EVENT_READ, line)
            else:
                self._drop(line)
            return 0
        goes_on, answers = line.read()
        if not goes_on:
            self._drop(line)
        return answers

    def _drop(self, line: _Line) -> None:
        assert line.socket is not None
        self._selector.unregister(line.socket)
        line.end()

    def _note(self, line: _Line, number: int, count: int) -> None:
        if line.span is None:
            line.span = AnswerSpan(line.name, number, number, time.time(), time.time(), count)
            self.spans.append(line.span)
        else:
            line.span.last, line.span.until = number, time.time()
            line.span.count += count


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + f"{seconds % 1:.3f}"[1:]
