"""Clients of AMQP for kill tests: a sender that keeps hundreds of durable messages unsettled, and a receiver.

Both write frames by this project's codec, as a client library of Python would be the bottleneck. The sender sends all
that is unsettled again on its next connection, so a message may come twice; the receiver settles what it accepts.
"""

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any, Final

from pybroker.broker.domain.amqp.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    AmqpFrame,
    AmqpLimits,
    FrameDecoder,
    encode_disposition,
    encode_flow,
    encode_frame,
    encode_transfer,
)
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpDisposition,
    AmqpFlow,
    AmqpOpen,
    AmqpSource,
    AmqpTarget,
    AmqpTransfer,
    SaslInit,
    SaslOutcome,
)
from pybroker.broker.domain.amqp.sections import (
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    decode_message,
    encode_message,
)
from pybroker.broker.domain.amqp.values import Symbol
from tests.integration.kill_load import Account, Key, LoadWorker, Reigns

_BIG: Final = (1 << 31) - 1
_SENDER: Final = False
_RECEIVER: Final = True


class AmqpWorker(LoadWorker):
    """A client with one session, on channel 0, and one link."""

    def inputs(self) -> Iterator[AmqpFrame]:
        decoder = FrameDecoder(AmqpLimits())
        for chunk in self.chunks():
            for each in decoder.feed(chunk):
                if isinstance(each, AmqpFrame) and each.performative is not None:
                    yield each

    def log_in(self, inputs: Iterator[AmqpFrame]) -> None:
        """Open a connection and a session; pipelined, as the standard permits."""
        self.socket.sendall(SASL_HEADER + encode_frame(0, SaslInit(mechanism=Symbol("ANONYMOUS"))))
        for each in inputs:
            if isinstance(each.performative, SaslOutcome):
                break
        begin = AmqpBegin(next_outgoing_id=0, incoming_window=_BIG, outgoing_window=_BIG)
        opened = AmqpOpen(container_id=self.name, idle_time_out=0)
        self.socket.sendall(AMQP_HEADER + encode_frame(0, opened) + encode_frame(0, begin))
        for each in inputs:
            if isinstance(each.performative, AmqpBegin):
                return
            if isinstance(each.performative, AmqpClose):
                # The broker has not seen the end of the former connection yet, and another needs another id.
                assert "already connected" in str(each.performative.error), each
                raise ConnectionResetError("the container id is in use")
            assert isinstance(each.performative, AmqpOpen), each
        raise ConnectionResetError("the client is to stop")

    def attach(self, address: str, *, role: bool) -> None:
        """Attach the link."""
        source = AmqpSource(address=address if role is _RECEIVER else None)
        target = AmqpTarget(address=address if role is _SENDER else None)
        initial = None if role is _RECEIVER else 0
        attach = AmqpAttach(
            name="link", handle=0, role=role, source=source, target=target, initial_delivery_count=initial
        )
        self.socket.sendall(encode_frame(0, attach))


class AmqpSender(AmqpWorker):
    """Keeps up to `WINDOW` durable messages unsettled, as far as its credit goes."""

    WINDOW: Final = 800

    def __init__(
        self, name: str, address: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self.most_unsettled = 0
        self._address = address
        self._number = 0
        self._unsettled: dict[int, Key] = {}
        """By their delivery ids on this connection."""
        self._again: list[Key] = []
        """What the last connection left without an answer."""
        self._next_delivery = 0
        self._credit = 0

    def begin(self) -> None:
        self._again = [*self._unsettled.values(), *self._again]
        self._unsettled = {}
        self._next_delivery = self._credit = 0
        self.attach(self._address, role=_SENDER)

    def handle(self, received: AmqpFrame) -> None:
        match received.performative:
            case AmqpFlow(delivery_count=int(count), link_credit=int(credit)):
                self._credit = count + credit - self._next_delivery
            case AmqpDisposition(first=int(first), last=last, state=state):
                assert isinstance(state, AmqpAccepted), state
                numbers = range(first, (first if last is None else last) + 1)
                self.account.confirm([self._unsettled.pop(number) for number in numbers], self.reign)
            case AmqpAttach():
                pass
            case other:
                raise AssertionError(f"{self.name} gets {other}")
        self._fill()

    def is_done(self) -> bool:
        return self.stopping.is_set() and not self._unsettled and not self._again  # what was sent is settled first

    def _fill(self) -> None:
        frames: list[bytes] = []
        while self._credit > 0 and len(self._unsettled) < self.WINDOW:
            if self._again:
                key = self._again.pop(0)
            elif self.stopping.is_set():
                break
            else:
                self._number += 1
                key = self.name, self._number
            frames.append(self._transfer(key))
        self.most_unsettled = max(self.most_unsettled, len(self._unsettled))
        self.socket.sendall(b"".join(frames))

    def _transfer(self, key: Key) -> bytes:
        number = self._next_delivery
        self._next_delivery += 1
        self._credit -= 1
        self._unsettled[number] = key
        self.account.publish(key, self.reign)
        body = f"{key[0]} {key[1]} {'x' * self.random.choice([0, 10, 1000, 20_000])}"
        message = AmqpMessage(header=AmqpMessageHeader(durable=True), body_kind=AmqpBodyKind.VALUE, body=body)
        return encode_transfer(0, 0, number, b"%d" % number, encode_message(message))


class AmqpReceiver(AmqpWorker):
    """Accepts what comes, in batches of what one read brings at most."""

    CREDIT: Final = 200

    def __init__(
        self, name: str, address: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self.is_attached = Event()
        self._address = address
        self._delivery_count = 0
        self._parts: list[bytes] = []

    def begin(self) -> None:
        self._delivery_count = 0
        self._parts = []
        self.attach(self._address, role=_RECEIVER)
        self._give_credit()

    def handle(self, received: AmqpFrame) -> None:
        match received.performative:
            case AmqpTransfer() as transfer:
                self._parts.append(received.payload)
                if not transfer.more:
                    self._message(transfer)
            case AmqpAttach():
                self.is_attached.set()
            case AmqpFlow():
                pass
            case other:
                raise AssertionError(f"{self.name} gets {other}")

    def _message(self, transfer: AmqpTransfer) -> None:
        payload, self._parts = b"".join(self._parts), []
        message = decode_message(payload)
        count = 0 if message.header is None else message.header.delivery_count or 0
        name, number = key_of(message)
        self.account.receive((name, number), self.reign, is_redelivered=count > 0)
        delivery = self._delivery_count
        self._delivery_count += 1
        self.socket.sendall(encode_disposition(0, delivery, None, AmqpAccepted(), is_receiver=True, settled=True))
        if self._delivery_count % (self.CREDIT // 2) == 0:
            self._give_credit()

    def _give_credit(self) -> None:
        self.socket.sendall(encode_flow(0, self._delivery_count, _BIG, 0, _BIG, 0, self._delivery_count, self.CREDIT))


def key_of(message: AmqpMessage) -> Key:
    """Return producer and number of a message, whether its body is a text or data."""
    body: Any = message.body
    text = body if isinstance(body, str) else b"".join(body).decode()
    name, number, _ = text.split(" ", 2)
    return name, int(number)
