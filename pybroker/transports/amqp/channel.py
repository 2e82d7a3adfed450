"""An AMQP session: its windows, its links, and the transfers that wait for the client's window.

Both sides count transfers. The client sends as many as the broker's window has room for, and the broker opens it again
at half; the broker sends as many as the client's has room for. When that closes, the core delivers nothing more to the
connection, and then, after its present call, nothing to the links of this session. What it has delivered before waits
here: at most what it delivers in one call.

Source: AMQP 1.0, 2.5 "Sessions", 2.6 "Links".
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Final

from pybroker.broker.domain.amqp.frames import encode_disposition, encode_flow, encode_transfer
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpAttach,
    AmqpBegin,
    AmqpDeliveryState,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpFlow,
    AmqpModified,
    AmqpRejected,
    AmqpReleased,
    AmqpTransactionalState,
    AmqpTransfer,
)
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import BrokerError, RequestError, UnknownTransaction
from pybroker.transports.amqp.answers import TransferAnswers
from pybroker.transports.amqp.attaching import attach_link
from pybroker.transports.amqp.incoming import IncomingLink
from pybroker.transports.amqp.links import AmqpLink, RefusedLink, detach
from pybroker.transports.amqp.outgoing import OutgoingLink
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.refusals import (
    HANDLE_IN_USE,
    RESOURCE_LIMIT,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LinkRefused,
    SessionRefused,
    error_condition,
)
from pybroker.transports.amqp.serial_numbers import add, distance, within
from pybroker.transports.amqp.transactions import (
    AmqpTransactions,
    OpenAmqpTransaction,
    SentDelivery,
    TransactedOutcome,
)

_log = logging.getLogger(__name__)

INCOMING_WINDOW: Final = 16383
OUTGOING_WINDOW: Final = (1 << 31) - 1
"""The windows of ActiveMQ's sessions."""

UNSETTLED_MAX: Final = 100_000
"""The deliveries that the client of a connection may leave unsettled, in some 50 MB."""

LINKS_MAX: Final = 4096
"""The links of all sessions of a connection, with those that the broker has refused."""

_TAG_BYTES: Final = 4

_HEAD_BYTES: Final = 64
"""The bytes of a transfer frame without its payload, at most."""

_ACCEPTED: Final = AmqpAccepted()
_link: Final = attrgetter("link")
_TERMINAL: Final = (AmqpAccepted, AmqpRejected, AmqpReleased, AmqpModified)


class _PartialTransfer:
    """A message of which a part was sent.

    Attributes:
        link: its link.
        delivery: the core's.
        payload: the message.
        offset: the bytes that were sent.
    """

    __slots__ = ("delivery", "link", "offset", "payload")

    def __init__(self, link: OutgoingLink, delivery: Delivery, payload: bytes, offset: int) -> None:
        self.link = link
        self.delivery = delivery
        self.payload = payload
        self.offset = offset


class AmqpChannel:
    """One session.

    Attributes:
        number: its channel, for both sides.
        answers: those to the client's transfers.
        draining: the links that are to use up their credit, and for which messages may still come.
        is_suspended: True while its links have no credit in the core, because the client's window is closed.
        is_open: False once it has ended for the broker: what the client sends has no effect until its `end`.
    """

    __slots__ = (
        "_detaching", "_handle_max", "_incoming_window", "_links", "_next_delivery_id", "_next_incoming_id",
        "_next_outgoing_id", "_peer", "_remote_incoming_window", "_sent_links", "_transactions", "_unfinished",
        "_unsettled", "_waiting", "answers", "draining", "is_open", "is_suspended", "number",
    )  # fmt: skip

    def __init__(self, number: int, begin: AmqpBegin, peer: AmqpPeer, transactions: AmqpTransactions) -> None:
        """Begin, and answer.

        Args:
            number: its channel.
            begin: the client's.
            peer: the client's end.
            transactions: those of the connection.
        """
        self.number = number
        self._peer = peer
        self._transactions = transactions
        self._links: dict[int, AmqpLink] = {}
        self._next_incoming_id = begin.next_outgoing_id
        self._incoming_window = INCOMING_WINDOW
        self._next_outgoing_id = 0
        self._remote_incoming_window = begin.incoming_window
        self._next_delivery_id = 0
        self._handle_max = peer.limits.handles - 1
        if begin.handle_max is not None:
            self._handle_max = min(self._handle_max, begin.handle_max)
        self._unsettled: dict[int, SentDelivery] = {}
        self._waiting: deque[tuple[OutgoingLink, Delivery]] = deque()
        self._unfinished: _PartialTransfer | None = None
        self._detaching = 0
        """The detaches of the client that are not answered yet."""
        self._sent_links: dict[OutgoingLink, None] = {}
        """The links with deliveries that are settled once their bytes have left the process."""
        self.answers = TransferAnswers(peer.connection, self._dispose_accepted)
        self.draining: dict[OutgoingLink, None] = {}
        self.is_open = True
        self.is_suspended = False
        self.send(
            AmqpBegin(
                remote_channel=number,
                next_outgoing_id=0,
                incoming_window=INCOMING_WINDOW,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=peer.limits.handles - 1,
            )
        )

    # ------------------------------------------------------------ frames of the client

    def transfer(self, transfer: AmqpTransfer, payload: bytes) -> None:
        """Carry out a transfer. Raises `SessionRefused`; an error of a link ends only that."""
        if not self.is_open:
            return
        self._next_incoming_id = add(self._next_incoming_id, 1)
        self._incoming_window -= 1
        if self._incoming_window < 0:
            raise SessionRefused("A transfer beyond the session's window", WINDOW_VIOLATION)
        link = self._find(transfer.handle)
        try:
            link.transfer(transfer, payload)
        except LinkRefused as error:
            self.refuse_link(link, error)
            link = self._links.get(transfer.handle, link)
        if isinstance(link, RefusedLink):
            self._doom(transfer)
        if self._incoming_window <= INCOMING_WINDOW // 2:
            self._incoming_window = INCOMING_WINDOW
            self.send_session_flow()

    def _doom(self, transfer: AmqpTransfer) -> None:
        """Have the transaction fail of a transfer that is dropped: one that is settled has no other answer."""
        state = transfer.state
        if transfer.settled and isinstance(state, AmqpTransactionalState):
            try:
                transaction_id = self._transactions.find(state.txn_id).transaction_id
                self._peer.connection.doom(transaction_id, "a message of it came on a link that has ended")
            except UnknownTransaction:
                _log.debug("a message of an unknown transaction is dropped")

    def flow(self, flow: AmqpFlow) -> None:
        """Carry out a flow: of the session, and of a link if it names one. Raises as `transfer`."""
        if not self.is_open:
            return
        next_incoming_id = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        # Not the distance to the window's end: a window may be wider than half of all numbers.
        self._remote_incoming_window = flow.incoming_window - distance(next_incoming_id, self._next_outgoing_id)
        if flow.handle is not None:
            link = self._find(flow.handle)
            try:
                link.flow(flow)
            except LinkRefused as error:
                self.refuse_link(link, error)
        elif flow.echo:
            self.send_session_flow()
        self.pump()

    def disposition(self, disposition: AmqpDisposition) -> None:
        """Carry out the outcomes of deliveries to the client; what it says of its own has no effect.

        Raises:
            RequestError: its transaction is not open, or accepts nothing.
        """
        if not self.is_open or not disposition.role:
            return
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        state, is_settled = disposition.state, bool(disposition.settled)
        if not is_settled and not isinstance(state, (*_TERMINAL, AmqpTransactionalState)):
            return  # before the search, as any number of these change nothing
        EFFORT.is_large |= last != first  # all unsettled deliveries may have to be looked at
        if last == first:  # as receivers with little to do send it
            sent = self._unsettled.get(first)
            found = [] if sent is None else [sent]
        else:
            numbers = within(first, last, self._unsettled, self._unsettled, len(self._unsettled))
            found = [self._unsettled[number] for number in numbers]
        if isinstance(state, AmqpTransactionalState):
            self._settle_in(self._transactions.find(state.txn_id), found, state, is_settled=is_settled)
            return
        for each in found:
            self._forget(each)
        outcome = state if isinstance(state, _TERMINAL) else None
        if len(found) == 1 and found[0].transaction is None:
            found[0].link.settle([found[0].delivery], outcome)
        else:
            for link, group in groupby([each for each in found if each.transaction is None], key=_link):
                link.settle([each.delivery for each in group], outcome)
        for each in found:
            if each.transaction is not None:  # only settled by this: the transaction has its outcome
                each.transaction.note_settled(each)
        if not is_settled:
            answer = AmqpDisposition(role=False, first=first, last=disposition.last, settled=True, state=state)
            self._peer.connection.when_durable(partial(self.send, answer))

    def attach(self, attach: AmqpAttach) -> None:
        """Attach a link, and answer. Raises `SessionRefused`."""
        if not self.is_open:
            return
        if attach.handle > self._handle_max:
            raise SessionRefused(f"The handle {attach.handle}, where {self._handle_max} is the largest", HANDLE_IN_USE)
        if attach.handle in self._links:
            raise SessionRefused(f"The handle {attach.handle} is in use", HANDLE_IN_USE)
        if self._peer.link_count >= LINKS_MAX:
            raise SessionRefused(f"The connection has {LINKS_MAX} links already", RESOURCE_LIMIT)
        self._peer.link_count += 1
        # Until the link is there: what fails leaves this one, for which the client's detach comes.
        self._links[attach.handle] = RefusedLink(attach.handle, attach.name)
        attach_link(self, self._peer, self._transactions, attach)

    def detach(self, performative: AmqpDetach) -> None:
        """End a link as the client asks, and answer once that is durable. Raises `SessionRefused`."""
        if not self.is_open:
            return
        link = self._find(performative.handle)
        del self._links[performative.handle]
        self._peer.link_count -= 1
        if isinstance(link, RefusedLink):
            return
        is_closed = bool(performative.closed)
        link.end(is_closed=is_closed)
        self.pump()
        self._detaching += 1
        answer = partial(self._answer_detach, detach(link.handle, is_closed=is_closed))
        connection = self._peer.connection
        connection.when_carried_out(partial(connection.when_durable, answer))

    def _answer_detach(self, answer: AmqpDetach) -> None:
        self._detaching -= 1
        self.send(answer)

    def when_detached(self, callback: Callable[[], None]) -> None:
        """Call back once all detaches of the client are answered: it may use their handles again before that."""
        if self._detaching:
            self._peer.connection.when_durable(callback)
        else:
            callback()

    def end(self) -> None:
        """End as the client asks, and answer once that is carried out."""
        if self.is_open:
            self.close()
            connection = self._peer.connection
            connection.when_carried_out(partial(self._peer.send, self.number, AmqpEnd()))

    # ------------------------------------------------------------ links

    def put(self, link: AmqpLink) -> None:
        """Add a link, in the place of the one that `attach` has put there."""
        self._links[link.handle] = link

    def refuse_link(self, link: AmqpLink, error: BrokerError) -> None:
        """End a link with an error; do nothing if it has ended."""
        if not self.is_open or self._links.get(link.handle) is not link:
            return
        _log.info("%s: the link %r ends: %s", self._peer.connection.connection_id, link.name[:100], error)
        self._links[link.handle] = RefusedLink(link.handle, link.name)
        link.end(is_closed=False)
        self.pump()
        self.send(detach(link.handle, is_closed=True, error=error))

    def transaction_of(self, state: AmqpDeliveryState) -> OpenAmqpTransaction | None:
        """Return the transaction of a transfer.

        Raises:
            UnknownTransaction: it is not open.
        """
        return self._transactions.find(state.txn_id) if isinstance(state, AmqpTransactionalState) else None

    def _find(self, handle: int) -> AmqpLink:
        link = self._links.get(handle)
        if link is None:
            raise SessionRefused(f"The handle {handle} is not attached", UNATTACHED_HANDLE)
        return link

    # ------------------------------------------------------------ deliveries to the client

    def deliver(self, link: OutgoingLink, delivery: Delivery) -> None:
        """Send a delivery of the core, or have it wait for the client's window."""
        if link.is_closed:  # its consumer closes later, behind other work, and then gives it back
            return
        if self._waiting or self._unfinished is not None or not self._has_room:
            link.waiting += 1
            self._waiting.append((link, delivery))
            self._hold()
        else:
            self._transfer(link, delivery)

    @property
    def _has_room(self) -> bool:
        """True if the client's window is open, and it does not leave too many deliveries unsettled."""
        return self._remote_incoming_window > 0 and self._peer.unsettled_count < UNSETTLED_MAX

    def pump(self) -> None:
        """Send what waits, as far as the client's window allows, and have the core deliver again if all was sent."""
        while not self._peer.is_slow and self._has_room:
            if self._unfinished is not None:
                self._continue(self._unfinished)
            elif self._waiting:
                link, delivery = self._waiting.popleft()
                link.waiting -= 1
                if not link.is_closed:
                    self._transfer(link, delivery)
            else:
                self._resume()
                for draining in list(self.draining):
                    draining.finish_drain()
                return

    def _hold(self) -> None:
        """Have the core deliver nothing to the connection, and soon nothing to the links of this session only."""
        self._peer.hold(self)
        if not self.is_suspended:
            self._peer.wake(0.0)

    def suspend(self) -> None:
        """Take the credit of this session's links from the core, so that other sessions do not wait for this one."""
        if self.is_suspended or self._has_room:
            return
        self.is_suspended = True
        self._peer.suspended[self] = None
        for link in self._links.values():
            if isinstance(link, OutgoingLink):
                link.consumer.pull(0)
        self._peer.resume(self)

    def _resume(self) -> None:
        """Have the core deliver again."""
        self._peer.suspended.pop(self, None)
        was_suspended, self.is_suspended = self.is_suspended, False
        self._peer.resume(self)
        if was_suspended:
            for link in list(self._links.values()):
                if isinstance(link, OutgoingLink):
                    link.pull()

    def _transfer(self, link: OutgoingLink, delivery: Delivery) -> None:
        peer = self._peer
        try:
            payload, message_format = peer.writer.render(delivery.message, delivery.redelivery_count)
            limit = link.message_bytes_max
            if limit is not None and len(payload) > limit:
                raise RequestError(f"it takes {len(payload)} bytes, and the client accepts {limit}")
        except Exception as error:  # of any kind, it concerns this message: only that is used here
            link.give_up(delivery, error)
            return
        delivery_id = self._next_delivery_id
        self._next_delivery_id = add(delivery_id, 1)
        link.delivery_count = add(link.delivery_count, 1)
        if link.credit:
            link.credit -= 1
        is_settled = link.is_presettled
        if not is_settled and not link.is_counted:
            sent = SentDelivery(delivery_id, link, delivery)
            self._unsettled[delivery_id] = link.unsettled[delivery_id] = sent
            peer.unsettled_count += 1
        room = peer.frame_bytes_max - _HEAD_BYTES
        more = len(payload) > room
        self._write(
            encode_transfer(
                self.number,
                link.handle,
                delivery_id,
                delivery_id.to_bytes(_TAG_BYTES, "big"),
                payload[:room] if more else payload,
                message_format=message_format,
                settled=is_settled,
                more=more,
            )
        )
        if more:
            self._continue(_PartialTransfer(link, delivery, payload, room))
        elif is_settled or link.is_counted:
            self._note_sent(link, delivery)

    def _continue(self, partial_transfer: _PartialTransfer) -> None:
        """Send the further transfers of a message, as far as the client's window allows."""
        payload, room = partial_transfer.payload, self._peer.frame_bytes_max - _HEAD_BYTES
        self._unfinished = partial_transfer
        while partial_transfer.offset < len(payload):
            if self._remote_incoming_window <= 0:
                return
            start = partial_transfer.offset
            partial_transfer.offset = end = start + room
            more = end < len(payload)
            handle = partial_transfer.link.handle
            self._write(
                encode_transfer(self.number, handle, None, None, payload[start:end], message_format=None, more=more)
            )
        self._unfinished = None
        if partial_transfer.link.is_presettled or partial_transfer.link.is_counted:
            self._note_sent(partial_transfer.link, partial_transfer.delivery)

    def _write(self, frame: bytes) -> None:
        """Send the frame of a transfer."""
        self._next_outgoing_id = add(self._next_outgoing_id, 1)
        self._remote_incoming_window -= 1
        if not self._has_room:
            self._hold()
        self._peer.write(frame)

    def _note_sent(self, link: OutgoingLink, delivery: Delivery) -> None:
        """Have a delivery settled once its bytes have left the process."""
        link.note_sent(delivery)
        self._sent_links[link] = None

    def forget(self, link: OutgoingLink) -> None:
        """Drop the deliveries of a link that has ended: what it has not settled is the core's again."""
        for delivery_id in link.unsettled:
            del self._unsettled[delivery_id]
        self._peer.unsettled_count -= len(link.unsettled)
        link.unsettled = {}
        self._sent_links.pop(link, None)
        self.draining.pop(link, None)
        if self._unfinished is not None and self._unfinished.link is link:
            self._unfinished = None
        if link.waiting:
            self._waiting = deque(each for each in self._waiting if each[0] is not link)
            link.waiting = 0

    def _forget(self, sent: SentDelivery) -> None:
        if self._unsettled.pop(sent.delivery_id, None) is not None:
            self._peer.unsettled_count -= 1
        if isinstance(sent.link, OutgoingLink):
            sent.link.unsettled.pop(sent.delivery_id, None)

    def _settle_in(
        self,
        transaction: OpenAmqpTransaction,
        found: list[SentDelivery],
        state: AmqpTransactionalState,
        *,
        is_settled: bool,
    ) -> None:
        """Make the outcomes of deliveries part of a transaction.

        Raises:
            RequestError: it accepts nothing.
        """
        outcome = state.outcome if isinstance(state.outcome, _TERMINAL) else _ACCEPTED
        for each in found:
            if not isinstance(each.link, OutgoingLink):
                continue
            if each.transaction is None:
                each.transaction = transaction
                try:
                    if isinstance(outcome, AmqpAccepted):
                        each.link.acknowledge_in(each)
                    else:
                        self._transactions.count_other(transaction)
                except RequestError:
                    each.transaction = None
                    raise
                settle = partial(self._settle_sent, each, outcome)
                transaction.outcomes[each] = TransactedOutcome(each, outcome, settle)
            if is_settled:
                self._forget(each)
                each.transaction.note_settled(each)

    def _settle_sent(self, sent: SentDelivery, outcome: AmqpDeliveryState) -> None:
        """Settle a delivery whose transaction was committed."""
        if sent.delivery_id in self._unsettled:
            self._forget(sent)
            self.send(AmqpDisposition(role=False, first=sent.delivery_id, settled=True, state=outcome))

    # ------------------------------------------------------------ to the client

    def send(self, performative: AmqpAttach | AmqpBegin | AmqpFlow | AmqpDisposition | AmqpDetach) -> None:
        """Send a frame of this session; do nothing once it has ended."""
        if self.is_open:
            self._peer.send(self.number, performative)

    def dispose(self, delivery_id: int, state: AmqpDeliveryState) -> None:
        """Settle a delivery of the client."""
        self.send(AmqpDisposition(role=True, first=delivery_id, settled=True, state=state))

    def _dispose_accepted(self, first: int, last: int) -> None:
        if self.is_open:
            last_or_none = None if last == first else last
            self._peer.write(
                encode_disposition(self.number, first, last_or_none, _ACCEPTED, is_receiver=True, settled=True)
            )

    def send_flow(self, handle: int, delivery_count: int, link_credit: int, *, drain: bool = False) -> None:
        """Send the state of a link, and of the session."""
        self._send_flow(handle, delivery_count, link_credit, drain=drain)

    def send_session_flow(self) -> None:
        """Send the state of the session."""
        self._send_flow(None, None, None, drain=False)

    def _send_flow(
        self, handle: int | None, delivery_count: int | None, link_credit: int | None, *, drain: bool
    ) -> None:
        if self.is_open:
            self._peer.write(
                encode_flow(
                    self.number,
                    self._next_incoming_id,
                    self._incoming_window,
                    self._next_outgoing_id,
                    OUTGOING_WINDOW,
                    handle,
                    delivery_count,
                    link_credit,
                    drain=drain,
                )
            )

    # ------------------------------------------------------------ turns, and the end

    def end_of_chunk(self) -> None:
        """Answer what was gathered from a chunk of input."""
        self.answers.flush()

    def written(self) -> None:
        """React to all output having left the process."""
        if self._sent_links:
            # A new dict, because acknowledging opens windows, and the core may deliver again before it returns.
            links, self._sent_links = self._sent_links, {}
            for link in links:
                link.written()
        if self._peer.is_held or self.is_suspended:
            self.pump()

    def on_timer(self) -> None:
        """Settle deliveries that could not be sent, and finish drains."""
        for link in list(self._links.values()):
            if isinstance(link, OutgoingLink):
                link.settle_unsent()
                link.finish_drain()

    def finish_deferred(self) -> None:
        """Send or refuse the messages that wait for space."""
        for link in list(self._links.values()):
            if isinstance(link, IncomingLink):
                link.finish_deferred()

    def refuse(self, error: BrokerError) -> None:
        """End the session with an error: the client's `end` follows."""
        _log.info("%s: a session ends: %s", self._peer.connection.connection_id, error)
        self.close()
        self._peer.send(self.number, AmqpEnd(error=error_condition(error)))

    def close(self) -> None:
        """End all links in the core. Nothing more is sent."""
        self.answers.flush()
        self.is_open = False
        for link in list(self._links.values()):
            link.end(is_closed=False)
        self._clear()
        self._peer.resume(self)

    def abandon(self) -> None:
        """Forget the links: the connection has ended, and the core closes what it has of them."""
        self.is_open = False
        for link in self._links.values():
            link.abandon()
        self._clear()

    def _clear(self) -> None:
        self._peer.link_count -= len(self._links)
        self._links = {}
        self._peer.unsettled_count -= len(self._unsettled)
        self._unsettled = {}
        self._waiting.clear()
        self._unfinished = None
        self._sent_links = {}
        self.draining = {}
        self._peer.suspended.pop(self, None)
        self.answers.close()
