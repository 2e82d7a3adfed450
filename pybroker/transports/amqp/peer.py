"""The client's end of an AMQP connection: writes frames, and pauses the core's deliveries while there is a reason."""

from collections.abc import Callable

from pybroker.broker.domain.amqp.frames import AmqpLimits, encode_frame
from pybroker.broker.domain.amqp.performatives import AmqpPerformative
from pybroker.broker.domain.ports import Clock, ConnectionPort
from pybroker.transports.amqp.inbound import AmqpTransformer
from pybroker.transports.amqp.outbound import TransferWriter


class AmqpPeer:
    """The client's end.

    Attributes:
        connection: the connection in the core.
        limits: the limits to what the client may have.
        writer: renders messages.
        frame_bytes_max: the largest frame that the client accepts.
        clock: milliseconds since the epoch.
        next_sequence: numbers messages in the broker.
        transformer: the form in which messages of the client are stored; see `inbound`.
        write: sends frames.
        wake: has `AmqpClient.on_timer` called in so many seconds, or sooner, outside of a delivery.
        has_login: its user is certain, so that it may not name one in its messages.
        partial_bytes: the bytes of messages of which only a part has come.
        link_count: the links of all sessions, with those that the broker has ended and the client has not detached.
        unsettled_count: the deliveries that the client has not settled.
        suspended: the sessions whose links have no credit in the core, because the client's window is closed.
        is_slow: True while the client reads too slowly.
    """

    __slots__ = (
        "_holds", "clock", "connection", "frame_bytes_max", "has_login", "is_slow", "limits", "link_count",
        "next_producer", "next_sequence", "partial_bytes", "suspended", "transformer", "unsettled_count", "wake",
        "write", "writer",
    )  # fmt: skip

    def __init__(
        self,
        *,
        connection: ConnectionPort,
        limits: AmqpLimits,
        writer: TransferWriter,
        frame_bytes_max: int,
        clock: Clock,
        next_sequence: Callable[[], int],
        transformer: AmqpTransformer,
        has_login: bool,
        write: Callable[[bytes], None],
        wake: Callable[[float], None],
    ) -> None:
        self.connection = connection
        self.limits = limits
        self.writer = writer
        self.frame_bytes_max = frame_bytes_max
        self.clock = clock
        self.next_sequence = next_sequence
        self.transformer = transformer
        self.has_login = has_login
        self.write = write
        self.wake = wake
        self.partial_bytes = 0
        self.link_count = 0
        self.unsettled_count = 0
        self.suspended: dict[object, None] = {}
        self.next_producer = 0
        self.is_slow = False
        self._holds: set[object] = set()

    def send(self, channel: int, performative: AmqpPerformative) -> None:
        """Send a frame without a payload."""
        self.write(encode_frame(channel, performative))

    def producer_value(self) -> int:
        """Return the number of a new producer of this connection, from 1."""
        self.next_producer += 1
        return self.next_producer

    @property
    def is_held(self) -> bool:
        """True while the core delivers nothing, for whatever reason."""
        return bool(self._holds)

    def hold(self, reason: object) -> None:
        """Pause the core's deliveries until `resume` is called for this reason, too."""
        self._holds.add(reason)
        self.connection.pause()

    def resume(self, reason: object) -> None:
        """Remove a reason, if it is there. The core may deliver, and be paused again, before this returns."""
        if reason in self._holds:
            self._holds.remove(reason)
            if not self._holds:
                self.connection.resume()

    def release_references(self) -> None:
        """Break reference cycles, so that the memory of an ended connection is freed without a garbage collection."""
        self.write = self.wake = _ignore  # nothing is sent any more
        self._holds = set()
        self.suspended = {}


def _ignore(*_: object) -> None:
    """Do nothing."""
