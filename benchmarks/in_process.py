"""A broker in the benchmark's own process, on a store in memory: its clients without sockets, its deferred work."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import process_time
from typing import Final

from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.core.connection import BrokerConnection
from pybroker.broker.core.consumer import BrokerConsumer
from pybroker.broker.core.policy import DestinationPolicy, PolicyMap
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.jobs import Job
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.commands import (
    ConnectionId,
    ConnectionInfo,
    DataStructure,
    SessionId,
    SessionInfo,
)
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.marshal.wireformat import Offer, agree, broker_offer, encode_offer
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.broker.domain.openwire.template import MessageTemplate
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.store.memory import MemoryStore
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from pybroker.transports.openwire.settings import OpenWireSettings

_START_MS: Final = 1_700_000_000_000
_BODY: Final = b"one of very many messages"


class Bench:
    """A broker in memory, whose deferred work runs when the row lets a turn pass."""

    peer = "127.0.0.1:50312"

    def __init__(self) -> None:
        self.now_ms = _START_MS
        self._deferred: deque[Callable[[], None]] = deque()
        self._connections = 0
        self._sequence = 0
        self._templates: dict[Destination, MessageTemplate] = {}
        self.store = MemoryStore()
        self.broker = self._start(DestinationPolicy())

    def restart(self, policy: DestinationPolicy) -> None:
        """Begin again with another default policy."""
        self.store = MemoryStore()
        self.broker = self._start(policy)

    def _start(self, policy: DestinationPolicy) -> BrokerCore:
        broker = BrokerCore(
            "bench",
            store=self.store,
            clock=lambda: self.now_ms,
            limits=Limits(destinations_max=10_000_000),
            policies=PolicyMap(default=policy),
            defer=self._deferred.append,
            monotonic=process_time,
        )
        broker.recover()
        return broker

    def connect(self) -> BrokerConnection:
        """Return a new connection."""
        self._connections += 1
        return self.broker.connect(f"ID:{self._connections}", f"client-{self._connections}", self)

    def pause_reading(self) -> None:
        """Do nothing: no producer of a benchmark is read from a socket."""

    def resume_reading(self) -> None:
        """Do nothing, as above."""

    def hold_input(self) -> None:
        """Do nothing, as above."""

    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None:
        """Do nothing, as above."""

    def message(
        self,
        destination: Destination,
        *,
        properties: Mapping[str, str] | None = None,
        **fields: object,
    ) -> Message:
        """Return a small message with the next sequence number."""
        template = self._templates.get(destination)
        if template is None:
            template = MessageTemplate(ProducerId("ID:producer", 1, 1), destination)
            self._templates[destination] = template
        self._sequence += 1
        return template.build(
            type=MessageType.TEXT,
            sequence=self._sequence,
            content=_BODY,
            properties=properties or {},
            persistent=True,
            timestamp=self.now_ms,
            broker_in_time=self.now_ms,
            **fields,  # type: ignore[arg-type]
        )

    def fill(self, sender: BrokerConnection, count: int, destination: Destination) -> None:
        """Send that many small messages to a destination."""
        for _ in range(count):
            sender.send(self.message(destination))

    def run_deferred(self) -> float:
        """Run what was deferred, piece after piece, and return the longest piece in seconds."""
        longest, deferred = 0.0, self._deferred
        while deferred:
            piece = deferred.popleft()
            begin = process_time()
            piece()
            longest = max(longest, process_time() - begin)
        return longest

    @property
    def has_deferred(self) -> bool:
        """True when work waits for the next turn."""
        return bool(self._deferred)


class Inbox:
    """A consumer that keeps its unacknowledged deliveries."""

    def __init__(self, connection: BrokerConnection, destination: Destination, **request: object) -> None:
        self.deliveries: list[Delivery] = []
        self.connection = connection
        wanted = ConsumerRequest(destination=destination, **request)  # type: ignore[arg-type]
        self.consumer: BrokerConsumer = connection.subscribe(wanted, self.deliveries.append)
        self.consumer.start()

    def acknowledge(self) -> None:
        """Acknowledge everything that has arrived."""
        deliveries = self.deliveries[:]
        self.deliveries.clear()
        for delivery in deliveries:
            self.consumer.acknowledge(delivery)


class KeptJobs:
    """A job store that keeps everything with the job."""

    unwritten_bytes = 0
    is_full = False

    def add(self, job: Job) -> None:
        """Do nothing: the scheduler has the job."""

    def remove(self, job: Job) -> None:
        """Do nothing, as above."""

    def load(self, job: Job) -> bytes:
        """Return the job's message."""
        assert job.data is not None
        return job.data

    def last_sequence(self, producer_id: str) -> int:
        """Return that the producer is not remembered."""
        return -1

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back at once."""
        callback()


class DroppingLink:
    """A link that drops its output, and the client at its other end."""

    peer = "127.0.0.1:50312"
    certificate: str | None = None
    ending = "closed by the client"
    reading_since: float | None = 0.0
    is_input_waiting = False

    def __init__(self, broker: BrokerCore) -> None:
        offer = Offer(
            version=12,
            stack_trace_enabled=False,
            tcp_no_delay_enabled=True,
            cache_enabled=False,
            cache_size=1024,
            tight_encoding_enabled=False,
            max_inactivity_ms=30_000,
            initial_delay_ms=10_000,
            frame_bytes_max=1 << 40,
            host="127.0.0.1",
            provider_name="ActiveMQ",
            provider_version="5.17.2",
            platform_details="Java",
        )
        settings = OpenWireSettings(offer=broker_offer(), broker_url="tcp://bench:61616", connected_brokers="")
        self.session = OpenWireSession(broker=broker, link=self, settings=settings, sessions=Sessions())
        self._wire = agree(offer, broker_offer()).wire_format()
        self.session.receive(encode_offer(offer))
        self.send(ConnectionInfo(command_id=1, connection_id=ConnectionId("ID:c"), client_id="c"))
        self.send(SessionInfo(command_id=2, session_id=SessionId("ID:c", 1)))

    def send(self, command: DataStructure) -> None:
        """Send a command to the session."""
        self.session.receive(self._wire.encode_frame(command))
        self.session.written()

    def write(self, data: bytes) -> None:
        """Drop bytes."""

    def close(self) -> None:
        """Do nothing."""

    def time(self) -> float:
        """Return a time that stands still."""
        return 0.0

    def wake_at(self, when: float | None) -> None:
        """Do nothing: no timer is due."""

    def pause_reading(self) -> None:
        """Do nothing: the row sends when it likes."""

    def resume_reading(self) -> None:
        """Do nothing, as above."""

    def hold_input(self) -> None:
        """Do nothing, as above."""

    def give_up(self, error: Exception) -> None:
        """Fail."""
        raise error

    def release_input(self) -> None:
        """Do nothing, as above."""

    def is_slice_over(self) -> bool:
        """Return False: a turn of the row is one command."""
        return False

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Do it at once."""
        work()
        done()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        """Drop a frame."""
        for piece in pieces:
            self.write(piece)

    def reserve_frame(self, size: int, received: int) -> None:
        """Do nothing: all frames are small."""

    def release_frame(self) -> None:
        """Do nothing, as above."""
