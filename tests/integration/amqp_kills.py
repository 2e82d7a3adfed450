"""Clients of AMQP for kill tests: a sender that keeps hundreds of durable messages unsettled, and a receiver.

Both write frames by this project's codec, as a client library of Python would be the bottleneck. The sender sends all
that is unsettled again on its next connection, so a message may come twice; the receiver settles what it accepts.
"""

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Final

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
from tests.integration.kill_load import Account, LoadWorker, Producer, Reigns, key_in

_BIG: Final = (1 << 31) - 1
_SENDER: Final = False
_RECEIVER: Final = True


class AmqpWorker(LoadWorker):
    """A client with one session, on channel 0, and one link."""

    def inputs(self) -> Iterator[AmqpFrame]:
        decoder = AmqpFrameDecoder(AmqpLimits())
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


class AmqpSender(AmqpWorker, Producer):
    """Keeps up to `WINDOW` durable messages unsettled, as far as its credit goes."""

    WINDOW = 800

    def __init__(
        self, name: str, address: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self._address = address
        self._limit = 0
        """The delivery count up to which it has credit."""

    def begin(self) -> None:
        self.restart()
        self._limit = 0
        self.attach(self._address, role=_SENDER)

    def handle(self, received: AmqpFrame) -> None:
        match received.performative:
            case AmqpFlow(delivery_count=int(count), link_credit=int(credit)):
                self._limit = count + credit
                self.fill()
            case AmqpDisposition(first=int(first), last=last, state=state):
                assert isinstance(state, AmqpAccepted), state
                self.answered(range(first, (first if last is None else last) + 1))
            case AmqpAttach():
                pass
            case other:
                raise AssertionError(f"{self.name} gets {other}")

    def may_send(self, token: int) -> bool:
        return token < self._limit

    def encode(self, token: int, body: str) -> bytes:
        message = AmqpMessage(header=AmqpMessageHeader(durable=True), body_kind=AmqpBodyKind.VALUE, body=body)
        return encode_transfer(0, 0, token, b"%d" % token, encode_message(message))


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
        self.account.receive(key_in(payload), self.reign, is_redelivered=count > 0)
        delivery = self._delivery_count
        self._delivery_count += 1
        self.socket.sendall(encode_disposition(0, delivery, None, AmqpAccepted(), is_receiver=True, settled=True))
        if self._delivery_count % (self.CREDIT // 2) == 0:
            self._give_credit()

    def _give_credit(self) -> None:
        self.socket.sendall(encode_flow(0, self._delivery_count, _BIG, 0, _BIG, 0, self._delivery_count, self.CREDIT))
