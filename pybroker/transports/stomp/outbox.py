"""The order of a connection's frames: a RECEIPT comes before the MESSAGEs that its own frame causes.

ActiveMQ answers first, and simple clients take the next frame for the receipt that they wait for. So a receipt gets a
slot when its frame is carried out, and MESSAGEs that the core delivers before it is due, because it waits for the disk,
queue up behind it. Above a limit the core is paused. Queued messages count as written only after they are.
"""

from collections import deque
from collections.abc import Callable

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.ports import ConsumerPort
from pybroker.transports.stomp.flow import BackpressureReason, Flow

WAITING_BYTES_MAX = 1 << 20
"""The limit to bytes behind receipts, above which deliveries pause: enough for a disk's latency at any prefetch."""


class Recipient:
    """A subscription, as the outbox sees it.

    Attributes:
        closed: True if it gets no more messages.
        consumer: the core's consumer, set right after the subscription.
    """

    __slots__ = ("closed", "consumer")

    consumer: ConsumerPort

    def __init__(self) -> None:
        self.closed = False


class ReceiptSlot:
    """The position of a receipt in the output; empty until the receipt is due."""

    __slots__ = ("frame",)

    def __init__(self) -> None:
        self.frame: bytes | None = None


class Outbox:
    """The queue of a connection's frames.

    Attributes:
        sent: by subscription in mode auto, the last delivery written and not yet acknowledged.
    """

    __slots__ = ("_flow", "_queue", "_waiting_bytes", "_write", "sent")

    def __init__(self, write: Callable[[bytes], None], flow: Flow) -> None:
        """Create an empty outbox; `write` sends frames, and `flow` is paused while too many wait."""
        self._write = write
        self._flow = flow
        self._waiting_bytes = 0
        self._queue: deque[ReceiptSlot | tuple[bytes, Recipient, Delivery | None]] = deque()
        self.sent: dict[Recipient, Delivery] = {}

    def take_sent(self) -> dict[Recipient, Delivery]:
        """Return and clear the deliveries to acknowledge."""
        sent = self.sent
        if sent:
            # A new dict, because acknowledging opens windows, and the core may deliver again before it returns.
            self.sent = {}
        return sent

    def reserve(self) -> ReceiptSlot:
        """Queue a slot for a receipt."""
        slot = ReceiptSlot()
        self._queue.append(slot)
        return slot

    def fill(self, slot: ReceiptSlot, frame: bytes) -> None:
        """Write a receipt that is due (empty: none), and the messages behind it."""
        slot.frame = frame
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
            self._flow.resume(BackpressureReason.RECEIPT)

    def message(self, frame: bytes, recipient: Recipient, settles: Delivery | None = None) -> None:
        """Write a MESSAGE, behind earlier receipts; `settles` is acknowledged once the frame has left."""
        if self._queue:
            self._queue.append((frame, recipient, settles))
            self._waiting_bytes += len(frame)
            if self._waiting_bytes > WAITING_BYTES_MAX:
                self._flow.pause(BackpressureReason.RECEIPT)
        else:
            self._write_message(frame, recipient, settles)

    def _write_message(self, frame: bytes, recipient: Recipient, settles: Delivery | None) -> None:
        if recipient.closed:  # the message is back in its queue
            return
        if settles is not None:
            self.sent[recipient] = settles
        self._write(frame)
