"""The bystander's process: well-behaved clients of each protocol that record how long each step takes.

A round is a persistent send with its answer and the receive of that message; over OpenWire a KeepAliveInfo with its
answer comes first, and over STOMP every tenth round begins with a new connection. A message that is lost, or comes
twice, is an error. Another thread measures how late this process itself is scheduled. `python -m
benchmarks.hostile.bystander --openwire PORT --stomp PORT`, with `--mqtt` and `--amqp` for these, prints a line once all
clients run, ends on a line of standard input, and prints what it measured as one line of JSON, times by the machine's
monotonic clock:

```text
{"waits": {step: [[began, seconds], ...]}, "late": [[at, seconds], ...], "errors": [text, ...],
 "refused": connections}
```

A step under way at the end counts with the time that it has taken so far.
"""

import argparse
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from benchmarks.hostile.bystander_amqp import AmqpBystander
from benchmarks.hostile.bystander_mqtt import MqttBystander
from benchmarks.hostile.bystander_record import PATIENCE_SECONDS, QUEUE, NumberedBodies, Record, connected
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.body import decode_text, encode_text
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, encode_offer

_PAUSE_SECONDS: Final = 0.004
"""Between rounds: enough of them to meet any freeze, too few to be a load."""
_CONNECT_SECONDS: Final = 20.0
"""For a connection that is accepted and then not served."""
_STEP_SECONDS: Final = 0.005
_LATE_SECONDS: Final = 0.002
_ROUNDS_PER_CONNECTION: Final = 10
_FORMAT: Final = WireFormat()


class OpenWireBystander:
    """One connection with a producer and a consumer."""

    def __init__(self, port: int, user: str | None, password: str | None, *, exclusive: bool) -> None:
        self._socket = connected(port)
        self._stream = self._socket.makefile("rb")
        self._number = self._sequence = 0
        self._bodies = NumberedBodies()
        self._dispatches: list[Any] = []
        self._alive = False
        self._id = f"bystander-{os.getpid()}"
        self._producer = wire.ProducerId(self._id, 1, 1)
        self._consumer = wire.ConsumerId(self._id, 1, 1)
        self._queue = queue(f"{QUEUE}.OPENWIRE")
        self._socket.sendall(encode_offer(Offer(max_inactivity_ms=0)))
        identity = wire.ConnectionId(self._id)
        self._request(
            wire.ConnectionInfo(connection_id=identity, client_id=self._id, user_name=user, password=password)
        )
        self._request(wire.SessionInfo(session_id=wire.SessionId(self._id, 1)))
        self._request(wire.ProducerInfo(producer_id=self._producer))
        self._request(
            wire.ConsumerInfo(
                consumer_id=self._consumer, destination=self._queue, prefetch_size=10, exclusive=exclusive
            )
        )

    def round(self, record: Record) -> None:
        """Do one round."""
        with record.step("openwire keepalive"):
            self._alive = False
            self._send(wire.KeepAliveInfo(response_required=True))
            while not self._alive:
                self._next()
        with record.step("openwire send"):
            self._sequence += 1
            self._request(
                wire.ActiveMQTextMessage(
                    producer_id=self._producer,
                    destination=self._queue,
                    message_id=wire.OpenWireMessageId(None, self._producer, self._sequence),
                    persistent=True,
                    content=encode_text(self._bodies.next()),
                    timestamp=int(time.time() * 1000),
                )
            )
        with record.step("openwire receive"):
            while not self._received():
                self._next()

    def _received(self) -> bool:
        """Acknowledge messages that have come; return True if the last one that was sent is among them."""
        is_received = False
        while self._dispatches:
            message = self._dispatches.pop(0).message
            is_received |= self._bodies.is_last(decode_text(message.content))
            self._send(
                wire.MessageAck(
                    destination=self._queue,
                    consumer_id=self._consumer,
                    ack_type=int(wire.AckType.STANDARD),
                    first_message_id=message.message_id,
                    last_message_id=message.message_id,
                    message_count=1,
                )
            )
        return is_received

    def _send(self, command: Any) -> int:
        self._number += 1
        command.command_id = self._number
        self._socket.sendall(_FORMAT.encode_frame(command))
        return self._number

    def _request(self, command: Any) -> None:
        command.response_required = True
        number = self._send(command)
        while (answer := self._next()) is None or answer.correlation_id != number:
            pass
        if isinstance(answer, wire.ExceptionResponse):
            raise RuntimeError(f"refused: {answer.exception}")

    def _next(self) -> wire.Response | None:
        """Read a frame; return it if it is a response."""
        head = self._read(4)
        frame = _FORMAT.decode(self._read(int.from_bytes(head, "big")))
        if isinstance(frame, wire.MessageDispatch):
            self._dispatches.append(frame)
        elif isinstance(frame, wire.KeepAliveInfo):
            if frame.response_required:
                self._send(wire.KeepAliveInfo())
            else:
                self._alive = True
        return frame if isinstance(frame, wire.Response) else None

    def _read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise ConnectionError("the broker closed the connection")
        return data


class StompBystander:
    """One connection with a subscription, and others that only connect."""

    def __init__(self, port: int, user: str | None, password: str | None, *, exclusive: bool) -> None:
        self._port = port
        self._login = f"login:{user}\npasscode:{password}\n" if user else ""
        self._rounds = 0
        self._socket = self._connected()
        self._rest = b""
        destination = f"/queue/{QUEUE}.STOMP"
        head = f"id:1\nack:auto\ndestination:{destination}\nreceipt:s\nactivemq.exclusive:{str(exclusive).lower()}"
        self._socket.sendall(f"SUBSCRIBE\n{head}\n\n\0".encode())
        self._expect(b"RECEIPT")
        self._bodies = NumberedBodies()
        self._head = f"SEND\ndestination:{destination}\npersistent:true\nreceipt:r\n\n"

    def round(self, record: Record) -> None:
        """Do one round."""
        self._rounds += 1
        if self._rounds % _ROUNDS_PER_CONNECTION == 0:
            try:
                with record.step("stomp connect"):
                    self._connected().close()
            except (OSError, RuntimeError):
                record.refused += 1
        with record.step("stomp send and receive"):
            self._socket.sendall(f"{self._head}{self._bodies.next()}\0".encode())
            is_confirmed = is_received = False
            while not (is_confirmed and is_received):
                frame = self._next()
                if frame.startswith(b"MESSAGE"):
                    is_received |= self._bodies.is_last(frame.partition(b"\n\n")[2].decode())
                elif frame.startswith(b"RECEIPT"):
                    is_confirmed = True
                else:
                    raise RuntimeError(f"unexpected frame {frame[:200]!r}")

    def _connected(self) -> socket.socket:
        made = connected(self._port)
        made.settimeout(_CONNECT_SECONDS)
        made.sendall(f"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n{self._login}\n\0".encode())
        answer = b""
        while b"\0" not in answer:
            chunk = made.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the broker closed a new connection")
            answer += chunk
        if not answer.startswith(b"CONNECTED"):
            raise RuntimeError(f"refused: {answer[:200]!r}")
        made.settimeout(PATIENCE_SECONDS)
        return made

    def _expect(self, kind: bytes) -> None:
        frame = self._next()
        if not frame.startswith(kind):
            raise RuntimeError(f"unexpected frame {frame[:200]!r}")

    def _next(self) -> bytes:
        while b"\0" not in self._rest:
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            self._rest += chunk
        frame, _, self._rest = self._rest.partition(b"\0")
        return frame.lstrip(b"\n")


class Bystander(Protocol):
    """A client of one protocol."""

    def round(self, record: Record) -> None:
        """Send a message, and receive it.

        Raises:
            OSError: the connection is lost.
            RuntimeError: the broker refuses something, or a message is lost or comes twice.
        """


def _rounds(client: Bystander, record: Record) -> Callable[[], None]:
    def run() -> None:
        try:
            while not record.is_over:
                client.round(record)
                time.sleep(_PAUSE_SECONDS)
        except (OSError, RuntimeError) as error:
            if not record.is_over:
                record.errors.append(f"{type(client).__name__}: {type(error).__name__}: {error}")

    return run


def _measure_lateness(record: Record) -> None:
    while not record.is_over:
        due = time.monotonic() + _STEP_SECONDS
        time.sleep(_STEP_SECONDS)
        late = time.monotonic() - due
        if late > _LATE_SECONDS:
            record.late.append((due, late))


def main() -> None:
    """Run rounds until a line comes in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openwire", type=int, required=True)
    parser.add_argument("--stomp", type=int, required=True)
    parser.add_argument("--mqtt", type=int)
    parser.add_argument("--amqp", type=int)
    parser.add_argument("--user", help="of a broker with logins")
    parser.add_argument("--password")
    parser.add_argument("--exclusive", action="store_true", help="share messages with no consumer of a pattern")
    options = parser.parse_args()
    record = Record()
    login = options.user, options.password
    clients: list[Bystander] = [
        OpenWireBystander(options.openwire, *login, exclusive=options.exclusive),
        StompBystander(options.stomp, *login, exclusive=options.exclusive),
    ]
    if options.mqtt is not None:
        clients.append(MqttBystander(options.mqtt, *login, exclusive=options.exclusive))
    if options.amqp is not None:
        clients.append(AmqpBystander(options.amqp, *login, exclusive=options.exclusive))
    for client in clients:
        client.round(Record())
        threading.Thread(target=_rounds(client, record), daemon=True).start()
    threading.Thread(target=_measure_lateness, args=(record,), daemon=True).start()
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    print(json.dumps(record.end()), flush=True)
    os._exit(0)  # a thread may wait for an answer


if __name__ == "__main__":
    main()
