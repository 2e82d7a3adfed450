"""An OpenWire client and a link without sockets, to hold conversations with a session over the real core."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.core.policy import PolicyMap
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.commands import (
    AckType,
    ActiveMQTextMessage,
    BaseCommand,
    BrokerInfo,
    ConnectionId,
    ConnectionInfo,
    ConsumerId,
    ConsumerInfo,
    DataStructure,
    ExceptionResponse,
    MessageAck,
    MessageDispatch,
    OpenWireMessageId,
    ProducerId,
    ProducerInfo,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
)
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import (
    Offer,
    agree,
    broker_offer,
    decode_offer,
    encode_offer,
)
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.security import WITHOUT_LOGINS, Authenticator
from pybroker.store.memory import MemoryStore
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from pybroker.transports.openwire.settings import OpenWireSettings
from pybroker.transports.session import Session

NOW_MS = 1_795_220_400_000
"""About when the conversations among the golden files were recorded."""

JAVA = Offer(
    version=12,
    stack_trace_enabled=True,
    tcp_no_delay_enabled=True,
    cache_enabled=True,
    cache_size=1024,
    tight_encoding_enabled=True,
    max_inactivity_ms=30_000,
    initial_delay_ms=10_000,
    frame_bytes_max=(1 << 63) - 1,
    host="127.0.0.1",
    provider_name="ActiveMQ",
    provider_version="5.17.2",
    platform_details="Java",
)
"""A Java client's default offer."""

Sent = TypeVar("Sent", bound=DataStructure)


class Clock:
    """Milliseconds since the epoch, at a standstill."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def new_broker(
    store: MessageStore | None = None, clock: Clock | None = None, policies: PolicyMap | None = None
) -> BrokerCore:
    broker = BrokerCore("b1", store=store or MemoryStore(), clock=clock or Clock(), policies=policies)
    broker.url = "tcp://b1:61616"
    broker.recover()
    return broker


def settings(offer: Offer | None = None, *, connected_brokers: str = "") -> OpenWireSettings:
    return OpenWireSettings(
        offer=offer or broker_offer(),
        broker_url="tcp://b1:61616",
        connected_brokers=connected_brokers,
    )


class FakeLink:
    """A link that collects its output; its clock moves only by the test."""

    peer = "127.0.0.1:50312"
    ending = "closed by the client"

    def __init__(self) -> None:
        self.output = bytearray()
        self.closed = False
        self.now = 0.0
        self.wakes_at: float | None = None
        self.certificate: str | None = None
        self.reading_since: float | None = 0.0
        self.holds = self.input_holds = 0
        self.reserved = 0
        self.is_slice_spent = False
        self.is_input_waiting = False
        self.session: Session | None = None

    def write(self, data: bytes | memoryview) -> None:
        if not self.closed:
            self.output += data

    def close(self) -> None:
        self.closed = True

    def time(self) -> float:
        return self.now

    def wake_at(self, when: float | None) -> None:
        self.wakes_at = when

    def pause_reading(self) -> None:
        self.holds += 1
        self.reading_since = None

    def hold_input(self) -> None:
        self.input_holds += 1
        if self.input_holds == 1:
            self.pause_reading()
            if self.session is not None:
                self.session.hold()

    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None:
        self.input_holds -= 1
        if not self.input_holds:
            self.resume_reading()
            if self.session is not None:
                self.session.release()
                self.session.proceed()

    def resume_reading(self) -> None:
        self.holds -= 1
        if not self.holds:
            self.reading_since = self.now

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        work()
        done()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def reserve_frame(self, size: int, received: int) -> None:
        self.reserved = size

    def release_frame(self) -> None:
        self.reserved = 0

    def is_slice_over(self) -> bool:
        EFFORT.is_large = False
        return self.is_slice_spent


class OpenWireClient:
    """One connection.

    Attributes:
        id: its connection id.
        commands: how many it has numbered.
        sent: how many messages it has numbered.
        pushed: what came with the last answer.
        broker_offer: what the broker offered.
        wire: the format that holds from then on.
    """

    def __init__(
        self,
        broker: BrokerCore,
        sessions: Sessions | None = None,
        *,
        offer: Offer = JAVA,
        of_broker: OpenWireSettings | None = None,
        sends_offer: bool = True,
        authenticator: Authenticator = WITHOUT_LOGINS,
    ) -> None:
        self.id = ""
        self.commands = 0
        self.sent = 0
        self.pushed: list[DataStructure] = []
        self.link = FakeLink()
        self.session = OpenWireSession(
            broker=broker,
            link=self.link,
            settings=of_broker or settings(),
            sessions=Sessions() if sessions is None else sessions,
            authenticator=authenticator,
        )
        self.link.session = self.session
        hello = self.read_frames()
        assert len(hello) == 1, "the broker sends only a WireFormatInfo until it has received the client's"
        self.broker_offer = decode_offer(hello[0])
        self.wire: WireFormat = agree(offer, self.broker_offer).wire_format()
        self.reader = agree(self.broker_offer, offer).wire_format()
        if sends_offer:
            self.session.receive(encode_offer(offer))

    def send_commands(self, *commands: DataStructure) -> None:
        """Send commands, all in one chunk."""
        self.session.receive(b"".join(map(self.wire.encode_frame, commands)))

    def receive(self) -> list[DataStructure]:
        """Return all received commands, reporting the output to the session as written until there is no more."""
        received: list[DataStructure] = []
        while frames := self.read_frames():
            received += map(self.reader.decode, frames)
            if not self.link.closed:
                self.session.written()
        return received

    def request(self, *commands: DataStructure) -> list[DataStructure]:
        """Send commands and return what is received."""
        self.send_commands(*commands)
        return self.receive()

    # ------------------------------------------------------------ what a connected client does

    def connect(self, name: str = "c1", *, client_id: str | None = None, **details: Any) -> list[DataStructure]:
        """Open a connection `ID:<name>`; return what came after the broker's BrokerInfo."""
        self.id = f"ID:{name}"
        info = ConnectionInfo(
            command_id=self.next_id(),
            response_required=True,
            connection_id=ConnectionId(self.id),
            client_id=client_id or name,
            **details,
        )
        received = self.request(info)
        assert isinstance(received[0], BrokerInfo), received
        return received[1:]

    def next_id(self) -> int:
        """Return the number of the next command."""
        self.commands += 1
        return self.commands

    def open_session(self, number: int = 1) -> None:
        """Open a session, and a producer of the same number in it that sends anywhere."""
        self.send_commands(SessionInfo(command_id=self.next_id(), session_id=SessionId(self.id, number)))
        self.answer(ProducerInfo(producer_id=self.producer(number)), Response)

    def producer(self, session: int = 1, value: int = 1) -> ProducerId:
        return ProducerId(self.id, session, value)

    def consumer(self, value: int = 1, session: int = 1) -> ConsumerId:
        return ConsumerId(self.id, session, value)

    def answer(self, command: BaseCommand, kind: type[Sent]) -> Sent:
        """Number a command, and return its only answer, of exactly that type; what else came is in `pushed`."""
        command.command_id, command.response_required = self.next_id(), True
        received = self.request(command)
        answers = [
            each for each in received if isinstance(each, Response) and each.correlation_id == command.command_id
        ]
        assert [type(each) for each in answers] == [kind], received
        self.pushed = [each for each in received if not isinstance(each, Response)]
        found = answers[0]
        assert isinstance(found, kind)
        return found

    def refused(self, command: BaseCommand) -> tuple[str, str]:
        """Return the class and message of the exception that answers a command."""
        exception = self.answer(command, ExceptionResponse).exception
        assert exception is not None
        return str(exception.class_name), str(exception.message)

    def consume(self, destination: Destination, value: int = 1, **details: Any) -> list[MessageDispatch]:
        """Add a consumer, by default with prefetch 10; return what it got at once."""
        details.setdefault("prefetch_size", 10)
        session = details.pop("session", 1)
        info = ConsumerInfo(consumer_id=self.consumer(value, session), destination=destination, **details)
        self.answer(info, Response)
        return of_kind(self.pushed, MessageDispatch)

    def message(self, destination: Destination | None, text: str = "hello", **details: Any) -> ActiveMQTextMessage:
        """Return a message of the next number, by default persistent and with a response required."""
        producer_id = details.pop("producer_id", None) or self.producer()
        self.sent += 1
        details.setdefault("persistent", True)
        details.setdefault("response_required", True)
        details.setdefault("command_id", self.next_id())
        details.setdefault("message_id", OpenWireMessageId(None, producer_id, self.sent))
        return ActiveMQTextMessage(
            producer_id=producer_id,
            destination=destination,
            content=encode_text(text),
            **details,
        )

    def send(self, destination: Destination | None, *texts: str, **details: Any) -> list[DataStructure]:
        """Send messages; return what came of it."""
        return self.request(*(self.message(destination, text, **details) for text in texts))

    def ack(
        self, dispatches: Sequence[MessageDispatch], ack_type: AckType = AckType.STANDARD, **details: Any
    ) -> list[DataStructure]:
        """Acknowledge what came, as one range; return what came of it."""
        return self.request(self.acknowledgement(dispatches, ack_type, **details))

    def acknowledgement(
        self, dispatches: Sequence[MessageDispatch], ack_type: AckType = AckType.STANDARD, **details: Any
    ) -> MessageAck:
        first, last = dispatches[0], dispatches[-1]
        assert first.message is not None
        assert last.message is not None
        details.setdefault("command_id", self.next_id())
        details.setdefault("consumer_id", last.consumer_id)
        details.setdefault("first_message_id", first.message.message_id)
        details.setdefault("message_count", len(dispatches))
        return MessageAck(
            destination=last.destination,
            ack_type=ack_type,
            last_message_id=last.message.message_id,
            **details,
        )

    def remove(self, what: Any, last_delivered: int = -2) -> list[DataStructure]:
        """Remove something, one way."""
        return self.request(
            RemoveInfo(command_id=self.next_id(), object_id=what, last_delivered_sequence_id=last_delivered)
        )

    def read_frames(self) -> list[bytes]:
        """Return the frames that were written, without their sizes."""
        frames = split(bytes(self.link.output))
        self.link.output.clear()
        return frames

    def wait(self, seconds: float) -> None:
        """Let time pass and run the session's timers that are due."""
        end = self.link.now + seconds
        while self.link.wakes_at is not None and self.link.wakes_at <= end:
            self.link.now = max(self.link.now, self.link.wakes_at)
            self.link.wakes_at = None
            self.session.on_timer()
        self.link.now = end


def split(data: bytes) -> list[bytes]:
    """Return frames without their sizes; all must be whole."""
    frames: list[bytes] = []
    offset = 0
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 4])
        frames.append(data[offset + 4 : offset + 4 + size])
        assert len(frames[-1]) == size, "a frame is cut short"
        offset += 4 + size
    return frames


def of_kind(received: Sequence[DataStructure], kind: type[Sent]) -> list[Sent]:
    """Return those of a type."""
    return [each for each in received if isinstance(each, kind)]


def texts(dispatches: Sequence[DataStructure]) -> list[str | None]:
    """Return the texts of the messages that came, in order; None for a dispatch without a message."""
    return [
        None if each.message is None else (each.message.content or b"")[4:].decode()
        for each in of_kind(dispatches, MessageDispatch)
    ]


class World:
    """A broker, its sessions, and a way to meet it."""

    def __init__(self, store: MessageStore | None = None, policies: PolicyMap | None = None) -> None:
        self.clock = Clock()
        self.broker = new_broker(store, self.clock, policies)
        self.sessions = Sessions()

    def new_client(self, **details: Any) -> OpenWireClient:
        """Return a connection that has sent at most its WireFormatInfo."""
        return OpenWireClient(self.broker, self.sessions, **details)

    def client(self, name: str = "c1", *, session: bool = True, **details: Any) -> OpenWireClient:
        """Return a connected client, by default with a session and a producer."""
        connection = {each: details.pop(each) for each in ("client_id", "failover_reconnect") if each in details}
        client = self.new_client(**details)
        answers = client.connect(name, **connection)
        assert [type(each) for each in answers] == [Response], answers
        if session:
            client.open_session()
        return client

    def waiting(self, destination: Destination) -> list[str]:
        """Return the texts that a new consumer of a queue would get, by browsing it."""
        client = self.client("onlooker")
        found = texts(client.consume(destination, browser=True, prefetch_size=1000))
        client.session.lost()
        assert found.pop() is None
        return [str(each) for each in found]
