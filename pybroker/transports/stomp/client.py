"""The commands of a connected STOMP client: SEND, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, BEGIN, COMMIT and ABORT.

Each command calls the core and sends a RECEIPT if the client requested one. The receipt of a durable change waits for
the disk; a receipt of SUBSCRIBE precedes the first MESSAGE. Source: STOMP 1.2; ActiveMQ 5.17 for texts of errors.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import RequestError, unexpected
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import Clock, ConnectionPort
from pybroker.broker.domain.space import DeferredSendsPort, SpaceAwaited
from pybroker.broker.domain.stomp.codec import encode_frame
from pybroker.broker.domain.stomp.errors import StompRequestError
from pybroker.broker.domain.stomp.frames import ESCAPERS, Command, Frame, StompLimits, Version, shortened
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.broker.domain.transaction import TransactionId
from pybroker.transports.stomp.acknowledgements import Taken, parse_ack_id
from pybroker.transports.stomp.destinations import DestinationNames
from pybroker.transports.stomp.flow import Flow
from pybroker.transports.stomp.mapping import LargeMessage, MessageReader, MessageWriter
from pybroker.transports.stomp.outbox import Outbox, ReceiptSlot
from pybroker.transports.stomp.subscriptions import StompAckMode, StompSubscription, consumer_request

_log = logging.getLogger(__name__)

NAME_MAX: Final = 1024
"""The characters of a subscription's id, and of a transaction's name, which are kept while these are open."""

_PREFIX_MAX: Final = 20
"""The characters of a prefix such as /queue/ at most, with a comma and a blank."""


@dataclass(slots=True)
class _OpenTransaction:
    """An open transaction: the core's id, and the deliveries acknowledged in it."""

    transaction_id: TransactionId
    acknowledged: dict[StompSubscription, Taken] = field(default_factory=dict[StompSubscription, Taken])

    def add(self, subscription: StompSubscription, taken: Taken) -> None:
        """Add acknowledged deliveries."""
        if (earlier := self.acknowledged.setdefault(subscription, taken)) is not taken:
            earlier.add(taken)

    def putting_back(self) -> Iterator[int]:
        """Return the steps that have the client acknowledge the deliveries again."""
        for subscription, taken in self.acknowledged.items():
            if not subscription.closed:
                yield from subscription.putting_back(taken)


class StompClient:
    """The subscriptions and transactions of a connected STOMP client.

    Attributes:
        handlers: the handler of each command; raises `RequestError` for an ERROR.
    """

    def __init__(
        self,
        *,
        connection: ConnectionPort,
        version: Version,
        limits: StompLimits,
        clock: Clock,
        next_sequence: Callable[[], int],
        write: Callable[[bytes], None],
        write_pieces: Callable[[Sequence[bytes]], None],
        flow: Flow,
        refuse: Callable[[RequestError, str | None], None],
        in_thread: Callable[[Callable[[], None], Callable[[], None]], None],
    ) -> None:
        """Create a client without subscriptions and transactions.

        Args:
            connection: the core's.
            version: of STOMP.
            limits: to what the peer may have.
            clock: milliseconds since the epoch.
            next_sequence: numbers messages.
            write: sends frames.
            write_pieces: sends a frame that is in pieces.
            flow: is paused while too many of them wait.
            refuse: sends the ERROR of a SEND that has waited, with its receipt.
            in_thread: runs a function in a thread, then another one here.
        """
        self._in_thread = in_thread
        self._refuse = refuse
        self._deferred: dict[Destination, DeferredSendsPort] = {}
        self._connection = connection
        self._persistency = connection.persistency
        self._version = version
        self._escape = ESCAPERS[version]
        self._limits = limits
        self._write = write
        self._names = DestinationNames(connection, temporaries_max=limits.temporary_destinations)
        self._reader = MessageReader(connection.connection_id, self._names, clock, next_sequence)
        self._subscription_count = 0
        self._subscriptions: dict[int, StompSubscription] = {}
        self._by_client_id: dict[str, StompSubscription] = {}
        self._transactions: dict[str, _OpenTransaction] = {}
        self._outbox = Outbox(write, write_pieces, flow)
        self._slot: ReceiptSlot | None = None
        self._unwritable: list[tuple[StompSubscription, Delivery, str]] = []
        commands: Mapping[Command, Callable[[Frame], None]] = {
            Command.SEND: self._send,
            Command.SUBSCRIBE: self._subscribe,
            Command.UNSUBSCRIBE: self._unsubscribe,
            Command.ACK: self._ack,
            Command.NACK: self._nack,
            Command.BEGIN: self._begin,
            Command.COMMIT: self._commit,
            Command.ABORT: self._abort,
        }
        self.handlers: Mapping[Command, Callable[[Frame], None]] = {
            command: partial(self._carry_out, handler) for command, handler in commands.items()
        }

    def acknowledge_sent(self) -> None:
        """Acknowledge the deliveries in mode auto whose bytes have left the process."""
        sent = self._outbox.take_sent()
        self._give_up_unwritable()
        for subscription, delivery in sent.items():
            subscription.consumer.acknowledge_through(delivery)

    def prepare(self, frame: Frame) -> LargeMessage | None:
        """Return the message of a SEND with a long body, to be built in a thread; None if it cannot be."""
        try:
            return self._reader.prepare(frame.headers, frame.body, self._transaction_id(frame.headers))
        except RequestError:
            return None  # the SEND finds that again, and answers

    def use(self, message: LargeMessage) -> None:
        """Take the message of the next SEND, which is the one that it was built for."""
        self._reader.large = message

    def resume_rendering(self) -> None:
        """Render a long body that has waited until the peer had read what was written before."""
        self._outbox.advance()

    def close(self) -> None:
        """Close subscriptions and connection; unacknowledged messages go back to the core. Harmless when repeated."""
        self.end_deliveries()
        self._outbox.sent.clear()
        self._connection.close()

    def end_deliveries(self) -> None:
        """Write no more messages; receipts that are due do not wait for any."""
        for subscription in self._subscriptions.values():
            subscription.closed = True
        self._outbox.advance()

    def release_references(self) -> None:
        """Break the reference cycles, so that the memory of an ended connection is freed without a garbage collection.

        Nothing is sent or received any more.
        """
        self._outbox.clear()
        self.handlers = {}
        self._unwritable = []
        self._subscriptions = {}
        self._by_client_id = {}
        self._transactions = {}

    # ------------------------------------------------------------ SEND

    def _send(self, frame: Frame) -> None:
        headers = frame.headers
        transaction = self._transaction_id(headers)
        receipt = headers.get("receipt")
        try:
            message = self._reader.read(headers, frame.body, transaction)
            if self._deferred and transaction is None and message.destination in self._deferred:
                self._defer(message, receipt, None)
                return
            try:
                self._connection.send(message, transaction, answered=receipt is not None)
            except SpaceAwaited as error:
                forget = partial(self._deferred.__delitem__, message.destination)
                self._deferred[message.destination] = self._connection.deferred_sends(forget)
                self._defer(message, receipt, error)
                return
        except RequestError as error:
            if transaction is not None and receipt is None:  # as in ActiveMQ: the commit must not lack it silently
                self._connection.doom(transaction, str(error))
            raise
        if receipt is not None:
            self._answer_send(message, transaction, receipt, self._slot)

    def _defer(self, message: Message, receipt: str | None, error: SpaceAwaited | None) -> None:
        """Have a message wait for space, behind others to its destination; messages to the client do not wait."""
        if self._slot is not None:
            self._outbox.fill(self._slot, b"")
        attempt = partial(self._send_deferred, message, receipt)
        self._deferred[message.destination].add(
            attempt, lambda refused: self._refuse(refused, receipt), message.size, error
        )

    def _send_deferred(self, message: Message, receipt: str | None) -> None:
        self._connection.send(message, answered=receipt is not None)
        if receipt is not None:
            self._answer_send(message, None, receipt, None)

    def finish_deferred(self) -> None:
        """Send or refuse the messages that wait for space, as the client leaves."""
        for deferred in list(self._deferred.values()):
            deferred.finish()

    def _answer_send(
        self, message: Message, transaction: TransactionId | None, receipt: str, slot: ReceiptSlot | None
    ) -> None:
        if slot is not None and self._connection.is_short_of_space:
            # Messages must not wait behind this receipt: acknowledging them may free the space.
            self._outbox.fill(slot, b"")
            slot = None
        respond = partial(self._receipt, receipt, slot)
        if message.persistent if self._persistency is None else self._persistency:
            when = self._connection.when_confirmed if transaction is None else self._connection.when_durable
            respond = partial(when, respond)
        self._connection.when_accepted(respond)

    # ------------------------------------------------------------ SUBSCRIBE, UNSUBSCRIBE

    def _subscribe(self, frame: Frame) -> None:
        headers = frame.headers
        request = self._request(headers)
        subscription = self._new_subscription(headers, request)
        subscription.consumer = self._connection.subscribe(
            request, subscription.deliver, subscription.browsed if request.browser else None
        )
        self._admit(subscription)
        receipt = headers.get("receipt")
        if receipt is None:
            subscription.start()
        elif request.subscription_name is None:
            self._receipt_now(headers)
            subscription.start()
        else:
            self._receipt_when_durable(headers)
            self._connection.when_durable(subscription.start)

    def _request(self, headers: Mapping[str, str]) -> ConsumerRequest:
        """Return the request of a SUBSCRIBE frame.

        Raises:
            StompRequestError: a header is missing or not supported.
        """
        if self._version is not Version.V1_0 and "id" not in headers:
            raise StompRequestError(
                "SUBSCRIBE received without a subscription id!",
                "Since STOMP 1.1 SUBSCRIBE needs an id header, unique in the connection.",
            )
        if len(headers.get("id", "")) > NAME_MAX:
            raise StompRequestError("The subscription id is too long", f"Choose one of {NAME_MAX} characters at most.")
        if not headers.get("destination", "").strip():
            raise StompRequestError(
                "Invalid empty or 'null' Destination header", "Write for example destination:/queue/ORDERS."
            )
        if self._version is Version.V1_0 and headers.get("browser") == "true":
            raise StompRequestError(
                "Queue Browser feature only valid for Stomp v1.1+ clients!", "Connect with accept-version:1.1 or 1.2."
            )
        if len(self._subscriptions) >= self._limits.subscriptions:
            raise StompRequestError(
                f"A connection may have {self._limits.subscriptions} subscriptions",
                "End some of them, or subscribe to a wildcard such as /queue/ORDERS.>.",
            )
        text = headers["destination"]
        request = consumer_request(headers, self._names.parse(text), self._version)
        if len(text) > NAME_MAX + sum(_PREFIX_MAX + len(each.name) for each in request.destinations):
            raise StompRequestError("The destination's options are too long", f"Leave {NAME_MAX} characters at most.")
        if request.subscription_name is not None and request.destination.is_queue:
            raise StompRequestError(
                "Invalid Subscription: cannot durably subscribe to a Queue destination!",
                "A queue keeps its messages anyway; leave out activemq.subscriptionName, or subscribe to a topic.",
            )
        return request

    def _new_subscription(self, headers: Mapping[str, str], request: ConsumerRequest) -> StompSubscription:
        writer = MessageWriter(
            self._names,
            self._version,
            subscription_id=headers.get("id"),
            transformation=headers.get("transformation"),
            body_bytes_max=self._limits.body_bytes,
        )
        return StompSubscription(
            serial=self._subscription_count + 1,
            headers=headers,
            is_browser=request.browser,
            is_counted=request.is_counted,
            version=self._version,
            connection_id=self._connection.connection_id,
            writer=writer,
            outbox=self._outbox,
            unwritable=self._report_unwritable,
            in_thread=self._in_thread,
        )

    def _admit(self, subscription: StompSubscription) -> None:
        """Add a subscription; a second one with the same id takes the id over, and the first stays without."""
        self._subscription_count += 1
        self._subscriptions[subscription.serial] = subscription
        if subscription.client_id is not None:
            self._by_client_id[subscription.client_id] = subscription

    def _unsubscribe(self, frame: Frame) -> None:
        headers = frame.headers
        if self._version is not Version.V1_0 and "id" not in headers:
            raise StompRequestError(
                "UNSUBSCRIBE received without a subscription id!", "Give the id header that SUBSCRIBE was given."
            )
        if "id" not in headers and "destination" not in headers:
            raise StompRequestError(
                "Must specify the subscriptionId or the destination you are unsubscribing from",
                "Give the id or the destination header that SUBSCRIBE was given.",
            )
        durable_name = headers.get("activemq.subscriptionName")
        if durable_name is not None:
            # In 1.0 ActiveMQ uses the subscription's name as the client id here, so that removing works only where both
            # are the same. No client can rely on the failure.
            self._connection.unsubscribe(self._connection.client_id, durable_name)
            self._receipt_when_durable(headers)
            return
        subscription = self._subscription_to_end(headers)
        self._drop(subscription)
        subscription.close()
        self._receipt_when_carried_out(headers)

    def _subscription_to_end(self, headers: Mapping[str, str]) -> StompSubscription:
        if "id" in headers:
            found = self._by_client_id.get(headers["id"])
        else:
            destination = headers["destination"].strip()
            same = (each for each in self._subscriptions.values() if each.destination_text.strip() == destination)
            found = next(same, None)
        if found is None:
            raise StompRequestError(
                "No subscription matched.", "Give the id (1.0: or the destination) that SUBSCRIBE was given."
            )
        return found

    def _drop(self, subscription: StompSubscription) -> None:
        del self._subscriptions[subscription.serial]
        client_id = subscription.client_id
        if client_id is not None and self._by_client_id.get(client_id) is subscription:
            del self._by_client_id[client_id]

    # ------------------------------------------------------------ ACK, NACK

    def _ack(self, frame: Frame) -> None:
        headers = frame.headers
        transaction = self._transaction(headers)
        self._give_up_unwritable()
        try:
            found = self._find_delivery(Command.ACK, headers)
        except StompRequestError:
            if transaction is None or not self._is_acknowledged(transaction, headers):
                raise
            found = None
        if found is not None:
            subscription, serial = found
            try:
                taken = subscription.acknowledge(serial, transaction.transaction_id if transaction else None)
            except RequestError as error:
                if transaction is not None and "receipt" not in headers:  # the commit must not lack it silently
                    self._connection.doom(transaction.transaction_id, str(error))
                raise
            if taken is None:
                raise _unexpected(Command.ACK, headers)
            if transaction is not None:
                transaction.add(subscription, taken)
        self._receipt_when_durable(headers)

    def _is_acknowledged(self, transaction: _OpenTransaction, headers: Mapping[str, str]) -> bool:
        """Return True if an ACK repeats one that an earlier ACK of its transaction included, in mode client.

        By message id it may, in any order, as in ActiveMQ; in 1.2 an `ack` header counts once.
        """
        message_id = headers.get("message-id")
        if self._version is Version.V1_2 or message_id is None:
            return False
        client_id = headers.get("subscription")
        return any(
            taken.includes(message_id)
            for subscription, taken in transaction.acknowledged.items()
            if subscription.mode is StompAckMode.CLIENT and client_id in (None, subscription.client_id)
        )

    def _nack(self, frame: Frame) -> None:
        headers = frame.headers
        if self._version is Version.V1_0:
            raise StompRequestError(
                "NACK received but connection is in v1.0 mode.", "Connect with accept-version:1.1 or 1.2."
            )
        if self._transaction(headers) is not None:
            raise StompRequestError(
                f"Poison ack cannot be transacted: {headers['transaction']}",
                "NACK takes effect at once; leave out its transaction header.",
            )
        found = self._find_delivery(Command.NACK, headers)
        if found is not None:
            subscription, serial = found
            if subscription.is_browser:
                raise StompRequestError(
                    "Cannot Nack a message on a Queue Browser Subscription.",
                    "A browser consumes nothing: leave out NACK.",
                )
            if not subscription.reject(serial):
                raise _unexpected(Command.NACK, headers)
        self._receipt_when_durable(headers)

    def _find_delivery(self, command: Command, headers: Mapping[str, str]) -> tuple[StompSubscription, int] | None:
        """Return the subscription and delivery of an ACK or NACK; None for a subscription that has ended.

        Raises:
            StompRequestError: there is none.
        """
        if self._version is Version.V1_2:
            return self._find_by_ack_id(command, headers)
        message_id = headers.get("message-id")
        if message_id is None:
            raise StompRequestError(
                f"{command} received without a message-id to acknowledge!", "Give the MESSAGE's message-id header."
            )
        for subscription in self._subscriptions_meant(command, headers):
            serial = subscription.unacknowledged.serial_of(message_id)
            if serial is not None:
                return subscription, serial
        raise _unexpected(command, headers)

    def _find_by_ack_id(self, command: Command, headers: Mapping[str, str]) -> tuple[StompSubscription, int] | None:
        text = headers.get("id")
        if text is None:
            what = "a ack id for acknowledge!" if command is Command.ACK else "an ack header to acknowledge!"
            raise StompRequestError(
                f"{command} received without {what}",
                "In STOMP 1.2 the id header repeats the ack header of the MESSAGE.",
            )
        ack_id = parse_ack_id(text, self._connection.connection_id)
        if ack_id is None or not 0 < ack_id.subscription <= self._subscription_count:
            raise _unexpected(command, headers)
        subscription = self._subscriptions.get(ack_id.subscription)
        return None if subscription is None else (subscription, ack_id.delivery)

    def _subscriptions_meant(self, command: Command, headers: Mapping[str, str]) -> list[StompSubscription]:
        client_id = headers.get("subscription")
        if client_id is None and self._version is Version.V1_0:
            return list(self._subscriptions.values())
        if client_id is None:
            raise StompRequestError(
                f"{command} received without a subscription id for acknowledge!",
                "In STOMP 1.1 the subscription header repeats the MESSAGE's.",
            )
        subscription = self._by_client_id.get(client_id)
        return [] if subscription is None else [subscription]

    # ------------------------------------------------------------ transactions

    def _begin(self, frame: Frame) -> None:
        name = _transaction_name(frame.headers, "beginning")
        if len(name) > NAME_MAX:
            raise StompRequestError(f"A transaction name of {len(name)} characters", f"Choose one of {NAME_MAX}.")
        if name in self._transactions:
            raise StompRequestError(
                f"The transaction was already started: {shortened(name)}", "COMMIT or ABORT it first, or choose a name."
            )
        if len(self._transactions) >= self._limits.transactions:
            raise StompRequestError(
                f"A connection may have {self._limits.transactions} open transactions", "COMMIT or ABORT some of them."
            )
        self._transactions[name] = _OpenTransaction(self._connection.begin())
        self._receipt_now(frame.headers)

    def _commit(self, frame: Frame) -> None:
        transaction = self._end_transaction(frame.headers)
        try:
            self._connection.commit(transaction.transaction_id)
        except RequestError:  # it is rolled back
            self._connection.work_off(transaction.putting_back())
            raise
        self._receipt_when_durable(frame.headers)

    def _abort(self, frame: Frame) -> None:
        transaction = self._end_transaction(frame.headers)
        self._connection.rollback(transaction.transaction_id)
        self._connection.work_off(transaction.putting_back())
        self._receipt_when_carried_out(frame.headers)

    def _end_transaction(self, headers: Mapping[str, str]) -> _OpenTransaction:
        # "Committing" for ABORT, too: ActiveMQ's wording.
        name = _transaction_name(headers, "committing")
        transaction = self._transactions.pop(name, None)
        if transaction is None:
            raise _invalid_transaction(name)
        return transaction

    def _transaction(self, headers: Mapping[str, str]) -> _OpenTransaction | None:
        name = headers.get("transaction")
        if name is None:
            return None
        transaction = self._transactions.get(name)
        if transaction is None:
            raise _invalid_transaction(name)
        return transaction

    def _transaction_id(self, headers: Mapping[str, str]) -> TransactionId | None:
        transaction = self._transaction(headers)
        return None if transaction is None else transaction.transaction_id

    # ------------------------------------------------------------ answers

    def _carry_out(self, handler: Callable[[Frame], None], frame: Frame) -> None:
        """Run a command; messages that it causes for this client follow its receipt."""
        if not self._subscriptions or "receipt" not in frame.headers:
            handler(frame)
            return
        slot = self._slot = self._outbox.reserve()
        try:
            handler(frame)
        except BaseException:
            self._outbox.fill(slot, b"")  # an ERROR replaces the receipt
            raise
        finally:
            self._slot = None

    def _receipt_now(self, headers: Mapping[str, str]) -> None:
        receipt = headers.get("receipt")
        if receipt is not None:
            self._receipt(receipt, self._slot)

    def _receipt_when_carried_out(self, headers: Mapping[str, str]) -> None:
        receipt = headers.get("receipt")
        if receipt is not None:
            self._connection.when_carried_out(partial(self._receipt, receipt, self._slot))

    def _receipt_when_durable(self, headers: Mapping[str, str]) -> None:
        receipt = headers.get("receipt")
        if receipt is not None:
            self._connection.when_durable(partial(self._receipt, receipt, self._slot))

    def _receipt(self, receipt: str, slot: ReceiptSlot | None) -> None:
        frame = f"RECEIPT\nreceipt-id:{self._escape(receipt)}\n\n\0\n".encode()
        if slot is None:
            self._write(frame)
        else:
            self._outbox.fill(slot, frame)

    def _give_up_unwritable(self) -> None:
        """Reject messages that could not be rendered, before a cumulative acknowledgement would include them."""
        if self._unwritable:
            # Emptied first: a rejection opens the window, and the core may deliver the next such message at once.
            unwritable, self._unwritable = self._unwritable, []
            for subscription, delivery, cause in unwritable:
                subscription.give_up(delivery, cause)

    def _report_unwritable(self, subscription: StompSubscription, delivery: Delivery, error: Exception) -> None:
        """Send an ERROR for a message that cannot be rendered; it is rejected later, not during the dispatch."""
        message = delivery.message
        _log.error(
            "message %s of %s cannot be rendered: %s",
            message.message_id,
            message.destination,
            error,
            exc_info=unexpected(error),
        )
        cause = f"the message cannot be rendered for a STOMP client: {error}"
        self._unwritable.append((subscription, delivery, cause))
        headers = {"message": f"{message.message_id}: {cause}", "content-type": "text/plain"}
        self._write(encode_frame("ERROR", headers, b"", self._version))


def _transaction_name(headers: Mapping[str, str], doing: str) -> str:
    name = headers.get("transaction")
    if name is None:
        raise StompRequestError(
            f"Must specify the transaction you are {doing}", "Give a transaction header with the transaction's name."
        )
    return name


def _invalid_transaction(name: str) -> StompRequestError:
    return StompRequestError(
        f"Invalid transaction id: {shortened(name)}",
        "BEGIN it first; COMMIT, ABORT and the connection's end finish it.",
    )


def _unexpected(command: Command, headers: Mapping[str, str]) -> StompRequestError:
    # In 1.2 no message id is sent, and ActiveMQ writes null; programs may look for the sentence.
    message_id = headers.get("message-id", "null")
    name = headers.get("id", message_id)
    return StompRequestError(
        f"Unexpected {command} received for message-id [{shortened(message_id)}]",
        f"Nothing named {shortened(name)} waits for an acknowledgement: it was acknowledged before, "
        "is of a subscription in mode auto, or was never delivered on this connection.",
    )
