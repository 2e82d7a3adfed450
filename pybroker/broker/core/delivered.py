"""Delivered messages whose bodies leave memory: what a consumer holds and has not acknowledged, while memory is short.

A delivered message is needed again only if it is dead-lettered, shown to a browser, or delivered once more. What an
acknowledgement needs is its id. So if paging out what waits has left the broker above its watermark, each delivered
message is replaced by a `BodilessMessage`, provided that the store has it on disk and that its bytes have left the
process. Otherwise clients with wide windows, which acknowledge late or never, would take the whole memory, and the
producers of every queue would wait for them.

Consumers of topics that are not durable, and browsers, keep no deliveries; see `counting_consumer`.

The deliveries are looked through in pieces, in later turns of the event loop. The class `StoredSource` reads the body
of a message back if it is needed; see there.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from pybroker.broker.core.containment import contain
from pybroker.broker.core.paging import CLOCK_MASK, PIECE_MAX, PIECE_SECONDS, Paging
from pybroker.broker.core.reference import Reference
from pybroker.broker.domain.message import BodilessMessage, Message
from pybroker.broker.domain.openwire.heads import read_head
from pybroker.broker.domain.openwire.layout import BODY_AT
from pybroker.broker.domain.openwire.loose import MalformedOpenWire, Reader

BODY_BYTES_MIN: Final = 256
"""Shorter bodies stay in memory: the objects around them take several times as much."""

Bodiless = dict[str, BodilessMessage]
"""Messages without body by id, which the subscriptions that hold the same message share."""


class DeliveryHolder(Protocol):
    """Holds delivered messages: a consumer, or a transaction that acknowledged them."""

    def delivered(self) -> Iterator[Reference]:
        """Iterate over the messages that it holds and that have left the process; it may change during this."""
        ...


class DeliveredMessages:
    """The delivered messages of one broker, by their holders."""

    __slots__ = (
        "_bodiless",
        "_holders",
        "_is_running",
        "_left",
        "_paging",
        "_present",
        "_when_done",
    )

    def __init__(self, paging: Paging) -> None:
        """Begin without holders."""
        self._paging = paging
        self._holders: dict[DeliveryHolder, None] = {}
        self._is_running = False
        self._left: Iterator[DeliveryHolder] = iter(())
        self._present: Iterator[Reference] = iter(())
        """The rest of the deliveries of the holder whose turn it is."""
        self._bodiless: Bodiless = {}
        self._when_done: Callable[[], None] | None = None

    def add(self, holder: DeliveryHolder) -> None:
        """Add a holder."""
        self._holders[holder] = None

    def discard(self, holder: DeliveryHolder) -> None:
        """Remove a holder, if it is one."""
        self._holders.pop(holder, None)

    def page_out(self, when_done: Callable[[], None]) -> None:
        """Remove the bodies of delivered messages from memory, and call back after the last; if it runs, do nothing."""
        if not self._is_running:
            self._is_running = True
            self._left = iter(list(self._holders))
            self._when_done = when_done
            self._continue()

    def _continue(self) -> None:
        """Look through the next piece of the deliveries."""
        monotonic = self._paging.monotonic
        left, ends_at = PIECE_MAX, monotonic() + PIECE_SECONDS
        while self._advance():
            left -= 1
            if left <= 0 or (not left & CLOCK_MASK and monotonic() > ends_at):
                if self._paging.defer(self._continue):
                    return
                left = PIECE_MAX
        self._is_running = False
        self._bodiless = {}
        when_done, self._when_done = self._when_done, None
        if when_done is not None:
            when_done()

    def _advance(self) -> bool:
        """Look at one delivery, or go on to the next holder; return False after the last."""
        reference = next(self._present, None)
        if reference is not None:
            try:
                reference.source.drop_body(reference, self._bodiless)
            except Exception as error:  # this message stays in memory
                contain(error, "paging out a delivered message", reference.message)
            return True
        holder = next(self._left, None)
        if holder is None:
            return False
        self._present = holder.delivered()
        return True


def without_body(message: Message) -> BodilessMessage | None:
    """Return a message without its body; None if it has to stay as it is, or has no body already."""
    if len(message.data) < BODY_BYTES_MIN:
        return None
    try:
        message_id = read_head(Reader(message.data, BODY_AT)).message_id
    except MalformedOpenWire:  # stored by another broker; rare
        return None
    return BodilessMessage(message, -1 if message_id is None else message_id.broker_sequence_id)


def shared_without_body(message: Message, bodiless: Bodiless) -> BodilessMessage | None:
    """Return a message without its body, the same object for all subscriptions that hold the message."""
    found = bodiless.get(message.message_id)
    if found is not None and found.destination == message.destination and found.persistent == message.persistent:
        return found
    made = without_body(message)
    if made is not None:
        bodiless[message.message_id] = made
    return made
