"""AMQP 1.0 as a load, by raw sockets: durable messages that the broker accepts, and a receiver that accepts them.

The client encodes and decodes with pybroker's codec, whichever broker it loads. The receiver settles what one read of
its socket has brought with one disposition, as clients in C and Java do.
"""

import os
import socket
import time
from collections import deque
from typing import Final

from benchmarks.driver import PASSWORD, PATIENCE_SECONDS, USER, Loop, Peer
from benchmarks.report import quantile
from benchmarks.side_by_side.rows import Row, Timing
from benchmarks.workload import body
from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    AmqpFrame,
    AmqpFrameDecoder,
    AmqpLimits,
    encode_disposition,
    encode_flow,
    encode_frame,
    encode_transfer,
)
from pybroker.broker.domain.amqp.message import AmqpBodyKind, AmqpMessage, AmqpMessageHeader
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpFlow,
    AmqpOpen,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    SaslInit,
    SaslOutcome,
)
from pybroker.broker.domain.amqp.sections import encode_message
from pybroker.broker.domain.amqp.values import Symbol

_ADDRESS: Final = "/queue/BENCH.AMQP"
"""To RabbitMQ a queue that it declares; to pybroker a queue of just this name."""

_WINDOW: Final = 2**31 - 1
_CREDIT: Final = 400
_LIMITS: Final = AmqpLimits()
_ENDS: Final = (AmqpClose, AmqpEnd, AmqpDetach)


class AmqpClient:
    """Sends with a window; one receiver receives and accepts all of it."""

    pid = os.getpid()
    """Of the process the client runs in: this one."""

    def prepare(self, row: Row, port: int) -> None:
        """Connect and warm up; on return only the measured part is left."""
        self._loop = Loop()
        self._receiver = _Receiver(self._loop, port)
        self._senders = [
            _Sender(self._loop, port, f"sender{number}", _message(row.body_bytes), row.window)
            for number in range(row.producers)
        ]
        self._count = row.count
        if row.warm:
            self._send(row.warm)

    def run(self) -> Timing:
        """Do the measured part, to the last answer and the last message."""
        for sender in self._senders:
            sender.latencies.clear()
        begun = time.perf_counter()
        self._send(self._count)
        seconds = time.perf_counter() - begun
        latencies = [latency for sender in self._senders for latency in sender.latencies]
        return Timing(seconds=seconds, p50_ms=quantile(latencies, 0.5) * 1000, p99_ms=quantile(latencies, 0.99) * 1000)

    def finish(self) -> None:
        """Detach the receiver's link, which the broker answers behind all its dispositions, and disconnect."""
        self._receiver.write(encode_frame(0, AmqpDetach(handle=0, closed=True)))
        self._loop.run_until(lambda: self._receiver.is_detached)
        self._loop.close()

    def _send(self, count: int) -> None:
        goal = self._receiver.received_count + count
        for sender in self._senders:
            sender.start(count // len(self._senders))
        self._loop.run_until(
            lambda: self._receiver.received_count == goal and not any(sender.left for sender in self._senders)
        )


class _Link(Peer):
    """A connection with a session and one link.

    Attributes:
        is_detached: the broker has answered detach.
    """

    def __init__(self, loop: Loop, port: int, attach: AmqpAttach, container_id: str) -> None:
        super().__init__(loop, port, _connect)
        self.is_detached = False
        self._decoder = AmqpFrameDecoder(_LIMITS)
        self.write(AMQP_HEADER)
        for each in (
            AmqpOpen(container_id=container_id, hostname="127.0.0.1"),
            AmqpBegin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW),
            attach,
        ):
            self.write(encode_frame(0, each))

    def received(self, chunk: bytes) -> None:
        """Take the frames that have come."""
        frames = [each for each in self._decoder.feed(chunk) if isinstance(each, AmqpFrame)]
        for each in frames:
            if isinstance(each.performative, _ENDS):
                self._end(each.performative)
        self.take(frames)

    def take(self, frames: list[AmqpFrame]) -> None:
        """Do something with them."""
        raise NotImplementedError

    def _end(self, performative: AmqpClose | AmqpEnd | AmqpDetach) -> None:
        if performative.error is not None or not isinstance(performative, AmqpDetach):
            raise RuntimeError(f"the broker refuses: {performative!r}")
        self.is_detached = True


class _Sender(_Link):
    """Sends, with at most `window` deliveries unsettled.

    Attributes:
        left: messages without an answer.
        latencies: seconds from each transfer to its disposition.
    """

    def __init__(self, loop: Loop, port: int, container_id: str, payload: bytes, window: int) -> None:
        attach = AmqpAttach(
            name=container_id, handle=0, role=False, snd_settle_mode=0, source=AmqpSource(address=container_id),
            target=AmqpTarget(address=_ADDRESS), initial_delivery_count=0,
        )  # fmt: skip
        super().__init__(loop, port, attach, container_id)
        self.left = 0
        self.latencies: list[float] = []
        self._payload = payload
        self._window = window
        self._unsent = self._sent = self._allowed = 0
        self._sent_at: deque[float] = deque()
        loop.run_until(lambda: self._allowed > 0)

    def start(self, count: int) -> None:
        """Send so many messages."""
        self.left = self._unsent = count
        self._send()

    def take(self, frames: list[AmqpFrame]) -> None:
        """Count what is accepted, and send as many messages again."""
        accepted = 0
        for _, performative, _ in frames:
            if isinstance(performative, AmqpDisposition):
                if not isinstance(performative.state, AmqpAccepted):
                    raise RuntimeError(f"the broker does not accept: {performative!r}")
                accepted += (performative.last or performative.first or 0) - (performative.first or 0) + 1
            elif isinstance(performative, AmqpFlow) and performative.link_credit is not None:
                self._allowed = (performative.delivery_count or 0) + performative.link_credit
        now = time.perf_counter()
        self.latencies += [now - self._sent_at.popleft() for _ in range(accepted)]
        self.left -= accepted
        self._send()

    def _send(self) -> None:
        count = min(self._unsent, self._window - len(self._sent_at), self._allowed - self._sent)
        if count <= 0:
            return
        numbers = range(self._sent, self._sent + count)
        self._sent += count
        self._unsent -= count
        self._sent_at.extend([time.perf_counter()] * count)
        self.write(b"".join([encode_transfer(0, 0, each, b"%d" % each, self._payload) for each in numbers]))


class _Receiver(_Link):
    """Accepts what comes.

    Attributes:
        received_count: messages so far.
    """

    def __init__(self, loop: Loop, port: int) -> None:
        attach = AmqpAttach(
            name="receiver", handle=0, role=True, rcv_settle_mode=0, source=AmqpSource(address=_ADDRESS),
            target=AmqpTarget(address="receiver"),
        )  # fmt: skip
        super().__init__(loop, port, attach, "receiver")
        self.received_count = 0
        self._is_attached = False
        loop.run_until(lambda: self._is_attached)
        self.write(self._credit())

    def take(self, frames: list[AmqpFrame]) -> None:
        """Accept the messages that are complete, and give credit again."""
        first = last = None
        for _, performative, _ in frames:
            if isinstance(performative, AmqpTransfer):
                if performative.delivery_id is not None:
                    last = performative.delivery_id
                    first = last if first is None else first
                self.received_count += not performative.more
            elif isinstance(performative, AmqpAttach):
                self._is_attached = True
        if first is None:
            return
        self.write(encode_disposition(0, first, last, AmqpAccepted(), is_receiver=True, settled=True) + self._credit())

    def _credit(self) -> bytes:
        count = self.received_count
        return encode_flow(0, count, _WINDOW, 0, _WINDOW, 0, count, _CREDIT)


def _connect(port: int) -> socket.socket:
    """Return a connection behind its login. Raises `OSError` when the broker is not there."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        login = SaslInit(mechanism=Symbol("PLAIN"), initial_response=f"\0{USER}\0{PASSWORD}".encode())
        connection.sendall(SASL_HEADER + encode_frame(0, login))
        decoder, outcome = AmqpFrameDecoder(_LIMITS), None
        while outcome is None:
            for each in decoder.feed(connection.recv(4096)):
                if isinstance(each, AmqpFrame) and isinstance(each.performative, SaslOutcome):
                    outcome = each.performative.code
        if outcome:
            raise RuntimeError(f"the broker refused the login: {outcome}")
    except BaseException:
        connection.close()
        raise
    return connection


def _message(body_bytes: int) -> bytes:
    message = AmqpMessage()
    message.header = AmqpMessageHeader(durable=True)
    message.application_properties = {"one": "1", "two": "2", "three": "3"}
    message.body_kind, message.body = AmqpBodyKind.DATA, [body(body_bytes)]
    return encode_message(message)
