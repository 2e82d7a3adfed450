"""A day's worth of work in minutes: connections that come and go, and a stream of messages; memory must stay flat.

A cycle is what a short-lived client does: connect, subscribe, send a persistent message, receive and acknowledge it,
disconnect; over OpenWire it also creates a temporary queue. Messages are streamed
to one consumer each: non-persistent, persistent, in transactions of 100, to a topic, and over STOMP. Work comes in
rounds; the broker's resident memory and its journal are measured after each, when nothing is under way. The slope is
that of a line through all rounds but the first ones, in which caches and the allocator's free lists fill.
"""

import multiprocessing
import re
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import report
from benchmarks.compiled import environment, unpacked
from benchmarks.side_by_side.brokers import Broker, start_pybroker
from benchmarks.side_by_side.rows import Protocol
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer
from pybroker.broker.domain.transaction import LocalTransactionId

CYCLES: Final = 200_000
MESSAGES: Final = 10_000_000
ROUNDS: Final = 10
WARM_ROUNDS: Final = 3
CYCLE_WORKERS: Final = 3
"""Processes of each protocol."""

CYCLE_SLOPE_MAX_MB: Final = 2.0
"""Growth per 100,000 cycles that counts as flat: 20 bytes each, less than any object that could be left over."""
MESSAGE_SLOPE_MAX_MB: Final = 1.0
"""Growth per 1,000,000 messages that counts as flat: one byte each."""

_FORMAT: Final = WireFormat()
_PATIENCE_SECONDS: Final = 60.0
_QUIET_SECONDS: Final = 1.5
"""After a round: longer than what the broker does later, such as writing acknowledgements."""
_AHEAD: Final = 8_000
"""Messages that a producer may be ahead of its consumer."""
_BLOCK: Final = 500
_PREFETCH: Final = 10_000
"""More than a producer is ahead, so that a topic drops nothing."""
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_MARKER: Final = "CONNECTION-0000000000000"
_LONG: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where the broker listens."""

    openwire: int
    stomp: int


# ---------------------------------------------------------------- cycles


def openwire_cycles(ports: Ports, worker: int, count: int) -> None:
    """Run that many cycles over OpenWire."""
    opening, closing = _openwire_templates(queue(f"LONG.CYCLE.{worker}"))
    for number in range(count):
        name = f"C{worker:03}-{number:06}-{time.monotonic_ns() % 10**12:012}"[: len(_MARKER)].ljust(len(_MARKER), "x")
        with _connected(ports.openwire) as made:
            reader = _Frames(made)
            made.sendall(opening.replace(_MARKER.encode(), name.encode()))
            reader.until({30, 21})
            made.sendall(closing.replace(_MARKER.encode(), name.encode()))
            reader.until({30})


def _openwire_templates(destination: Destination) -> tuple[bytes, bytes]:
    """Return what a cycle sends before and after its message comes, with a marker for the connection's id."""
    connection = wire.ConnectionId(_MARKER)
    producer, consumer = wire.ProducerId(_MARKER, 1, 1), wire.ConsumerId(_MARKER, 1, 1)
    message_id = wire.OpenWireMessageId(None, producer, 1)
    temporary = Destination(DestinationType.TEMP_QUEUE, f"{_MARKER}:1")
    opening: list[Any] = [
        wire.ConnectionInfo(connection_id=connection, client_id=_MARKER),
        wire.SessionInfo(session_id=wire.SessionId(_MARKER, 1)),
        wire.ProducerInfo(producer_id=producer),
        wire.DestinationInfo(connection_id=connection, destination=temporary, operation_type=0),
        wire.ConsumerInfo(consumer_id=consumer, destination=destination, prefetch_size=10),
        wire.ActiveMQTextMessage(
            command_id=7,
            response_required=True,
            producer_id=producer,
            destination=destination,
            message_id=message_id,
            persistent=True,
            content=encode_text("cycle"),
        ),
    ]
    closing: list[Any] = [
        wire.MessageAck(
            destination=destination,
            consumer_id=consumer,
            ack_type=int(wire.AckType.STANDARD),
            last_message_id=message_id,
            message_count=1,
        ),
        wire.RemoveInfo(object_id=consumer),
        wire.RemoveInfo(command_id=9, response_required=True, object_id=connection),
    ]
    return (
        encode_offer(Offer(max_inactivity_ms=0)) + b"".join(map(_FORMAT.encode_frame, opening)),
        b"".join(map(_FORMAT.encode_frame, closing)),
    )


def stomp_cycles(ports: Ports, worker: int, count: int) -> None:
    """Run that many cycles over STOMP."""
    name = f"/queue/LONG.STOMP.{worker}"
    opening = (
        "CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0"
        f"SUBSCRIBE\nid:1\ndestination:{name}\nack:client-individual\n\n\0"
        f"SEND\ndestination:{name}\npersistent:true\nreceipt:r\n\ncycle\0"
    ).encode()
    for _ in range(count):
        with _connected(ports.stomp) as made:
            made.sendall(opening)
            data = _read_until(made, lambda data: b"\nreceipt-id:r" in data and data.count(b"\0") == 3)
            found = _ACK.search(data)
            if found is None:
                raise RuntimeError(f"no message: {data!r}")
            made.sendall(b"ACK\nid:%b\n\n\0DISCONNECT\nreceipt:d\n\n\0" % found[1])
            _read_until(made, lambda data: b"\nreceipt-id:d" in data)


_ACK: Final = re.compile(rb"\nack:([^\n]+)\n")


def _read_until(made: socket.socket, is_whole: Callable[[bytes], bool]) -> bytes:
    data = b""
    while not is_whole(data):
        chunk = made.recv(1 << 16)
        if not chunk:
            raise ConnectionError(f"the broker closed the connection after {data!r}")
        data += chunk
    return data


# ---------------------------------------------------------------- streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """How messages are streamed.

    Attributes:
        share: of all messages.
        destination: where to.
        persistent: they survive a restart.
        per_commit: messages of a transaction; 0 for none.
    """

    name: str
    share: float
    destination: Destination
    persistent: bool = False
    per_commit: int = 0


STREAMS: Final = (
    Stream(name="non-persistent", share=0.35, destination=queue("LONG.NONPERSISTENT")),
    Stream(name="persistent", share=0.15, destination=queue("LONG.PERSISTENT"), persistent=True),
    Stream(name="transacted", share=0.1, destination=queue("LONG.TRANSACTED"), persistent=True, per_commit=100),
    Stream(name="topic", share=0.2, destination=topic("LONG.TOPIC")),
    Stream(name="stomp", share=0.1, destination=queue("LONG.STOMP")),
    Stream(name="stomp persistent", share=0.1, destination=queue("LONG.STOMP.P"), persistent=True),
)


class _Pace:
    """Keeps a producer at most so many messages ahead of its consumer."""

    def __init__(self) -> None:
        self.received = 0
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def add(self, count: int) -> None:
        with self._changed:
            self.received += count
            self._changed.notify()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = error
            self._changed.notify()

    def wait(self, reached: int) -> None:
        """Wait until that many have been received. Raises what the consumer raised, or `TimeoutError`."""
        with self._changed:
            while self.received < reached:
                before = self.received
                if self._error is not None:
                    raise self._error
                if not self._changed.wait(_PATIENCE_SECONDS) and self.received == before:
                    raise TimeoutError(f"{self.received} received, {reached} expected")


def openwire_stream(ports: Ports, worker: int, count: int) -> None:
    """Stream that many messages over OpenWire."""
    stream, pace = STREAMS[worker], _Pace()
    sender, receiver = _connected(ports.openwire), _connected(ports.openwire)
    name = f"S{worker}-{time.monotonic_ns()}"
    consumer = _log_in(receiver, f"{name}-R", stream.destination)
    producer = _log_in(sender, f"{name}-S", None)
    thread = threading.Thread(
        target=_consume_openwire, args=(receiver, consumer, stream, pace, producer), daemon=True
    )  # fmt: skip
    thread.start()
    block, offsets = _block(stream, producer)
    for first in range(0, count, _BLOCK):
        for index, offset in enumerate(offsets):
            _LONG.pack_into(block, offset, first + index + 1)
        sender.sendall(block if not stream.per_commit else _in_transactions(block, stream, producer, first))
        pace.wait(first + _BLOCK - _AHEAD)
    pace.wait(count)
    for each in (sender, receiver):
        each.close()


def _log_in(made: socket.socket, name: str, destination: Destination | None) -> Any:
    """Open a connection with a producer, or with a consumer of that destination; return its id."""
    commands: list[Any] = [
        wire.ConnectionInfo(connection_id=wire.ConnectionId(name), client_id=name),
        wire.SessionInfo(session_id=wire.SessionId(name, 1)),
    ]
    if destination is None:
        identity: Any = wire.ProducerId(name, 1, 1)
        commands.append(wire.ProducerInfo(producer_id=identity))
    else:
        identity = wire.ConsumerId(name, 1, 1)
        commands.append(
            wire.ConsumerInfo(consumer_id=identity, destination=destination, prefetch_size=_PREFETCH)
        )  # fmt: skip
    commands.append(wire.FlushCommand(command_id=9, response_required=True))
    made.sendall(encode_offer(Offer(max_inactivity_ms=0)) + b"".join(map(_FORMAT.encode_frame, commands)))
    _Frames(made).until({30})
    return identity


def _block(stream: Stream, producer: wire.ProducerId) -> tuple[bytearray, list[int]]:
    """Return a block of frames, and where each has its message's sequence number."""
    transaction = LocalTransactionId(str(producer.connection_id), _UNUSED) if stream.per_commit else None
    block, offsets = bytearray(), []
    for index in range(_BLOCK):
        frame = _FORMAT.encode_frame(
            wire.ActiveMQTextMessage(
                producer_id=producer,
                destination=stream.destination,
                message_id=wire.OpenWireMessageId(None, producer, _UNUSED - 1 - index),
                transaction_id=transaction,
                persistent=stream.persistent,
                content=encode_text("x" * 200),
            )
        )
        offsets.append(len(block) + frame.index(_LONG.pack(_UNUSED - 1 - index)))
        block += frame
    return block, offsets


_UNUSED: Final = 0x7A7B7C7D7E7F0000
"""A number that stands for another one in a template."""


def _in_transactions(block: bytearray, stream: Stream, producer: wire.ProducerId, first: int) -> bytes:
    """Return the block's frames in transactions of their own."""
    size, parts = len(block) // _BLOCK * stream.per_commit, []
    assert len(block) % _BLOCK == 0, "all frames of a block are of one length"
    name = str(producer.connection_id)
    for index in range(_BLOCK // stream.per_commit):
        number = first + index + 1
        begin, commit = (
            _FORMAT.encode_frame(
                wire.TransactionInfo(
                    connection_id=wire.ConnectionId(name),
                    transaction_id=LocalTransactionId(name, number),
                    type=int(kind),
                )
            )
            for kind in (wire.TransactionType.BEGIN, wire.TransactionType.COMMIT_ONE_PHASE)
        )
        messages = bytes(block[index * size : (index + 1) * size])
        parts += [begin, messages.replace(_LONG.pack(_UNUSED), _LONG.pack(number)), commit]
    return b"".join(parts)


def _consume_openwire(
    made: socket.socket, consumer: wire.ConsumerId, stream: Stream, pace: _Pace, producer: wire.ProducerId
) -> None:
    """Count and acknowledge until the connection closes."""
    frames, unacknowledged, received = _Frames(made), 0, 0
    try:
        while True:
            count = frames.chunk().count(_DISPATCH)
            unacknowledged += count
            received += count
            if unacknowledged:
                # In order from one producer: the number of the last one is that of all received.
                ack = wire.MessageAck(
                    destination=stream.destination,
                    consumer_id=consumer,
                    ack_type=int(wire.AckType.STANDARD),
                    last_message_id=wire.OpenWireMessageId(None, producer, received),
                    message_count=unacknowledged,
                )
                made.sendall(_FORMAT.encode_frame(ack))
                unacknowledged = 0
            pace.add(count)
    except (OSError, RuntimeError) as error:
        pace.fail(error)


_DISPATCH: Final = 21


def stomp_stream(ports: Ports, worker: int, count: int) -> None:
    """Stream that many messages over STOMP."""
    stream, pace = STREAMS[worker], _Pace()
    name = f"/queue/{stream.destination.name}"
    sender, receiver = _connected(ports.stomp), _connected(ports.stomp)
    for each in (sender, receiver):
        each.sendall(b"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n\n\0")
        _read_until(each, lambda data: b"\0" in data)
    receiver.sendall(f"SUBSCRIBE\nid:1\ndestination:{name}\nack:auto\nreceipt:r\n\n\0".encode())
    _read_until(receiver, lambda data: b"RECEIPT" in data)
    threading.Thread(target=_consume_stomp, args=(receiver, pace), daemon=True).start()
    persistent = "persistent:true\n" if stream.persistent else ""
    block = f"SEND\ndestination:{name}\n{persistent}\n{'x' * 200}\0".encode() * _BLOCK
    for first in range(0, count, _BLOCK):
        sender.sendall(block)
        pace.wait(first + _BLOCK - _AHEAD)
    pace.wait(count)
    for each in (sender, receiver):
        each.close()


def _consume_stomp(made: socket.socket, pace: _Pace) -> None:
    try:
        while chunk := made.recv(1 << 18):
            pace.add(chunk.count(b"\0"))
    except OSError as error:
        pace.fail(error)
    else:
        pace.fail(ConnectionError("the broker closed the connection"))


# ---------------------------------------------------------------- shared by both


class _Frames:
    """The data types of the OpenWire frames that come."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self._rest = b""

    def until(self, wanted: set[int]) -> None:
        """Read until one of each has come. Raises `RuntimeError` on an exception of the broker."""
        left = set(wanted)
        while left:
            left -= set(self.chunk())

    def chunk(self) -> list[int]:
        """Return the types of the frames that end in the next chunk."""
        chunk = self._socket.recv(1 << 18)
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data, position, found = self._rest + chunk if self._rest else chunk, 0, []
        length = len(data)
        while position + 4 < length:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > length:
                break
            kind = data[position + 4]
            if kind in (wire.ExceptionResponse.DATA_TYPE, wire.ConnectionErrorCommand.DATA_TYPE):
                raise RuntimeError(f"refused: {_FORMAT.decode(data[position + 4 : end])}")
            found.append(kind)
            position = end
        self._rest = data[position:]
        return found


def _connected(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)  # no ports are left in TIME_WAIT
    return made


# ---------------------------------------------------------------- rounds


Work = tuple[Callable[[Ports, int, int], None], int, int]
"""A function, the worker's number, and how many."""


def cycle_work(count: int) -> list[Work]:
    """Return the work of a round of cycles."""
    each = max(1, count // (2 * CYCLE_WORKERS))
    return [(run, number, each) for run in (openwire_cycles, stomp_cycles) for number in range(CYCLE_WORKERS)]


def message_work(count: int) -> list[Work]:
    """Return the work of a round of messages, two streams at a time."""
    return [
        (stomp_stream if "stomp" in each.name else openwire_stream, number, _blocks(count * each.share))
        for number, each in enumerate(STREAMS)
    ]


def _blocks(count: float) -> int:
    return max(1, int(count / _BLOCK)) * _BLOCK


def run_round(work: Sequence[Work], ports: Ports, *, together: int) -> int:
    """Do the work in processes of its own, so many at a time; return how much it was.

    Raises:
        RuntimeError: a process failed; its own message is on standard error.
    """
    context = multiprocessing.get_context("spawn")
    for first in range(0, len(work), together):
        processes = [
            context.Process(target=run, args=(ports, number, count)) for run, number, count in work[first:][:together]
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise RuntimeError("a client failed")
    return sum(count for _, _, count in work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was measured after a round.

    Attributes:
        done: units of work so far.
        rss_mb: resident memory of the broker.
        journal_mb: its store's size.
        rate: units per second of the round.
    """

    done: int
    rss_mb: float
    journal_mb: float
    rate: float


def slope(samples: Sequence[Sample], unit: int) -> float:
    """Return by how many MB memory grows with each `unit` of work: least squares over the samples."""
    xs, ys = [sample.done / unit for sample in samples], [sample.rss_mb for sample in samples]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread if spread else 0.0


def measure(
    broker: Broker,
    store: Path,
    ports: Ports,
    make: Callable[[int], list[Work]],
    *,
    total: int,
    rounds: int,
    together: int,
) -> list[Sample]:
    """Do the work in rounds, and return a sample after each."""
    samples: list[Sample] = []
    done = 0
    for _ in range(rounds):
        began = time.monotonic()
        count = run_round(make(total // rounds), ports, together=together)
        seconds = time.monotonic() - began
        done += count
        time.sleep(_QUIET_SECONDS)
        sample = Sample(done=done, rss_mb=_rss_mb(broker.pid), journal_mb=_size_mb(store), rate=count / seconds)
        print(sample, file=sys.stderr, flush=True)
        samples.append(sample)
    return samples


def _rss_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, "Linux shows it for every process"
    return int(found[1]) / 1024


def _size_mb(store: Path) -> float:
    return sum(path.stat().st_blocks * 512 for path in store.rglob("*") if path.is_file()) / (1 << 20)


def main() -> int:
    """Run cycles and messages; return 1 if memory grew."""
    parser = report.parser(__doc__)
    parser.add_argument("--cycles", type=int, default=CYCLES)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--pure", action="store_true", help="measure the checkout as it is, not compiled")
    options = parser.parse_args()
    if options.quick:
        options.cycles, options.messages = 60, 20_000
    rounds = 2 if options.quick else ROUNDS
    made = report.Report(options)
    variables = {} if options.pure or options.quick else environment(unpacked())
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="long-run-") as name:
        folder = Path(name)
        with start_pybroker(folder, Protocol.OPENWIRE, variables=variables) as broker:
            broker.wait_until_listening()
            ports = Ports(openwire=broker.ports[Protocol.OPENWIRE], stomp=broker.ports[Protocol.STOMP])
            store = folder / "store"
            cycles = measure(
                broker, store, ports, cycle_work, total=options.cycles, rounds=rounds, together=2 * CYCLE_WORKERS
            )
            messages = measure(broker, store, ports, message_work, total=options.messages, rounds=rounds, together=2)
    rows = [
        _row("cycles", cycles, 100_000, CYCLE_SLOPE_MAX_MB, is_quick=options.quick),
        _row("messages", messages, 1_000_000, MESSAGE_SLOPE_MAX_MB, is_quick=options.quick),
    ]
    made.table("Memory of the broker", rows)
    made.table(
        "Rounds",
        [_sample_row(kind, each) for kind, found in (("cycles", cycles), ("messages", messages)) for each in found],
    )
    made.finish()
    return 0 if options.quick or all(row["verdict"] == "flat" for row in rows) else 1


def _row(name: str, samples: Sequence[Sample], unit: int, most: float, *, is_quick: bool) -> dict[str, report.Cell]:
    rest = samples[WARM_ROUNDS:] or samples
    grown = slope(rest, unit)
    return {
        "work": name,
        "count": samples[-1].done,
        "per second": sum(sample.rate for sample in rest) / len(rest),
        "MB, warm": rest[0].rss_mb,
        "MB, end": rest[-1].rss_mb,
        "journal MB, warm": rest[0].journal_mb,
        "journal MB, end": rest[-1].journal_mb,
        "unit": unit,
        "MB per unit": grown,
        "at most": most,
        "verdict": "too short to judge" if is_quick else "flat" if grown <= most else "GROWS",
    }


def _sample_row(kind: str, sample: Sample) -> dict[str, report.Cell]:
    return {
        "work": kind,
        "done": sample.done,
        "per second": sample.rate,
        "MB": sample.rss_mb,
        "journal MB": sample.journal_mb,
    }


if __name__ == "__main__":
    sys.exit(main())
