"""Clients of STOMP and OpenWire for kill tests with several protocols: a producer and a consumer of each."""

from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any, Final

from pybroker.broker.domain.destination import queue, topic
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer
from tests.integration.kill_load import Account, LoadWorker, Producer, Reigns, key_in
from tests.integration.stomp_client import Frame

PREFETCH: Final = 100

# ---------------------------------------------------------------- STOMP


class StompWorker(LoadWorker):
    """A client of STOMP 1.2."""

    def inputs(self) -> Iterator[Frame]:
        data = b""
        for chunk in self.chunks():
            data += chunk
            while (found := _cut(data)) is not None:
                frame, data = found
                yield frame

    def log_in(self, inputs: Iterator[Frame]) -> None:
        self.socket.sendall(b"CONNECT\naccept-version:1.2\nhost:test\n\n\0")
        for frame in inputs:
            assert frame.command == "CONNECTED", frame
            return
        raise ConnectionResetError("the client is to stop")


def _cut(data: bytes) -> tuple[Frame, bytes] | None:
    """Return the first frame, and what is behind it; None if it is not complete."""
    data = data.lstrip(b"\n")
    head, separator, rest = data.partition(b"\n\n")
    if not separator:
        return None
    command, *lines = head.decode().split("\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name, value.replace("\\c", ":"))
    end = int(headers["content-length"]) if "content-length" in headers else rest.find(b"\0")
    if end < 0 or len(rest) <= end:
        return None
    return Frame(command, headers, rest[:end]), rest[end + 1 :]


class StompProducer(StompWorker, Producer):
    """Wants a receipt for each message."""

    def __init__(
        self, name: str, destination: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self._destination = destination

    def begin(self) -> None:
        self.restart()
        self.fill()

    def handle(self, received: Frame) -> None:
        assert received.command == "RECEIPT", received
        self.answered([int(received.headers["receipt-id"])])

    def encode(self, token: int, body: str) -> bytes:
        head = f"SEND\ndestination:{self._destination}\npersistent:true\nreceipt:{token}\n\n"
        return head.encode() + body.encode() + b"\0"


class StompConsumer(StompWorker):
    """Acknowledges each message by itself."""

    def __init__(
        self, name: str, destination: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self._destination = destination

    def begin(self) -> None:
        head = f"SUBSCRIBE\nid:1\ndestination:{self._destination}\nack:client-individual\n"
        self.socket.sendall(f"{head}activemq.prefetchSize:{PREFETCH}\n\n\0".encode())

    def handle(self, received: Frame) -> None:
        assert received.command == "MESSAGE", received
        is_redelivered = received.headers.get("redelivered") == "true"
        self.account.receive(key_in(received.body), self.reign, is_redelivered=is_redelivered)
        ack = received.headers["ack"].replace(":", "\\c")
        self.socket.sendall(f"ACK\nid:{ack}\n\n\0".encode())


# ---------------------------------------------------------------- OpenWire

_FORMAT: Final = WireFormat()
_SIZE_BYTES: Final = 4


class OpenWireWorker(LoadWorker):
    """A client of OpenWire, with another client id on each connection, and session 1."""

    client_id = ""
    _count = 0

    def inputs(self) -> Iterator[Any]:
        data = b""
        for chunk in self.chunks():
            data += chunk
            while len(data) >= _SIZE_BYTES:
                end = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "big")
                if len(data) < end:
                    break
                command, data = _FORMAT.decode(data[_SIZE_BYTES:end]), data[end:]
                assert not isinstance(command, wire.ConnectionErrorCommand), command.exception
                yield command

    def log_in(self, inputs: Iterator[Any]) -> None:
        self._count += 1
        self.client_id = f"{self.name}-{self._count}"
        self.socket.sendall(encode_offer(Offer(max_inactivity_ms=0)))
        connection = wire.ConnectionInfo(
            connection_id=wire.ConnectionId(self.client_id), client_id=self.client_id, command_id=1,
            response_required=True,
        )  # fmt: skip
        self.command(connection)
        for received in inputs:
            if isinstance(received, wire.Response):
                assert not isinstance(received, wire.ExceptionResponse), received.exception
                self.command(wire.SessionInfo(session_id=wire.SessionId(self.client_id, 1)))
                return
        raise ConnectionResetError("the client is to stop")

    def command(self, command: Any) -> None:
        """Send a command."""
        self.socket.sendall(_FORMAT.encode_frame(command))


class OpenWireProducer(OpenWireWorker, Producer):
    """Wants a response for each message; one that it sends again has another id."""

    _FIRST: Final = 10
    """The number of the command of the first message."""

    def __init__(
        self, name: str, topic_name: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self._destination = topic(topic_name)

    def begin(self) -> None:
        self.restart()
        self.command(wire.ProducerInfo(producer_id=wire.ProducerId(self.client_id, 1, 1)))
        self.fill()

    def handle(self, received: Any) -> None:
        if isinstance(received, wire.Response):
            assert not isinstance(received, wire.ExceptionResponse), received.exception
            self.answered([received.correlation_id - self._FIRST])

    def encode(self, token: int, body: str) -> bytes:
        producer = wire.ProducerId(self.client_id, 1, 1)
        message = wire.ActiveMQBytesMessage(
            producer_id=producer, destination=self._destination, content=body.encode(), persistent=True,
            message_id=wire.OpenWireMessageId(None, producer, token + 1), command_id=token + self._FIRST,
            response_required=True,
        )  # fmt: skip
        return _FORMAT.encode_frame(message)


class OpenWireConsumer(OpenWireWorker):
    """Acknowledges each message by itself."""

    def __init__(
        self, name: str, queue_name: str, ports: Sequence[int], account: Account, reigns: Reigns, seed: int
    ) -> None:
        super().__init__(name, ports, account, reigns, seed)
        self.is_subscribed = Event()
        self._destination = queue(queue_name)

    def begin(self) -> None:
        consumer = wire.ConsumerId(self.client_id, 1, 1)
        self.command(
            wire.ConsumerInfo(
                consumer_id=consumer, destination=self._destination, prefetch_size=PREFETCH, command_id=10,
                response_required=True,
            )
        )  # fmt: skip

    def handle(self, received: Any) -> None:
        if isinstance(received, wire.Response):
            assert not isinstance(received, wire.ExceptionResponse), received.exception
            self.is_subscribed.set()
        elif isinstance(received, wire.MessageDispatch):
            message: Any = received.message
            self.account.receive(key_in(message.content), self.reign, is_redelivered=received.redelivery_counter > 0)
            message_id = message.message_id
            ack = wire.MessageAck(
                destination=self._destination, consumer_id=received.consumer_id, message_count=1,
                ack_type=int(wire.AckType.INDIVIDUAL), first_message_id=message_id, last_message_id=message_id,
            )  # fmt: skip
            self.command(ack)
