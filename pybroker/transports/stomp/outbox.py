"""The order of a connection's frames: a RECEIPT comes before the MESSAGEs that its own frame causes.

ActiveMQ answers first, and simple clients take the next frame for the receipt that they wait for. So a receipt gets a
slot when its frame is carried out, and MESSAGEs that the core delivers before it is due, because it waits for the disk,
queue up behind it. Above a limit the core is paused. Queued messages count as written only after they are.

A message whose body takes long to render has a slot too. Its rendering is started when the slot is the first of the
queue and the peer has read what was written before, so a connection has one such body in memory, and later messages
wait behind it.
"""

from collections import deque
from collections.abc import Callable, Sequence

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


class MessageSlot:
    """The position of a MESSAGE in the output that is rendered later.

    Attributes:
        recipient: its subscription.
        settles: the delivery that is acknowledged once the frame has left; None for none.
        start: starts the rendering.
        is_started: True after `start` was called.
        pieces: the frame; None until it is rendered. Empty: it cannot be rendered.
    """

    __slots__ = ("is_started", "pieces", "recipient", "settles", "start")

    def __init__(self, recipient: Recipient, settles: Delivery | None, start: "Callable[[MessageSlot], None]") -> None:
        self.recipient = recipient
        self.settles = settles
        self.start = start
        self.is_started = False
        self.pieces: tuple[bytes, ...] | None = None


class Outbox:
    """The queue of a connection's frames.

    Attributes:
        sent: by subscription in mode auto, the last delivery written and not yet acknowledged.
    """

    __slots__ = ("_flow", "_queue", "_slot_count", "_waiting_bytes", "_write", "_write_pieces", "sent")

    def __init__(
        self, write: Callable[[bytes], None], write_pieces: Callable[[Sequence[bytes]], None], flow: Flow
    ) -> None:
        """Create an empty outbox.

        Args:
            write: sends a frame.
            write_pieces: sends a frame that is in pieces.
            flow: is paused while too many wait.
        """
        self._write = write
        self._write_pieces = write_pieces
        self._flow = flow
        self._waiting_bytes = 0
        self._slot_count = 0
        self._queue: deque[ReceiptSlot | MessageSlot | tuple[bytes, Recipient, Delivery | None]] = deque()
        self.sent: dict[Recipient, Delivery] = {}

    def clear(self) -> None:
        """Drop all frames, as the connection has ended."""
        self._queue.clear()
        self._waiting_bytes = self._slot_count = 0
        self.sent = {}

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
        self.advance()

    def reserve_message(
        self, recipient: Recipient, settles: Delivery | None, start: Callable[[MessageSlot], None]
    ) -> None:
        """Queue a slot for a MESSAGE; `start` begins to render it, and `complete` ends that."""
        if recipient.closed:  # a slot would be dropped at once, and have the core deliver the next one within this call
            return
        self._queue.append(MessageSlot(recipient, settles, start))
        self._slot_count += 1
        self._flow.pause(BackpressureReason.RENDERING)
        self.advance()

    def complete(self, slot: MessageSlot, pieces: tuple[bytes, ...]) -> None:
        """Write a MESSAGE that is rendered (empty: it cannot be), and what is behind it."""
        slot.pieces = pieces
        self.advance()

    def advance(self) -> None:
        """Write what need not wait. Called when the peer has read what was written, too."""
        queue = self._queue
        while queue:
            head = queue[0]
            if isinstance(head, ReceiptSlot):
                if head.frame is None:
                    break
                queue.popleft()
                if head.frame:
                    self._write(head.frame)
            elif isinstance(head, MessageSlot):
                if not self._has_ended(head):
                    break
                if queue and queue[0] is head:  # else it was completed, and written, while it was started
                    queue.popleft()
                    self._slot_count -= 1
                    self._write_slot(head)
            else:
                queue.popleft()
                self._waiting_bytes -= len(head[0])
                self._write_message(*head)
        if self._waiting_bytes <= WAITING_BYTES_MAX:
            self._flow.resume(BackpressureReason.RECEIPT)
        if not self._slot_count:
            self._flow.resume(BackpressureReason.RENDERING)

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

    def _has_ended(self, slot: MessageSlot) -> bool:
        """Start to render a message, unless it waits for the peer; return True if that is done or of no use."""
        if slot.recipient.closed:
            return True
        if not slot.is_started and self._flow.is_link_free:
            slot.is_started = True
            slot.start(slot)
        return slot.pieces is not None

    def _write_slot(self, slot: MessageSlot) -> None:
        if slot.recipient.closed or not slot.pieces:
            return
        if slot.settles is not None:
            self.sent[slot.recipient] = slot.settles
        self._write_pieces(slot.pieces)  # not joined, which would copy a long body
