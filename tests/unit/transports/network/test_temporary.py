"""Temporary destinations over a duplex bridge: requests and replies, whichever broker has the requester."""

from typing import Any

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.destination import Destination, DestinationType, queue
from pybroker.broker.domain.openwire.commands import (
    ConnectionId,
    DestinationInfo,
    DestinationOperation,
    ExceptionResponse,
    MessageDispatch,
    Response,
)
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.network.test_recorded_duplex import RecordedAcceptor, RecordedInitiator
from tests.unit.transports.openwire.conversation import OpenWireClient, of_kind, texts

SERVICE = queue("SERVICE")


def reply_queue(client: OpenWireClient, kind: DestinationType = DestinationType.TEMP_QUEUE) -> Destination:
    """Create a temporary destination of a client."""
    return change(client, Destination(kind, f"{client.id}:1"), DestinationOperation.ADD)


def change(client: OpenWireClient, destination: Destination, operation: int) -> Destination:
    info = DestinationInfo(
        command_id=client.next_id(),
        response_required=True,
        connection_id=ConnectionId(client.id),
        destination=destination,
        operation_type=operation,
    )
    client.answer(info, Response)
    return destination


def got(client: OpenWireClient) -> list[str | None]:
    """Return the texts that a client has got, and acknowledge them."""
    dispatches = of_kind(client.receive(), MessageDispatch)
    for each in dispatches:
        client.ack([each])
    return texts(dispatches)


class Request:
    """A requester at one broker, and a replier at the other one."""

    def __init__(self, *, is_back: bool, kind: DestinationType = DestinationType.TEMP_QUEUE, **attributes: Any) -> None:
        self.brokers = TwoBrokers(name="nc", duplex=True, **attributes)
        both = (self.brokers.near.broker, self.brokers.far)
        self.here, self.there = both if is_back else both[::-1]
        self.requester = self.brokers.client(self.here, "requester")
        self.replier = self.brokers.client(self.there, "replier")
        self.replies = reply_queue(self.requester, kind)
        self.requester.consume(self.replies)
        self.brokers.pump()

    def has(self, broker: BrokerCore) -> bool:
        """Return True if a broker has the destination of the replies."""
        return broker.admin.exists(self.replies)


@pytest.mark.parametrize("kind", [DestinationType.TEMP_QUEUE, DestinationType.TEMP_TOPIC])
@pytest.mark.parametrize("is_back", [False, True])
def test_requester_gets_the_reply_of_the_other_broker(is_back: bool, kind: DestinationType) -> None:
    request = Request(is_back=is_back, kind=kind)
    request.replier.consume(SERVICE)
    request.brokers.pump()
    request.requester.send(SERVICE, "question", reply_to=request.replies)
    request.brokers.pump()
    (dispatch,) = of_kind(request.replier.receive(), MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.reply_to == request.replies
    request.replier.send(request.replies, "answer")
    request.brokers.pump()
    assert got(request.requester) == ["answer"]


@pytest.mark.parametrize("is_back", [False, True])
def test_deleted_temporary_queue_is_gone_at_both_brokers(is_back: bool) -> None:
    request = Request(is_back=is_back)
    assert request.has(request.there)
    request.requester.remove(request.requester.consumer())
    change(request.requester, request.replies, DestinationOperation.REMOVE)
    request.brokers.pump()
    assert not request.has(request.there)
    (refused,) = of_kind(request.replier.send(request.replies, "too late"), ExceptionResponse)
    assert refused.exception is not None
    assert refused.exception.class_name == "org.apache.activemq.DestinationDoesNotExistException"


@pytest.mark.parametrize("is_back", [False, True])
def test_temporary_queue_of_a_lost_requester_is_gone_at_both_brokers(is_back: bool) -> None:
    request = Request(is_back=is_back)
    request.requester.session.lost()
    request.brokers.pump()
    assert not request.has(request.here)
    assert not request.has(request.there)


@pytest.mark.parametrize("is_back", [False, True])
def test_temporary_queue_survives_the_loss_of_the_bridge(is_back: bool) -> None:
    request = Request(is_back=is_back)
    for number in range(2):
        request.brokers.cut()
        assert request.has(request.here)
        assert not request.has(request.there), "its client may be gone when the bridge returns"
        request.brokers.connect(name="nc", duplex=True)
        request.replier.send(request.replies, str(number))
        request.brokers.pump()
        assert got(request.requester) == [str(number)]


def test_reply_to_a_queue_that_is_gone_is_given_up() -> None:
    """It is deleted while the reply is on its way; the bridge goes on."""
    request = Request(is_back=False)
    request.replier.send(request.replies, "too late")
    request.requester.session.lost()
    request.brokers.pump()
    assert request.brokers.session.end is None
    assert not request.has(request.there)


def test_temporary_destinations_are_not_bridged_without_the_setting() -> None:
    request = Request(is_back=False, bridge_temp_destinations=False)
    assert request.has(request.here)
    assert not request.has(request.there)


def test_client_takes_its_temporary_queue_back() -> None:
    """Its bridge announces it while the client reconnects to the other broker."""
    request = Request(is_back=False)
    moved = OpenWireClient(request.there)
    moved.connect("requester", client_id="moved")
    moved.open_session()
    assert reply_queue(moved) == request.replies
    request.brokers.cut()
    assert request.has(request.there)


# ---------------------------------------------------------------- recordings


def test_recorded_echo_does_not_take_the_queue_of_a_client() -> None:
    """ActiveMQ sends the advisory back, and then deletes the queue of its own client with the bridge."""
    acceptor = RecordedAcceptor("temp_cut", name="ab")
    near = acceptor.near.broker
    requester = OpenWireClient(near)
    requester.connect("testhost-33797-1795364050711-9:1", client_id="requester")
    requester.open_session()
    replies = reply_queue(requester)
    requester.consume(replies)
    acceptor.send(*acceptor.recorded)
    assert acceptor.session.end is None
    owner = near.admin.owner(replies)
    acceptor.session.lost()
    assert near.admin.exists(replies)
    assert near.admin.owner(replies) == owner == requester.id


def test_recorded_requester_gets_its_reply_after_a_cut() -> None:
    first = RecordedInitiator("temp_cut", 1)
    replies = Destination(DestinationType.TEMP_QUEUE, "ID:testhost-33797-1795364050711-9:1:1")
    assert of_kind(first.replay(), ExceptionResponse) == []
    assert first.far.admin.exists(replies)
    first.session.lost()
    assert not first.far.admin.exists(replies)
    second = RecordedInitiator("temp_cut", 2, first)
    second.replay(7)
    assert first.far.admin.exists(replies)
    replier = OpenWireClient(first.far)
    replier.connect("replier")
    replier.open_session()
    replier.send(replies, "reply")
    (message,) = [each for each in second.receive() if getattr(each, "destination", None) == replies]
    assert getattr(message, "response_required", False)
