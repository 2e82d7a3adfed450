"""A broker process to measure, and the leanest client that can load it: prebuilt frames out, answers counted in bytes.

The client shares the machine with the broker, so whatever it costs distorts the figures. It therefore never parses
a frame: all receipts are alike, and messages are recognised by one regular expression per chunk.
"""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PATIENCE_SECONDS = 60.0
"""Time without progress before a run is aborted."""

RECEIPT = b"RECEIPT\nreceipt-id:r\n\n\0\n"
USER = PASSWORD = "bench"
"""Of every client; a broker without users takes any."""

_CONNECT = f"CONNECT\naccept-version:1.2\nhost:bench\nheart-beat:0,0\nlogin:{USER}\npasscode:{PASSWORD}\n\n\0".encode()
_ACK_ID = re.compile(rb"\nack:([^\n]+)\n")
_READ_BYTES = 1 << 18
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_LISTENING = re.compile(r"listening on \w+://127\.0\.0\.1:(\d+), (\d+) ms after")


class BrokerProcess:
    """One `pybroker start`, its log in a file."""

    def __init__(
        self,
        store: Path,
        *,
        name: str,
        port: int = 0,
        log: Path,
        listener: str = "stomp",
        extra: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            store: the directory of the store.
            name: its name in a pair.
            port: of its listener; 0 chooses a free one.
            log: the file of its log.
            listener: the setting of the only one, `stomp` or `openwire`.
            extra: further arguments of `pybroker start`.
            variables: what its environment has besides.
        """
        self.name = name
        self._log = log
        command = [sys.executable, "-m", "pybroker.broker.app.cli", "start", "--store", str(store), "--name", name]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYBROKER_")}
        environment |= variables or {}
        for each in ("stomp", "openwire"):
            command += [f"--{each}", str(port) if each == listener else "off"]
        with log.open("wb") as stream:
            self._process = subprocess.Popen([*command, *extra], stderr=stream, env=environment)

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def wait_until_listening(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Wait until it serves, for a limited time; return its port."""
        return int(self._wait_for(_LISTENING, seconds=seconds)[1])

    def wait_until_standby(self) -> None:
        """Wait until it waits for the lock."""
        self._wait_for(re.compile("waiting for the lock"))

    def wait_until_warm(self) -> None:
        """Wait until it has read all of the journal that the master writes."""
        self._wait_for(re.compile("standby: following"))

    def promotion_milliseconds(self) -> int:
        """Return the seconds from the lock to open ports, as the broker logged them."""
        return int(self._wait_for(_LISTENING)[2])

    def kill_children(self) -> None:
        """Kill the processes that it has started: of a replicated master its guardian."""
        for children in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGKILL)

    def cpu_seconds(self) -> tuple[float, float]:
        """Return user and system time it has used so far, in steps of a clock tick (10 ms)."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) / _CLOCK_TICKS, int(fields[12]) / _CLOCK_TICKS

    def peak_bytes(self) -> int:
        """Return the most memory it ever had resident."""
        return self._memory("VmHWM")

    def resident_bytes(self) -> int:
        """Return the memory it has resident now."""
        return self._memory("VmRSS")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        match = re.search(rf"{name}:\s+(\d+) kB", status)
        assert match is not None, "Linux shows it for every process"
        return int(match[1]) << 10

    @property
    def is_running(self) -> bool:
        """False once it has ended."""
        return self._process.poll() is None

    def log_text(self) -> str:
        """Return its log so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """End it by kill -9."""
        self.send_signal(signal.SIGKILL)
        self._process.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait_until_ended(self) -> int:
        """Wait until it has ended; return its exit code. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(PATIENCE_SECONDS)

    def wait_until_logged(self, pattern: str, *, after: int = 0) -> None:
        """Wait until a line matches that comes after so many characters of the log."""
        self._wait_for(re.compile(pattern), after)

    def _wait_for(
        self, pattern: re.Pattern[str], after: int = 0, *, seconds: float = PATIENCE_SECONDS
    ) -> re.Match[str]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            if match := pattern.search(self._log.read_text(), after):
                return match
            time.sleep(0.005)
        raise RuntimeError(f"{self.name} never logged {pattern.pattern!r}; its log:\n{self._log.read_text()}")


def connect(port: int) -> socket.socket:
    """Return a connected STOMP 1.2 connection, blocking. Raises `OSError` when the broker is not there."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_CONNECT)
        answer = read_frame(connection)
        if not answer.startswith(b"CONNECTED\n"):
            raise RuntimeError(f"the broker refused: {answer!r}")
    except BaseException:
        connection.close()
        raise
    return connection


def read_frame(connection: socket.socket) -> bytes:
    """Return the next frame, when nothing follows it. Raises `OSError` when the broker goes away."""
    data = b""
    while not data.endswith(b"\0\n"):
        chunk = connection.recv(_READ_BYTES)
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return data


class Loop:
    """Waits for several connections at once."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, peer: "Peer") -> None:
        """Serve one more connection."""
        self._selector.register(peer.socket, selectors.EVENT_READ, peer)

    def want(self, peer: "Peer", *, writing: bool) -> None:
        """Serve a connection also when it can be written to, or not any more."""
        self._selector.modify(peer.socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0), peer)

    def run_until(self, is_done: Callable[[], bool]) -> None:
        """Serve all until a condition holds."""
        while not is_done():
            events = self._selector.select(PATIENCE_SECONDS)
            if not events:
                raise RuntimeError(f"the broker has sent nothing for {PATIENCE_SECONDS:g} seconds")
            for key, ready in events:
                if ready & selectors.EVENT_WRITE:
                    key.data.flush()
                if ready & selectors.EVENT_READ:
                    key.data.read()

    def close(self) -> None:
        """Close all connections."""
        for key in list(self._selector.get_map().values()):
            key.data.socket.close()
        self._selector.close()


class Peer:
    """One connection: bytes out as fast as the broker reads them, bytes in to `received`."""

    def __init__(self, loop: Loop, port: int, connect: Callable[[int], socket.socket] = connect) -> None:
        self.socket = connect(port)
        self.socket.setblocking(False)
        self._loop = loop
        self._output = bytearray()
        loop.add(self)

    def write(self, data: bytes) -> None:
        """Send bytes, the rest later if the kernel does not accept all."""
        was_waiting = bool(self._output)
        self._output += data
        if not was_waiting:
            self.flush()
            if self._output:
                self._loop.want(self, writing=True)

    def flush(self) -> None:
        """Send what waits."""
        try:
            sent = self.socket.send(self._output)
        except BlockingIOError:
            return
        del self._output[:sent]
        if not self._output:
            self._loop.want(self, writing=False)

    def read(self) -> None:
        """Take what has come."""
        chunk = self.socket.recv(_READ_BYTES)
        if not chunk:
            raise RuntimeError("the broker closed the connection")
        self.received(chunk)

    def received(self, chunk: bytes) -> None:
        """Do something with it."""
        raise NotImplementedError


class Producer(Peer):
    """Sends one frame again and again, with at most `window` receipts outstanding.

    Attributes:
        confirmed: receipts so far.
        latencies: seconds from each send to its receipt.
    """

    def __init__(self, loop: Loop, port: int, frame: bytes, *, count: int, window: int) -> None:
        super().__init__(loop, port)
        self.confirmed = 0
        self.latencies: list[float] = []
        self._frame = frame
        self._left = count
        self._window = window
        self._sent_at: deque[float] = deque()
        self._received_bytes = 0

    def start(self) -> None:
        """Fill the window."""
        self._send(self._window)

    def received(self, chunk: bytes) -> None:
        """Count receipts, which are all alike, and send as many frames again."""
        if chunk.startswith(b"ERROR"):
            raise RuntimeError(f"the broker refuses: {chunk!r}")
        self._received_bytes += len(chunk)
        confirmed = self._received_bytes // len(RECEIPT)
        new = confirmed - self.confirmed
        self.confirmed = confirmed
        now = time.perf_counter()
        self.latencies += [now - self._sent_at.popleft() for _ in range(new)]
        self._send(new)

    def _send(self, wanted: int) -> None:
        count = min(wanted, self._left)
        if count:
            self._left -= count
            self._sent_at.extend([time.perf_counter()] * count)
            self.write(self._frame * count)


class Consumer(Peer):
    """Counts messages, and acknowledges each in the mode `client-individual`.

    Attributes:
        delivered: messages so far.
        ended: the broker has confirmed that it took every acknowledgement.
    """

    def __init__(self, loop: Loop, port: int, destination: str, *, ack: str) -> None:
        """Subscribe. `ack` is the STOMP mode: `auto` or `client-individual`."""
        super().__init__(loop, port)
        self.delivered = 0
        self.ended = False
        self._acknowledges = ack != "auto"
        self._subscribed = False
        self._rest = b""
        self.write(f"SUBSCRIBE\nid:1\ndestination:{destination}\nack:{ack}\nreceipt:r\n\n\0".encode())
        loop.run_until(lambda: self._subscribed)

    def end(self) -> None:
        """Unsubscribe behind the last acknowledgement; `ended` becomes true once the broker has done so."""
        self.write(b"UNSUBSCRIBE\nid:1\nreceipt:r\n\n\0")

    def received(self, chunk: bytes) -> None:
        """Count the whole frames that have come, and answer them."""
        data = self._rest + chunk if self._rest else chunk
        end = data.rfind(b"\0\n") + 2
        if end == 1:
            self._rest = data
            return
        whole, self._rest = data[:end], data[end:]
        if self._acknowledges:
            ack_ids = _ACK_ID.findall(whole)
            self.delivered += len(ack_ids)
            if ack_ids:
                self.write(b"ACK\nid:" + b"\n\n\0ACK\nid:".join(ack_ids) + b"\n\n\0")
        else:
            self.delivered += whole.count(b"MESSAGE\nsubscription:")
        if whole.endswith(RECEIPT):
            self.ended = self._subscribed
            self._subscribed = True
