"""Clients outside of the broker's processes: a producer, a consumer, over OpenWire or STOMP, with failover.

They speak through the client's own conversations, which do no I/O. When a connection breaks they go to the next broker
of their list, restore what they had, and send again what was not answered, with the same numbers.
"""

from functools import partial
from typing import TYPE_CHECKING

from pybroker.broker.domain.destination import Destination
from pybroker.client.conversation import (
    FIRST_NUMBER,
    AckMode,
    Acknowledge,
    AddProducer,
    Answered,
    Begin,
    Commit,
    Conversation,
    Delivered,
    Ended,
    Event,
    Login,
    LoginFailed,
    Opened,
    Request,
    Send,
    Subscribe,
)
from pybroker.client.errors import ClientError
from pybroker.client.messages import Message, Outgoing
from pybroker.client.openwire import OpenWireConversation
from pybroker.client.stomp import StompConversation
from tests.simulation.net import Link

if TYPE_CHECKING:
    from tests.simulation.cluster_scenario import ClusterScenario

PORTS = {"stomp": 61613, "openwire": 61616}
HANG_SECONDS = 0.15
"""Silence after which a client that waits for an answer takes its broker for dead: TCP says nothing of a frozen one."""


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
        self._conversation = OpenWireConversation() if self.protocol == "openwire" else StompConversation()
        connection_id = f"ID:{self.name}-1-1-1:1"
        login = Login(connection_id=connection_id, client_id=self.name, is_failover=True, is_again=self._is_again)
        self._conversation.open(login)
        self.flush()

    def on_data(self, link: Link, data: bytes) -> None:
        """Take what the broker says."""
        if link is not self._link or self._conversation is None:
            return
        self._heard_at = self.world.now
        for event in self._conversation.receive(data):
            self._take(event)
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

    def _take(self, event: Event) -> None:
        match event:
            case Opened():
                self.is_open = self._is_again = True
                self.world.say(self.name, "is connected")
                self.opened()
            case Answered(number=number, error=error):
                self.answered(number, error)
            case Delivered(message=message):
                self.delivered(message)
            case LoginFailed() | Ended():
                self.hang_up()
            case _:
                pass

    def request(self, request: Request, number: int, *, answer: bool = True) -> None:
        """Ask the broker for something."""
        assert self._conversation is not None
        self._conversation.request(request, number, answer=answer)

    def number(self) -> int:
        """Return a new number of a request."""
        self._number += 1
        return self._number

    # ------------------------------------------------------------ what they do

    @property
    def is_waiting(self) -> bool:
        """Tell whether the broker owes an answer."""
        return not self.is_open

    def opened(self) -> None:
        """Restore what there was."""

    def lost(self) -> None:
        """Forget what does not outlive a connection."""

    def answered(self, number: int, error: ClientError | None) -> None:
        """Take an answer."""

    def delivered(self, message: Message) -> None:
        """Take a message."""


class Producer(Client):
    """Sends to a queue, some messages at a time, alone or in transactions."""

    def __init__(self, scenario: "ClusterScenario", name: str, protocol: str, queue: Destination, count: int) -> None:
        self.queue = queue
        self.left = count
        self.window = scenario.world.random.choice((1, 3, 10))
        self.transacts = scenario.world.random.random() < 0.3
        self._sequence = 0
        self._unanswered: dict[int, Send] = {}
        self._transaction: tuple[int, list[str]] | None = None
        """Number of the commit, 0 before it is sent, and what is sent."""
        super().__init__(scenario, name, protocol)
        self.world.after(self.world.duration(0.002), self._go_on)

    @property
    def is_done(self) -> bool:
        """Tell whether everything was sent, and answered or given up."""
        return not self.left and not self._unanswered and self._transaction is None

    @property
    def is_waiting(self) -> bool:
        return not self.is_open or bool(self._unanswered) or self._transaction is not None

    def opened(self) -> None:
        self.request(AddProducer(producer=1), self.number(), answer=False)
        for number, send in self._unanswered.items():
            self.request(send, number)
        self.flush()

    def lost(self) -> None:
        self._transaction = None  # nobody knows, and it is not tried again: all of it is there, or nothing

    def answered(self, number: int, error: ClientError | None) -> None:
        if self._transaction is not None and number == self._transaction[0]:
            if error is None:
                self.scenario.checker.committed(self._transaction[1])
            self._transaction = None
        elif (send := self._unanswered.pop(number, None)) is not None:
            if error is None:
                self.scenario.checker.confirmed(str(send.message.body))
            else:
                self.scenario.checker.refused(str(send.message.body))

    def _go_on(self) -> None:
        if self.is_open and self._transaction is None:
            if self.transacts and not self._unanswered and self.world.random.random() < 0.5:
                self._send_transaction()
            while self.left and self._transaction is None and len(self._unanswered) < self.window:
                number = self.number()
                send = self._unanswered[number] = Send(message=self._message())
                self.request(send, number)
            self.flush()
        if self.left or self.is_waiting:
            self.world.after(self.world.duration(0.002), self._go_on)

    def _send_transaction(self) -> None:
        """Begin a transaction; what is to be sent in it follows, message by message."""
        if not (count := min(self.left, self.world.random.randint(1, 4))):
            return
        transaction = self.number()
        messages = [self._message(transaction) for _ in range(count)]
        bodies = [str(each.body) for each in messages]
        self.scenario.checker.transacted(bodies)
        self._transaction = 0, bodies
        self.request(Begin(transaction=transaction), self.number(), answer=False)
        self._transact(transaction, messages, bodies)

    def _transact(self, transaction: int, messages: list[Outgoing], bodies: list[str]) -> None:
        if self._transaction is None or self._transaction[1] is not bodies:
            return  # the connection broke
        if messages:
            self.request(Send(message=messages[0]), self.number(), answer=False)
            self.world.after(self.world.duration(0.001), partial(self._transact, transaction, messages[1:], bodies))
        else:
            self.scenario.checker.committing(bodies)
            number = self.number()
            self._transaction = number, bodies
            self.request(Commit(transaction=transaction), number)
        self.flush()

    def _message(self, transaction: int | None = None) -> Outgoing:
        self._sequence += 1
        self.left -= 1
        body = f"{self.name}-{self._sequence}-{'x' * self.world.random.choice((0, 0, 20, 2000))}"
        self.scenario.checker.sent(self.name, self._sequence, body)
        return Outgoing(producer=1, sequence=self._sequence, destination=self.queue, body=body, transaction=transaction)


class Consumer(Client):
    """Takes from a queue, and acknowledges each message some time later, alone."""

    def __init__(self, scenario: "ClusterScenario", name: str, protocol: str, queue: Destination) -> None:
        self.queue = queue
        self.prefetch = scenario.world.random.choice((1, 5, 100))
        self.is_alone = False
        """True: the queue has no other consumer."""
        self._acknowledged: dict[int, Message] = {}
        self._generation = 0
        super().__init__(scenario, name, protocol)

    @property
    def is_waiting(self) -> bool:
        return not self.is_open or bool(self._acknowledged)

    @property
    def is_at_former_master(self) -> bool:
        """Tell whether its broker has lost the lock, and may not know."""
        holder = self.scenario.locks.holder
        return self._link is not None and (holder is None or holder.process is not self._link.process)

    def opened(self) -> None:
        subscribe = Subscribe(consumer=1, destination=self.queue, ack=AckMode.INDIVIDUAL, prefetch=self.prefetch)
        self.request(subscribe, self.number(), answer=False)
        self.flush()

    def lost(self) -> None:
        self._generation += 1
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
        message = self._acknowledged.pop(number, None)
        if message is not None and error is None:
            self.scenario.checker.consumed(self, message.id)
