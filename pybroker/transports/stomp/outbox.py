"""The order of a connection's frames: a RECEIPT comes before the MESSAGEs that its own frame causes.

ActiveMQ answers first, and simple clients take the next frame for the receipt they wait for. So a receipt takes its
place when its frame is carried out, and MESSAGEs that the core delivers before it is due, because it waits for the
disk, queue up behind it. When much queues the core is asked to pause. What queues counts as written only when it is.
"""

from collections import deque
from collections.abc import Callable

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.ports import ConsumerPort
from pybroker.transports.stomp.flow import BackpressureReason, Flow

WAITING_BYTES_MAX = 1 << 20
"""What may wait behind receipts before deliveries pause: a disk's latency is bridged, whatever the prefetch is."""


class Recipient:
    """What the outbox knows of a subscription.

    Attributes:
        closed: it gets nothing more.
        consumer: the core's side; set right after the core accepted it.
    """

    __slots__ = ("closed", "consumer")

    consumer: ConsumerPort

    def __init__(self) -> None:
        self.closed = False


class ReceiptSlot:
    """Where a receipt will stand; empty until it is due."""

    __slots__ = ("frame",)

    def __init__(self) -> None:
        self.frame: bytes | None = None


class Outbox:
    """Frames on their way out.

    Attributes:
        sent: per subscription in mode auto the last delivery whose frame was written, until it is settled.
    """

    __slots__ = ("_flow", "_queue", "_waiting_bytes", "_write", "sent")

    def __init__(self, write: Callable[[bytes], None], flow: Flow) -> None:
        """Begin empty; frames leave through `write`, and `flow` is told when too many cannot yet."""
        self._write = write
        self._flow = flow
        self._waiting_bytes = 0
        self._queue: deque[ReceiptSlot | tuple[bytes, Recipient, Delivery | None]] = deque()
        self.sent: dict[Recipient, Delivery] = {}

    def take_sent(self) -> dict[Recipient, Delivery]:
        """Return what was written since the last call and is to be settled, and begin anew."""
        sent = self.sent
        if sent:
            # A new one, because settling opens windows, and the core may deliver again before it returns.
            self.sent = {}
        return sent

    def reserve(self) -> ReceiptSlot:
        """Take the next place for a receipt."""
        place = ReceiptSlot()
        self._queue.append(place)
        return place

    def fill(self, place: ReceiptSlot, frame: bytes) -> None:
        """Write a receipt that is due, or nothing if there is none to write, and what it held up."""
        place.frame = frame
        queue = self._queue
        while queue:
            head = queue[0]
            if isinstance(head, ReceiptSlot):
                if head.frame is None:
                    break
                queue.popleft()
                if head.frame:
                    self._write(head.frame)
            else:
                queue.popleft()
                self._waiting_bytes -= len(head[0])
                self._write_message(*head)
        if self._waiting_bytes <= WAITING_BYTES_MAX:
            self._flow.clear(BackpressureReason.RECEIPT)

    def message(self, frame: bytes, recipient: Recipient, settles: Delivery | None = None) -> None:
        """Write a MESSAGE, behind the receipts before it; `settles` is settled once the frame has left."""
        if self._queue:
            self._queue.append((frame, recipient, settles))
            self._waiting_bytes += len(frame)
            if self._waiting_bytes > WAITING_BYTES_MAX:
                self._flow.jam(BackpressureReason.RECEIPT)
        else:
            self._write_message(frame, recipient, settles)

    def _write_message(self, frame: bytes, recipient: Recipient, settles: Delivery | None) -> None:
        if recipient.closed:  # in the meantime: the message is back in its queue
            return
        if settles is not None:
            self.sent[recipient] = settles
        self._write(frame)
