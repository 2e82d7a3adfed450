"""Clients outside of the broker's processes: a producer, a consumer, over OpenWire or STOMP, with failover.

They speak through the client's own conversations, which do no I/O. When a connection breaks they go to the next broker
of their list, restore what they had, and send again what was not answered, with the same numbers.
"""

import enum
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pybroker.broker.core.scheduled import DELAY
from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.openwire import commands as wire
from pybroker.broker.domain.openwire.commands import TransactionType
from pybroker.broker.domain.openwire.values import Long
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.client.conversation import (
    FIRST_NUMBER,
    AckMode,
    Acknowledge,
    AddConsumer,
    AddProducer,
    Answered,
    BeginTransaction,
    CommitTransaction,
    Conversation,
    Delivered,
    Ended,
    ErrorReported,
    Event,
    Login,
    LoginFailed,
    Opened,
    Request,
    SendMessage,
)
from pybroker.client.errors import ClientError
from pybroker.client.messages import Message, Outgoing
from pybroker.client.openwire import OpenWireConversation
from pybroker.client.stomp import StompConversation
from tests.simulation.net import Link
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster_scenario import ClusterScenario

PORTS = {"stomp": 61613, "openwire": 61616}
HANG_SECONDS = 0.15
"""Silence after which a client that waits for an answer considers its broker dead: TCP does not report a frozen one."""


class Client:
    """One connection after the other."""

    def __init__(self, scenario: "ClusterScenario", name: str, protocol: str) -> None:
        self.name = name
        self.protocol = protocol
        self.scenario = scenario
        self.world = scenario.world
        self.is_open = False
        self._link: Link | None = None
        self._conversation: Conversation | None = None
        self._next = self.world.random.randrange(10)
        self._number = FIRST_NUMBER
        self._connects = 0
        self._is_again = False
        self._heard_at = 0.0
        self._connect()
        self.world.after(HANG_SECONDS, self._watch)

    # ------------------------------------------------------------ connections

    def _connect(self) -> None:
        self._next += 1
        self._connects += 1
        hosts = self.scenario.hosts
        self._link = None
        self.scenario.net.connect(hosts[self._next % len(hosts)], PORTS[self.protocol], self)

    def on_connected(self, link: Link) -> None:
        """Log in."""
        self._link = link
        self._heard_at = self.world.now
        self._conversation = self.converse()
        connection_id = f"ID:{self.name}-1-1-1:1"
        login = Login(connection_id=connection_id, client_id=self.name, is_failover=True, is_again=self._is_again)
        self._conversation.open(login)
        self.flush()

    def on_data(self, link: Link, data: bytes) -> None:
        """Process what the broker sends."""
        if link is not self._link or self._conversation is None:
            return
        self._heard_at = self.world.now
        for event in self._conversation.receive(data):
            self._handle(event)
        self.flush()

    def on_lost(self, link: Link | None) -> None:
        """Go to the next broker."""
        if self._link not in (link, None):
            return
        self._link = self._conversation = None
        if self.is_open:
            self.is_open = False
            self.lost()
        self.scenario.net.try_again(self._connect)

    def hang_up(self) -> None:
        """Leave the broker."""
        if (link := self._link) is not None:
            link.hang_up()
            self.on_lost(link)

    def flush(self) -> None:
        """Send what is to be sent."""
        if self._conversation is not None and self._link is not None and (data := self._conversation.bytes_to_send()):
            self._link.send(data)

    def _watch(self) -> None:
        if self._link is not None and self.is_waiting and self.world.now - self._heard_at > HANG_SECONDS:
            self.hang_up()
        self.world.after(HANG_SECONDS / 2, self._watch)

    def _handle(self, event: Event) -> None:
        match event:
            case Opened():
                self.is_open = self._is_again = True
                self.world.record(self.name, "is connected")
                self.opened()
            case Answered(number=number, error=error):
                self.answered(number, error)
            case Delivered(message=message):
                self.delivered(message)
            case ErrorReported():
                self.refused_unanswered()
            case LoginFailed() | Ended():
                self.hang_up()
            case _:
                pass

    def converse(self) -> Conversation:
        """Return what is spoken on a new connection."""
        return OpenWireConversation() if self.protocol == "openwire" else StompConversation()

    def request(self, request: Request, number: int, *, answer: bool = True) -> None:
        """Send a request to the broker."""
        assert self._conversation is not None
        self._conversation.request(request, number, answer=answer)

    def number(self) -> int:
        """Return a new number of a request."""
        self._number += 1
        return self._number

    # ------------------------------------------------------------ what they do

    @property
    def is_waiting(self) -> bool:
        """True if the broker owes an answer."""
        return not self.is_open

    @property
    def is_done(self) -> bool:
        """True if there is nothing more to do, and nothing more to come of it."""
        return True

    def opened(self) -> None:
        """Restore what there was."""

    def lost(self) -> None:
        """Forget what does not outlive a connection."""

    def answered(self, number: int, error: ClientError | None) -> None:
        """Take an answer."""

    def refused_unanswered(self) -> None:
        """The broker refused a request that wanted no answer."""

    def delivered(self, message: Message) -> None:
        """Take a message."""


class Producer(Client):
    """Sends to one destination or several, some messages at a time, alone or in transactions.

    Some ask for the answer to the last of these messages only: it stands for those before it, unless the broker has
    reported an error, which may be of any of them.
    """

    def __init__(
        self, scenario: "ClusterScenario", name: str, protocol: str, to: tuple[Destination, ...], count: int
    ) -> None:
        self.destinations = to
        self.left = count
        self.window = scenario.world.random.choice((1, 3, 10))
        self.answers_last = scenario.world.random.random() < 0.3
        self.transacts = scenario.world.random.random() < 0.3
        self.schedules = scenario.schedules
        self._sequence = 0
        self._unanswered: dict[int, SendMessage] = {}
        self._has_error = False
        self._transaction: tuple[int, list[str]] | None = None
        """Number of the commit, 0 before it is sent, and what is sent."""
        super().__init__(scenario, name, protocol)
        self.world.after(self.world.duration(0.002), self._go_on)

    @property
    def is_done(self) -> bool:
        return not self.left and not self._unanswered and self._transaction is None

    @property
    def is_waiting(self) -> bool:
        return not self.is_open or bool(self._unanswered) or self._transaction is not None

    def opened(self) -> None:
        self._has_error = False
        self.request(AddProducer(producer=1), self.number(), answer=False)
        self._send_all(self._unanswered)
        self.flush()

    def lost(self) -> None:
        self._transaction = None  # no one knows, and it is not tried again: all of it is there, or nothing

    def answered(self, number: int, error: ClientError | None) -> None:
        if self._transaction is not None and number == self._transaction[0]:
            if error is None:
                self.scenario.checker.committed(self._transaction[1])
            self._transaction = None
        elif number in self._unanswered:
            for each in [each for each in self._unanswered if each == number or (self.answers_last and each < number)]:
                body = str(self._unanswered.pop(each).message.body)
                if error is None and (each == number or not self._has_error):
                    self.scenario.checker.confirmed(body)
                else:
                    self.scenario.checker.refused(body)
            self._has_error = self._has_error and bool(self._unanswered)

    def refused_unanswered(self) -> None:
        self._has_error = True

    def _go_on(self) -> None:
        if self.is_open and self._transaction is None:
            if self.transacts and not self._unanswered and self.world.random.random() < 0.5:
                self._send_transaction()
            sends: dict[int, SendMessage] = {}
            while self.left and self._transaction is None and len(self._unanswered) + len(sends) < self.window:
                sends[self.number()] = SendMessage(message=self._message())
            self._send_all(sends)
            self._unanswered |= sends
            self.flush()
        if self.left or self.is_waiting:
            self.world.after(self.world.duration(0.002), self._go_on)

    def _send_all(self, sends: dict[int, SendMessage]) -> None:
        for number, send in sends.items():
            self.request(send, number, answer=not self.answers_last or number == max(sends))

    def _send_transaction(self) -> None:
        """Begin a transaction; what is to be sent in it follows, message by message."""
        if not (count := min(self.left, self.world.random.randint(1, 4))):
            return
        transaction = self.number()
        messages = [self._message(transaction) for _ in range(count)]
        bodies = [str(each.body) for each in messages]
        self.scenario.checker.transacted(bodies)
        self._transaction = 0, bodies
        self.request(BeginTransaction(transaction=transaction), self.number(), answer=False)
        self._transact(transaction, messages, bodies)

    def _transact(self, transaction: int, messages: list[Outgoing], bodies: list[str]) -> None:
        if self._transaction is None or self._transaction[1] is not bodies:
            return  # the connection broke
        if messages:
            self.request(SendMessage(message=messages[0]), self.number(), answer=False)
            self.world.after(self.world.duration(0.001), partial(self._transact, transaction, messages[1:], bodies))
        else:
            self.scenario.checker.committing(bodies)
            number = self.number()
            self._transaction = number, bodies
            self.request(CommitTransaction(transaction=transaction), number)
        self.flush()

    def _message(self, transaction: int | None = None) -> Outgoing:
        self._sequence += 1
        self.left -= 1
        body = f"{self.name}-{self._sequence}-{'x' * self.world.random.choice((0, 0, 20, 2000))}"
        delay_ms = self.world.random.randint(1, 300) if self.schedules and self.world.random.random() < 0.5 else 0
        to = self.world.random.choice(self.destinations)
        self.scenario.checker.sent(self, self._sequence, to, body, delay_ms / 1000)
        return Outgoing(
            producer=1,
            sequence=self._sequence,
            destination=to,
            body=body,
            properties={DELAY: Long(delay_ms)} if delay_ms else {},
            transaction=transaction,
        )


class _XAConversation(OpenWireConversation):
    """OpenWire with XA branches, which our own client does not offer. A transaction is named by its branch."""

    def __init__(self) -> None:
        super().__init__()
        self.in_doubt: frozenset[XATransactionId] = frozenset()
        """Branches that the latest RECOVER found."""

    def transact(self, kind: TransactionType, branch: XATransactionId | None, number: int, *, answer: bool) -> None:
        """Request a step of a branch, or the branches that are in doubt."""
        connection_id = wire.ConnectionId(self._connection_id)
        info = wire.TransactionInfo(connection_id=connection_id, transaction_id=branch, type=kind)
        info.command_id, info.response_required = number, answer
        self._put(info)

    def send(self, message: Outgoing, branch: XATransactionId, number: int) -> None:
        """Send a message in a branch."""
        command = self._message(message)
        assert isinstance(command, wire.ActiveMQMessage)
        command.transaction_id, command.command_id = branch, number
        self._put(command)

    def _answered(self, number: int, response: wire.Response) -> Sequence[Event]:
        if isinstance(response, wire.DataArrayResponse):
            self.in_doubt = frozenset(each for each in response.data or () if isinstance(each, XATransactionId))
        return super()._answered(number, response)


class Stage(enum.Enum):
    """State of a branch, as far as its transaction manager knows."""

    BEGUN = enum.auto()
    PREPARING = enum.auto()
    PREPARED = enum.auto()
    COMMITTING = enum.auto()
    ROLLING_BACK = enum.auto()


class XAProducer(Producer):
    """Sends in XA branches, and is their transaction manager: after each loss it recovers those in doubt.

    What was prepared with an answer is in doubt until its outcome is sent, and then has that outcome, or is still in
    doubt. What was not is rolled back.
    """

    def __init__(self, *arguments: Any) -> None:
        self._stage: Stage | None = None
        self._branch = XATransactionId(0, b"", b"")
        self._bodies: list[str] = []
        self._asked = 0
        """Number of the request that is not answered; 0 when there is none."""
        self._requested = TransactionType.RECOVER
        """The requested step."""
        super().__init__(*arguments)
        self.schedules = False

    def converse(self) -> Conversation:
        return _XAConversation()

    @property
    def is_done(self) -> bool:
        return not self.left and self._stage is None

    @property
    def is_waiting(self) -> bool:
        return not self.is_open or bool(self._asked)

    def opened(self) -> None:
        self.request(AddProducer(producer=1), self.number(), answer=False)
        if self._stage is not None:
            self._request(TransactionType.RECOVER)
        self.flush()

    def lost(self) -> None:
        self._asked = 0
        if self._stage is Stage.BEGUN:
            self._stage = None

    def _go_on(self) -> None:
        if self.is_open and not self._asked:
            if self._stage is None and self.left:
                self._begin()
            elif self._stage is Stage.BEGUN:
                self._step(TransactionType.PREPARE, Stage.PREPARING)
            elif self._stage is Stage.PREPARED and self.world.random.random() < 0.3:
                self._step(TransactionType.ROLLBACK, Stage.ROLLING_BACK)
            elif self._stage is Stage.PREPARED:
                self.scenario.checker.committing(self._bodies)
                self._step(TransactionType.COMMIT_TWO_PHASE, Stage.COMMITTING)
            self.flush()
        if not self.is_done:
            self.world.after(self.world.duration(0.005), self._go_on)

    def _begin(self) -> None:
        conversation, number = cast("_XAConversation", self._conversation), self.number()
        self._branch = XATransactionId(1, b"%s-%d" % (self.name.encode(), number), b"b")
        messages = [self._message() for _ in range(min(self.left, self.world.random.randint(1, 4)))]
        self._bodies = [str(each.body) for each in messages]
        self.scenario.checker.transacted(self._bodies)
        self._stage = Stage.BEGUN
        conversation.transact(TransactionType.BEGIN, self._branch, number, answer=False)
        for message in messages:
            conversation.send(message, self._branch, self.number())
        conversation.transact(TransactionType.END, self._branch, self.number(), answer=False)

    def _step(self, kind: TransactionType, stage: Stage) -> None:
        self._stage = stage
        self._request(kind)

    def _request(self, kind: TransactionType) -> None:
        self._asked = self.number()
        self._requested = kind
        branch = None if kind is TransactionType.RECOVER else self._branch
        cast("_XAConversation", self._conversation).transact(kind, branch, self._asked, answer=True)

    def answered(self, number: int, error: ClientError | None) -> None:
        if number != self._asked:
            return
        self._asked = 0
        self.world.record(self.name, f"{self._branch} {self._requested.name}: {error or 'done'}")
        if error is not None:
            self.hang_up()
        elif self._requested is TransactionType.RECOVER:
            self._recovered(self._branch in cast("_XAConversation", self._conversation).in_doubt)
        elif self._stage is Stage.PREPARING:
            self._stage = Stage.PREPARED
        else:
            self._end()

    def _recovered(self, is_in_doubt: bool) -> None:
        """Go on with a branch after a loss."""
        if self._stage is Stage.PREPARED and not is_in_doubt and self.scenario.checker.is_wanted(self._bodies):
            raise Violation(f"{self.name} prepared {self._branch}, and that is not in doubt any more")
        if not is_in_doubt:
            self._end()
        elif self._stage is Stage.COMMITTING:
            self._request(TransactionType.COMMIT_TWO_PHASE)
        elif self._stage is not Stage.PREPARED:
            self._step(TransactionType.ROLLBACK, Stage.ROLLING_BACK)

    def _end(self) -> None:
        if self._stage is Stage.COMMITTING:
            self.scenario.checker.committed(self._bodies)
        self._stage = None


class Consumer(Client):
    """Takes from a queue or a durable subscription, and acknowledges each message some time later, alone."""

    def __init__(self, scenario: "ClusterScenario", name: str, protocol: str, source: Destination) -> None:
        self.destination = source
        self.reader = name if source.is_topic else str(source)
        """Name of the receiver: all consumers of a queue share its messages."""
        self.prefetch = scenario.world.random.choice((1, 5, 100))
        self.is_alone = False
        """True: there is no other consumer for this reader."""
        self._subscribing = 0
        self._acknowledged: dict[int, Message] = {}
        self._generation = 0
        super().__init__(scenario, name, protocol)

    @property
    def is_waiting(self) -> bool:
        return not self.is_open or bool(self._subscribing or self._acknowledged)

    @property
    def is_at_former_master(self) -> bool:
        """True if its broker has lost the lock, and may not know."""
        holder = self.scenario.locks.holder
        return self._link is not None and (holder is None or holder.process is not self._link.process)

    def opened(self) -> None:
        subscribe = AddConsumer(
            consumer=1,
            destination=self.destination,
            ack=AckMode.INDIVIDUAL,
            prefetch=self.prefetch,
            durable="d" if self.destination.is_topic else None,
        )
        self._subscribing = self.number()
        self.request(subscribe, self._subscribing)
        self.flush()

    def lost(self) -> None:
        self._generation += 1
        self._subscribing = 0
        self._acknowledged.clear()

    def delivered(self, message: Message) -> None:
        self.scenario.checker.delivered(self, message.id, str(message.read_body()), message.redelivery_count)
        self.world.after(self.world.duration(0.001), partial(self._acknowledge, message, self._generation))

    def _acknowledge(self, message: Message, generation: int) -> None:
        if generation != self._generation or not self.is_open:
            return
        number = self.number()
        self._acknowledged[number] = message
        self.request(Acknowledge(consumer=1, messages=[message], individually=True), number)
        self.flush()

    def answered(self, number: int, error: ClientError | None) -> None:
        if number == self._subscribing:
            self._subscribing = 0
            if error is None:
                self.scenario.checker.subscribed(self)
            else:
                self.hang_up()
            return
        message = self._acknowledged.pop(number, None)
        if message is not None and error is None:
            self.scenario.checker.consumed(self, message.id)
