"""The bystander of AMQP 1.0: a link that sends durable messages to a queue, and one that receives and accepts them.

A round is a transfer with its disposition, and the receive of that message, which is settled as accepted.
"""

import os
from typing import Final

from benchmarks.hostile.bystander_record import QUEUE, NumberedBodies, Record, connected
from pybroker.broker.domain.amqp import performatives as amqp
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
from pybroker.broker.domain.amqp.sections import (
    AmqpBodyKind,
    AmqpMessage,
    AmqpMessageHeader,
    decode_message,
    encode_message,
)
from pybroker.broker.domain.amqp.values import Symbol

_WINDOW: Final = (1 << 31) - 1
_CREDIT: Final = 10
_SENDER: Final = 0
_RECEIVER: Final = 1


class AmqpBystander:
    """One connection with a session and two links."""

    def __init__(self, port: int, user: str | None, password: str | None, *, exclusive: bool) -> None:
        self._bodies = NumberedBodies()
        self._sent = self._received = 0
        self._pending: list[AmqpFrame] = []
        self._decoder = AmqpFrameDecoder(AmqpLimits())
        self._socket = connected(port)
        login = amqp.SaslInit(mechanism=Symbol("ANONYMOUS"))
        if user is not None:
            response = f"\0{user}\0{password}".encode()
            login = amqp.SaslInit(mechanism=Symbol("PLAIN"), initial_response=response)
        address = f"queue://{QUEUE}.AMQP"
        source = amqp.AmqpSource(address=f"{address}?consumer.exclusive={str(exclusive).lower()}")
        sender = amqp.AmqpAttach(
            name="s", handle=_SENDER, role=False, source=amqp.AmqpSource(), target=amqp.AmqpTarget(address=address),
            initial_delivery_count=0,
        )  # fmt: skip
        receiver = amqp.AmqpAttach(name="r", handle=_RECEIVER, role=True, source=source, target=amqp.AmqpTarget())
        begin = amqp.AmqpBegin(next_outgoing_id=0, incoming_window=_WINDOW, outgoing_window=_WINDOW)
        opened = amqp.AmqpOpen(container_id=f"bystander-amqp-{os.getpid()}", hostname="h")
        self._socket.sendall(SASL_HEADER + encode_frame(0, login))
        self._until(amqp.SaslOutcome)
        self._socket.sendall(
            AMQP_HEADER + b"".join(encode_frame(0, each) for each in (opened, begin, receiver, sender))
        )
        self._until(amqp.AmqpFlow)  # the credit of the sender
        self._give_credit()

    def round(self, record: Record) -> None:
        """Do one round."""
        message = AmqpMessage(
            header=AmqpMessageHeader(durable=True), body_kind=AmqpBodyKind.VALUE, body=self._bodies.next()
        )
        number = self._sent
        self._sent += 1
        data = encode_transfer(0, _SENDER, number, number.to_bytes(8, "big"), encode_message(message))
        with record.step("amqp send and receive"):
            self._socket.sendall(data)
            self._exchange(number)
        if self._received % (_CREDIT // 2) == 0:
            self._give_credit()

    def _exchange(self, number: int) -> None:
        """Read frames until a message is accepted and received."""
        is_accepted = is_received = False
        while not (is_accepted and is_received):
            frame = self._next()
            match frame.performative:
                case amqp.AmqpTransfer(delivery_id=int(delivery_id)):
                    self._received += 1
                    is_received |= self._bodies.is_last(str(decode_message(frame.payload).body))
                    accepted = encode_disposition(
                        0, delivery_id, None, amqp.AmqpAccepted(), is_receiver=True, settled=True
                    )  # fmt: skip
                    self._socket.sendall(accepted)
                case amqp.AmqpDisposition(role=True, first=int(first), state=amqp.AmqpAccepted()) if first == number:
                    is_accepted = True
                case amqp.AmqpFlow() | None:
                    pass
                case _:
                    raise RuntimeError(f"unexpected frame {frame.performative}")

    def _give_credit(self) -> None:
        self._socket.sendall(
            encode_flow(0, self._received, _WINDOW, self._sent, _WINDOW, _RECEIVER, self._received, _CREDIT)
        )  # fmt: skip

    def _until(self, kind: type[amqp.SaslOutcome | amqp.AmqpFlow]) -> None:
        while not isinstance(found := self._next().performative, kind):
            if isinstance(found, amqp.AmqpClose | amqp.AmqpDetach | amqp.AmqpEnd):
                raise RuntimeError(f"refused: {found}")
        if isinstance(found, amqp.SaslOutcome) and found.code:
            raise RuntimeError(f"refused: {found}")

    def _next(self) -> AmqpFrame:
        while not self._pending:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            self._pending += [each for each in self._decoder.feed(chunk) if isinstance(each, AmqpFrame)]
        return self._pending.pop(0)
