"""The requests of one connection, and the results that are pending.

A request is sent at once if there is a broker. Most requests are kept until the broker answers, and are sent again to
the next broker with the same number. A request that concerns only the present broker is sent to it once, or dropped.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from pybroker.client.conversation import (
    FIRST_NUMBER,
    Acknowledge,
    CommitTransaction,
    Conversation,
    Release,
    RemoveConsumer,
    RemoveDurable,
    RemoveProducer,
    Request,
    RollbackTransaction,
    SendMessage,
)
from pybroker.client.errors import (
    ClientError,
    ConnectionClosed,
    FrameTooLarge,
    Timeout,
    TransactionInDoubt,
    UnsendableMessage,
)
from pybroker.client.messages import Body
from pybroker.client.pending import PendingResult

_NOT_REPEATED: Final = (RemoveConsumer, RemoveProducer, RollbackTransaction, Acknowledge, Release)
"""Requests that the loss of the connection fulfils or makes void, and that are not sent to the next broker."""

_NO_SUBSCRIPTION: Final = "No durable subscription exists"
"""The beginning of the error for the deletion of an unknown durable subscription, in both brokers and protocols."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RestorableRequest:
    """A request for an object that exists until it is closed, with its last result. It is sent again to each broker."""

    request: Request
    pending: PendingResult[None]


class Requests:
    """The requests of one connection. Not thread-safe.

    Attributes:
        is_open: a broker accepts requests at present.
        error: the reason why the connection failed; None while a broker may accept requests again.
    """

    def __init__(self, *, on_refused: Callable[[Request, ClientError], None], tracked_bytes_max: int = 0) -> None:
        """Create an empty set of requests, without a broker.

        Args:
            on_refused: called with each request that fails, and its error.
            tracked_bytes_max: limit to the bytes of sends without an answer that are kept, to send them again.
        """
        self.is_open = False
        self.error: ClientError | None = None
        self._on_refused = on_refused
        self._conversation: Conversation | None = None
        self._numbers = count(FIRST_NUMBER)
        self._unanswered: dict[int, PendingResult[None]] = {}
        self._unwritten: list[PendingResult[None]] = []  # commits whose bytes the transport has not got yet
        self._tracked = _Tracked(tracked_bytes_max)

    # ------------------------------------------------------------ sending

    def number(self) -> int:
        """Return the number of the next request."""
        return next(self._numbers)

    def submit(self, request: Request, *, answer: bool = True) -> PendingResult[None]:
        """Send a request now, or when there is a broker. Without an answer it is done when it is sent."""
        pending: PendingResult[None] = PendingResult(self.number(), request, answer=answer)
        if self.error is not None:
            pending.complete(error=self.error)
            return pending
        self._unanswered[pending.number] = pending
        if self.is_open:
            self._transmit(pending)
        return pending

    def send_once(self, request: Request, number: int) -> None:
        """Send a request without an answer to the present broker; do nothing if there is none.

        Raises:
            UnsendableMessage, FrameTooLarge: as `Conversation.request`.
        """
        if self._conversation is not None and self.is_open:
            self._conversation.request(request, number, answer=False)

    def send_once_or_log(self, request: Request) -> None:
        """Send a request as `send_once` does, and log its error."""
        try:
            self.send_once(request, self.number())
        except (FrameTooLarge, UnsendableMessage) as error:
            _log.warning("%s cannot be sent: %s", type(request).__name__, error)

    def acknowledge(self, request: Acknowledge, *, answer: bool) -> PendingResult[None] | None:
        """Send an acknowledgement to the present broker; with an answer, return its result."""
        if answer and self.is_open:
            return self.submit(request)
        self.send_once_or_log(request)
        return None

    def _transmit(self, pending: PendingResult[None]) -> None:
        conversation, request = self._conversation, pending.request
        assert conversation is not None, "only while it is open"
        assert request is not None, "a result without a request is never sent"
        try:
            conversation.request(request, pending.number, answer=pending.answer)
        except ClientError as error:
            self.complete(pending.number, error)
            return
        pending.is_sent = True
        if not pending.answer:
            if isinstance(request, SendMessage):
                self._tracked.add(request)
            self.complete(pending.number)
        elif isinstance(request, CommitTransaction):
            self._unwritten.append(pending)

    def written(self) -> None:
        """Record that the transport has the bytes of all requests until now."""
        self._unwritten.clear()

    def may_have_been_received(self, pending: PendingResult[None]) -> bool:
        """Return True if the present broker may have received a commit: the transport has its bytes."""
        return pending.is_sent and pending not in self._unwritten

    # ------------------------------------------------------------ answers

    def complete(self, number: int, error: ClientError | None = None) -> None:
        """Complete a request; does nothing if it is complete."""
        pending = self._unanswered.pop(number, None)
        if pending is None:
            return
        if (
            pending.is_repeated
            and isinstance(pending.request, RemoveDurable)
            and str(error).startswith(_NO_SUBSCRIPTION)
        ):
            error = None  # most likely the first of the two requests deleted it
        if error is not None and pending.request is not None:
            self._on_refused(pending.request, error)
        pending.complete(error=error)

    def find(self, number: int) -> PendingResult[None] | None:
        """Return the result of a request; None if the request is complete."""
        return self._unanswered.get(number)

    # ------------------------------------------------------------ brokers come and go

    def attach(self, conversation: Conversation) -> None:
        """Use another broker, which accepts requests when `is_open` is set."""
        self._conversation = conversation

    def interrupted(self) -> None:
        """Handle the loss of the broker: complete requests that are not repeated; a sent commit is in doubt."""
        self._conversation, self.is_open = None, False
        for pending in list(self._unanswered.values()):
            if isinstance(pending.request, _NOT_REPEATED):
                self.complete(pending.number)
            elif isinstance(pending.request, CommitTransaction) and self.may_have_been_received(pending):
                doubt = "the connection broke before the commit was answered: it may be done, or not"
                self.complete(pending.number, TransactionInDoubt(doubt))
        self._unwritten.clear()

    def fail(self, error: ClientError) -> None:
        """Complete all requests, also later ones, with an error: the connection has failed."""
        self.error = error
        for number in list(self._unanswered):
            self.complete(number, error)

    def restore(self, restorable: RestorableRequest) -> int:
        """Send a restorable request to a new broker, and return its number.

        If the first result is still pending, the new answer completes it.
        """
        if restorable.pending.is_done:
            pending: PendingResult[None] = PendingResult(self.number(), restorable.request)
            self._unanswered[pending.number] = restorable.pending = pending
            pending.add_done_callback(lambda: self._not_restored(restorable.request, pending.error))
        else:
            restorable.pending.request = restorable.request  # its prefetch may have changed
        self._transmit(restorable.pending)
        return restorable.pending.number

    def _not_restored(self, request: Request, error: ClientError | None) -> None:
        if error is not None and self.error is None and not isinstance(error, ConnectionClosed | Timeout):
            _log.error("not restored after the connection broke: %s: %s", request, error)

    def unanswered(self) -> list[PendingResult[None]]:
        """Return the pending results, in the order of the requests."""
        return list(self._unanswered.values())

    def resend(self, unanswered: list[PendingResult[None]]) -> None:
        """Send the tracked messages and the given requests again."""
        for request in self._tracked:
            self.send_once_or_log(request)
        for pending in unanswered:
            if not pending.is_done:
                pending.is_repeated = pending.is_sent
                self._transmit(pending)


class _Tracked:
    """The latest sends without an answer, up to a number of bytes: they may have been lost with the broker."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sends: deque[tuple[SendMessage, int]] = deque()

    def add(self, request: SendMessage) -> None:
        """Add a send, and remove the oldest ones above the limit."""
        if not self._bytes_max:
            return
        size = _size(request.message.body)
        self._sends.append((request, size))
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._bytes -= self._sends.popleft()[1]

    def __iter__(self) -> Iterator[SendMessage]:
        return iter([request for request, _ in self._sends])


def _size(body: Body) -> int:
    """Return the approximate bytes of a message: ActiveMQ's constant for the overhead, and the body."""
    content = body if isinstance(body, str | bytes) else repr(body)
    return 1024 + len(content)
