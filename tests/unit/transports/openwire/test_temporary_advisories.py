"""A Java client knows all temporary queues before it gets a request that may name one: in the order of its commands."""

from collections import deque
from collections.abc import Callable

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import Destination, DestinationType, queue, topic
from pybroker.broker.domain.openwire.commands import (
    ActiveMQMessage,
    ConnectionId,
    ConsumerId,
    ConsumerInfo,
    DestinationInfo,
    MessageDispatch,
    RemoveInfo,
    Response,
    SessionId,
    SessionInfo,
)
from pybroker.store.memory import MemoryStore
from pybroker.transports.openwire.session import Sessions
from tests.unit.transports.openwire.conversation import Clock, OpenWireClient

ADVISORIES = topic("ActiveMQ.Advisory.TempQueue,ActiveMQ.Advisory.TempTopic")
REQUESTS = queue("REQUESTS")
PREFETCH = 1000
"""Java's for its own consumer, which acknowledges three quarters of it at a time."""


class Broker:
    """A broker whose deferred pieces run one at a time, with a requester that has many temporary queues."""

    def __init__(self, count: int) -> None:
        self.deferred: deque[Callable[[], None]] = deque()
        self.core = BrokerCore("b1", store=MemoryStore(), clock=Clock(), defer=self.deferred.append)
        self.core.recover()
        self.sessions = Sessions()
        self.requester = self.client("requester")
        self.replies = [Destination(DestinationType.TEMP_QUEUE, f"{self.requester.id}:{n}") for n in range(count)]
        for name in self.replies:
            self.requester.request(self.create(name))

    def client(self, name: str) -> OpenWireClient:
        client = OpenWireClient(self.core, self.sessions)
        client.connect(name)
        client.open_session()
        return client

    def create(self, name: Destination) -> DestinationInfo:
        return DestinationInfo(
            command_id=self.requester.next_id(),
            connection_id=ConnectionId(self.requester.id),
            destination=name,
            operation_type=0,
        )

    def ask(self, reply_to: Destination) -> None:
        self.requester.send(REQUESTS, "request", reply_to=reply_to)


class Replier:
    """A Java client that replies: reads and acknowledges advisories, and notes in which order things come."""

    def __init__(self, broker: Broker, *, acknowledges: bool = True) -> None:
        self.broker = broker
        self.client = broker.client("replier")
        self.advisory_consumer = ConsumerId(self.client.id, -1, 1)
        self.known: set[str] = set()
        self.unknown: list[str] = []
        self.requests = 0
        self.answered: dict[int, int] = {}
        """The number of temporary queues that were known when a command was answered."""
        self._acknowledges = acknowledges
        self._unacknowledged: list[MessageDispatch] = []

    def listening(self, session: int = -1) -> ConsumerInfo:
        return ConsumerInfo(
            command_id=self.client.next_id(),
            response_required=True,
            consumer_id=ConsumerId(self.client.id, session, 1),
            destination=ADVISORIES,
            prefetch_size=PREFETCH,
            dispatch_async=True,
            no_local=True,
        )

    def serving(self, session: int = 2) -> tuple[SessionInfo, ConsumerInfo]:
        """Return what a session with a consumer of requests sends, one behind the other."""
        return (
            SessionInfo(command_id=self.client.next_id(), session_id=SessionId(self.client.id, session)),
            ConsumerInfo(
                command_id=self.client.next_id(),
                response_required=True,
                consumer_id=ConsumerId(self.client.id, session, 1),
                destination=REQUESTS,
                prefetch_size=10,
            ),
        )

    def run(self) -> None:
        """Read what comes, and run the broker's pieces, until there is neither."""
        self._read()
        while self.broker.deferred:
            self.broker.deferred.popleft()()
            self._read()

    def _read(self) -> None:
        for each in self.client.receive():
            if isinstance(each, Response):
                self.answered[each.correlation_id] = len(self.known)
            elif isinstance(each, MessageDispatch):
                self._dispatched(each)

    def _dispatched(self, dispatch: MessageDispatch) -> None:
        message = dispatch.message
        assert isinstance(message, ActiveMQMessage)
        if dispatch.consumer_id != self.advisory_consumer:
            self.requests += 1
            assert message.reply_to is not None
            if message.reply_to.name not in self.known:
                self.unknown.append(message.reply_to.name)
            return
        info = message.data_structure
        assert isinstance(info, DestinationInfo)
        assert info.destination is not None
        self.known.add(info.destination.name)
        self._unacknowledged.append(dispatch)
        if self._acknowledges and len(self._unacknowledged) >= PREFETCH * 3 // 4:
            acknowledged, self._unacknowledged = self._unacknowledged, []
            self.client.send_commands(self.client.acknowledgement(acknowledged))


@pytest.fixture(scope="module")
def count() -> int:
    """More temporary queues than are announced at once, and than the window of a Java client."""
    return 2_500


def test_request_comes_after_the_advisories_of_all_reply_queues(count: int) -> None:
    broker = Broker(count)
    for name in (broker.replies[0], broker.replies[-1]):
        broker.ask(name)
    replier = Replier(broker)
    listening = replier.listening()
    serving = replier.serving()
    replier.client.send_commands(listening, *serving)
    replier.run()
    assert (len(replier.known), replier.requests, replier.unknown) == (count, 2, [])
    assert replier.answered[listening.command_id] == count
    assert replier.answered[serving[1].command_id] == count


def test_earlier_consumer_gets_requests_after_the_advisories(count: int) -> None:
    broker = Broker(count)
    replier = Replier(broker)
    replier.client.send_commands(*replier.serving())
    replier.run()
    replier.client.send_commands(replier.listening())
    broker.ask(broker.replies[-1])
    late = Destination(DestinationType.TEMP_QUEUE, f"{broker.requester.id}:late")
    broker.requester.request(broker.create(late))
    broker.ask(late)
    assert replier.requests == 0
    replier.run()
    assert (len(replier.known), replier.requests, replier.unknown) == (count + 1, 2, [])
    broker.ask(broker.replies[0])
    replier.run()
    assert replier.requests == 3


def test_consumer_that_closes_in_between_holds_nothing_up(count: int) -> None:
    broker = Broker(count)
    broker.ask(broker.replies[-1])
    replier = Replier(broker)
    replier.client.send_commands(replier.listening(), *replier.serving())
    assert replier.requests == 0
    replier.client.send_commands(RemoveInfo(object_id=replier.advisory_consumer, last_delivered_sequence_id=-2))
    replier.run()
    assert replier.requests == 1
    assert len(replier.answered) == 2


def test_connection_that_closes_in_between_leaves_requests(count: int) -> None:
    broker = Broker(count)
    broker.ask(broker.replies[-1])
    replier = Replier(broker)
    replier.client.send_commands(replier.listening(), *replier.serving())
    replier.client.session.lost()
    while broker.deferred:
        broker.deferred.popleft()()
    assert len(broker.client("other").consume(REQUESTS)) == 1


def test_client_without_acknowledgements_holds_up_itself_alone(count: int) -> None:
    broker = Broker(count)
    broker.ask(broker.replies[-1])
    replier = Replier(broker, acknowledges=False)
    replier.client.send_commands(replier.listening(), *replier.serving())
    replier.run()
    assert (len(replier.known), replier.requests) == (PREFETCH, 0)
    replier.client.request(RemoveInfo(object_id=ConnectionId(replier.client.id), last_delivered_sequence_id=-2))
    replier.client.session.lost()
    other = broker.client("other")
    assert len(other.consume(REQUESTS)) == 1


def test_other_listeners_hold_nothing_up(count: int) -> None:
    broker = Broker(count)
    broker.ask(broker.replies[-1])
    replier = Replier(broker)
    replier.client.send_commands(replier.listening(session=1))
    replier.client.receive()
    assert broker.deferred
    [connection] = [each for each in broker.core.connections() if each.connection_id == replier.client.id]
    assert connection.first is None
