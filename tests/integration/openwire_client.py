"""A bare OpenWire client over a blocking socket: it sends any command, in any order, and shows every answer."""

import socket
from typing import Any

from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer

FORMAT = WireFormat()
TIMEOUT_SECONDS = 20.0


class OpenWireClient:
    """One connection: version 12, loose, uncached."""

    def __init__(self, port: int, name: str = "", user: str | None = None, password: str | None = None) -> None:
        """Connect; with a name, log in, with session 1 and producer 1."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self._stream = self._socket.makefile("rb")
        self._number = 0
        self.name = name
        self.others: list[Any] = []
        """Commands of the broker that were no answers."""
        self.send_bytes(encode_offer(Offer(max_inactivity_ms=0)))
        if not name:
            return
        answer = self.request(
            wire.ConnectionInfo(
                connection_id=wire.ConnectionId(name), client_id=name, user_name=user, password=password
            )
        )
        assert not isinstance(answer, wire.ExceptionResponse), answer.exception
        self.request(wire.SessionInfo(session_id=wire.SessionId(name, 1)))
        self.request(wire.ProducerInfo(producer_id=self.producer))

    @property
    def producer(self) -> wire.ProducerId:
        return wire.ProducerId(self.name, 1, 1)

    def message(self, destination: Any, number: int = 1, **fields: Any) -> Any:
        """Return a message of its producer."""
        kind = fields.pop("kind", wire.ActiveMQTextMessage)
        message_id = wire.OpenWireMessageId(None, self.producer, number)
        return kind(producer_id=self.producer, destination=destination, message_id=message_id, **fields)

    def consumer(self, destination: Any, number: int = 1, **fields: Any) -> wire.ConsumerInfo:
        """Return the command for a consumer."""
        consumer_id = wire.ConsumerId(self.name, 1, number)
        return wire.ConsumerInfo(consumer_id=consumer_id, destination=destination, prefetch_size=10, **fields)

    def send(self, command: Any) -> int:
        """Send a command; return its number."""
        self._number += 1
        command.command_id = self._number
        self.send_bytes(FORMAT.encode_frame(command))
        return self._number

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def request(self, command: Any) -> Any:
        """Send a command, and return the answer."""
        command.response_required = True
        number = self.send(command)
        while True:
            answer = self.read()
            if isinstance(answer, wire.Response) and answer.correlation_id == number:
                return answer
            self.others.append(answer)

    def refusal(self, command: Any) -> tuple[str, str]:
        """Send a command, which must be refused; return class and text of the exception."""
        answer = self.request(command)
        assert isinstance(answer, wire.ExceptionResponse), answer
        assert answer.exception is not None
        return answer.exception.class_name or "", answer.exception.message or ""

    def read(self) -> Any:
        """Return the next command. Raises `ConnectionError` at the end."""
        data = self._stream.read(int.from_bytes(self._read(4), "big"))
        return FORMAT.decode(data)

    def message_of(self, command: Any) -> Any:
        """Send a command, and return the next message that is dispatched, before or after the answer."""
        self.request(command)
        while not (dispatches := self.dispatches()):
            self.others.append(self.read())
        self.others.remove(dispatches[0])
        return dispatches[0].message

    def dispatches(self) -> list[Any]:
        """Return what has been dispatched and read."""
        return [each for each in self.others if isinstance(each, wire.MessageDispatch)]

    def read_to_end(self) -> list[Any]:
        """Return all commands until the broker closes."""
        found: list[Any] = []
        try:
            while True:
                found.append(self.read())
        except ConnectionError:
            return found

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise ConnectionError("closed by the broker")
        return data
