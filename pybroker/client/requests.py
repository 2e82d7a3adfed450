"""What is asked of the broker, and what waits for its answer.

A request goes to the broker at once, if there is one. What has to be done sooner or later waits here for its answer,
and is asked for again on the next broker, with the same number; what only matters to the present one is told to it, or
not at all.
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
    Commit,
    Conversation,
    RemoveDurable,
    RemoveProducer,
    RemoveTemporary,
    Request,
    Rollback,
    Send,
    Unsubscribe,
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
from pybroker.client.tickets import Ticket

_ASKED_ONCE: Final = (Unsubscribe, RemoveProducer, RemoveTemporary, Rollback, Acknowledge)
"""What a break carries out by itself, or makes void."""

_NO_SUBSCRIPTION: Final = "No durable subscription exists"
"""How ActiveMQ and pybroker begin to refuse to delete a subscription that there is not, over both protocols."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opening:
    """Something that lasts, and how it is asked for."""

    request: Request
    ticket: Ticket[None]


class Requests:
    """One connection's requests. Not thread-safe.

    Attributes:
        is_open: a broker takes requests at the moment.
        error: why none ever will again; None while one may.
    """

    def __init__(self, *, refused: Callable[[Request, ClientError], None], tracked_bytes_max: int = 0) -> None:
        """Begin without a broker.

        Args:
            refused: is told of each request that fails.
            tracked_bytes_max: how much of the sends without answer is kept, to be sent again.
        """
        self.is_open = False
        self.error: ClientError | None = None
        self._tell_refused = refused
        self._conversation: Conversation | None = None
        self._numbers = count(FIRST_NUMBER)
        self._unanswered: dict[int, Ticket[None]] = {}
        self._unwritten: list[Ticket[None]] = []  # commits whose bytes the transport has not got yet
        self._tracked = _Tracked(tracked_bytes_max)

    # ------------------------------------------------------------ asking

    def number(self) -> int:
        """Return the next request's number."""
        return next(self._numbers)

    def ask(self, request: Request, *, answer: bool = True) -> Ticket[None]:
        """Ask for something now, or as soon as there is a broker; what needs no answer is done when it is sent."""
        ticket: Ticket[None] = Ticket(self.number(), request, answer=answer)
        if self.error is not None:
            ticket.resolve(error=self.error)
            return ticket
        self._unanswered[ticket.number] = ticket
        if self.is_open:
            self._transmit(ticket)
        return ticket

    def put(self, request: Request, number: int) -> None:
        """Ask the present broker for something, if there is one, without an answer.

        Raises:
            UnsendableMessage, FrameTooLarge: as `Conversation.request`.
        """
        if self._conversation is not None and self.is_open:
            self._conversation.request(request, number, answer=False)

    def tell(self, request: Request) -> None:
        """Do the same, and log what goes wrong."""
        try:
            self.put(request, self.number())
        except (FrameTooLarge, UnsendableMessage) as error:
            _log.warning("%s cannot be sent: %s", type(request).__name__, error)

    def acknowledge(self, request: Acknowledge, *, answer: bool) -> Ticket[None] | None:
        """Acknowledge messages that the present broker has delivered; the ticket is there if it shall answer."""
        if answer and self.is_open:
            return self.ask(request)
        self.tell(request)
        return None

    def _transmit(self, ticket: Ticket[None]) -> None:
        conversation, request = self._conversation, ticket.request
        assert conversation is not None, "only while it is open"
        assert request is not None, "a ticket to be sent is one request's"
        try:
            conversation.request(request, ticket.number, answer=ticket.answer)
        except ClientError as error:
            self.resolve(ticket.number, error)
            return
        ticket.is_sent = True
        if not ticket.answer:
            if isinstance(request, Send):
                self._tracked.add(request)
            self.resolve(ticket.number)
        elif isinstance(request, Commit):
            self._unwritten.append(ticket)

    def written(self) -> None:
        """Note that the transport has all bytes of what was asked so far."""
        self._unwritten.clear()

    def may_be_done(self, ticket: Ticket[None]) -> bool:
        """Check whether the present broker may have received a commit: its bytes went to the transport."""
        return ticket.is_sent and ticket not in self._unwritten

    # ------------------------------------------------------------ answers

    def resolve(self, number: int, error: ClientError | None = None) -> None:
        """Take the answer to a request."""
        ticket = self._unanswered.pop(number, None)
        if ticket is None:
            return
        if ticket.is_repeated and isinstance(ticket.request, RemoveDurable) and str(error).startswith(_NO_SUBSCRIPTION):
            error = None  # it is gone: most likely deleted by the first of the two requests
        if error is not None and ticket.request is not None:
            self._tell_refused(ticket.request, error)
        ticket.resolve(error=error)

    def pending(self, number: int) -> Ticket[None] | None:
        """Return what waits for the answer to a request; None if nothing does."""
        return self._unanswered.get(number)

    # ------------------------------------------------------------ brokers come and go

    def attach(self, conversation: Conversation) -> None:
        """Have another broker, which takes requests once `is_open` is set."""
        self._conversation = conversation

    def interrupted(self) -> None:
        """Note that the broker is gone: what a break carries out is done, and a commit that was sent is in doubt."""
        self._conversation, self.is_open = None, False
        for ticket in list(self._unanswered.values()):
            if isinstance(ticket.request, _ASKED_ONCE):
                self.resolve(ticket.number)
            elif isinstance(ticket.request, Commit) and self.may_be_done(ticket):
                doubt = "the connection broke before the commit was answered: it may be done, or not"
                self.resolve(ticket.number, TransactionInDoubt(doubt))
        self._unwritten.clear()

    def fail(self, error: ClientError) -> None:
        """Give up for good: everybody who waits gets that error."""
        self.error = error
        for number in list(self._unanswered):
            self.resolve(number, error)

    def reopen(self, opening: Opening) -> int:
        """Ask for something that lasts again, and return its number; who waits for the first answer gets this one."""
        if opening.ticket.is_done:
            ticket: Ticket[None] = Ticket(self.number(), opening.request)
            self._unanswered[ticket.number] = opening.ticket = ticket
            ticket.watch(lambda: self._not_restored(opening.request, ticket.error))
        self._transmit(opening.ticket)
        return opening.ticket.number

    def _not_restored(self, request: Request, error: ClientError | None) -> None:
        if error is not None and self.error is None and not isinstance(error, ConnectionClosed | Timeout):
            _log.error("not restored after the connection broke: %s: %s", request, error)

    def waiting(self) -> list[Ticket[None]]:
        """Return what waits for an answer, in its order."""
        return list(self._unanswered.values())

    def repeat(self, waiting: list[Ticket[None]]) -> None:
        """Send again what is tracked, and those."""
        for request in self._tracked:
            self.tell(request)
        for ticket in waiting:
            if not ticket.is_done:
                ticket.is_repeated = ticket.is_sent
                self._transmit(ticket)


class _Tracked:
    """Sends without answer that may have been lost: the latest, up to a number of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._sends: deque[tuple[Send, int]] = deque()

    def add(self, request: Send) -> None:
        """Remember one, and forget the oldest beyond the limit."""
        if not self._bytes_max:
            return
        size = _size(request.message.body)
        self._sends.append((request, size))
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._bytes -= self._sends.popleft()[1]

    def __iter__(self) -> Iterator[Send]:
        return iter([request for request, _ in self._sends])


def _size(body: Body) -> int:
    """Return about how many bytes a message counts for: ActiveMQ's overhead, and its body's."""
    content = body if isinstance(body, str | bytes) else repr(body)
    return 1024 + len(content)
