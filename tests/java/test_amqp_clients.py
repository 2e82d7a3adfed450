"""JMS clients and AMQP clients answer one another's requests, and resume one another's durable subscriptions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any, Final
from uuid import UUID

import pytest
from proton import Link, Message, Terminus, ulong
from proton.reactor import DurableSubscription, ReceiverOption, Selector
from proton.utils import LinkDetached

from tests.integration.cluster import free_port
from tests.integration.test_amqp import SECONDS, bodies, connect, nothing_comes
from tests.java.checks import Outcomes, Programs
from tests.java.installations import FollowedBroker

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(300)]

IDENTITY: Final = UUID("01234567-89ab-cdef-0123-456789abcdef")
REQUESTS: Final[tuple[dict[str, Any], ...]] = (
    {"id": IDENTITY},
    {"id": ulong(2**63 + 1)},
    {"id": b"\x00\xff"},
    {"id": "text", "correlation_id": "order 17"},
    {"id": "text", "correlation_id": IDENTITY},
)
"""Ids of requests; the answer has the correlation id as its own, or the id where there is none."""

EXPECTED: Final[dict[str, Any]] = {
    "service": {
        "ids": [
            f"ID:AMQP_UUID:{IDENTITY}",
            f"ID:AMQP_ULONG:{2**63 + 1}",
            "ID:AMQP_BINARY:00FF",
            "order 17",
            f"AMQP_UUID:{IDENTITY}",
        ],
        "temporary queue": True,
        "answers": [
            ["REQUEST 0", "UUID", str(IDENTITY)],
            ["REQUEST 1", "int", str(2**63 + 1)],
            ["REQUEST 2", "memoryview", "00ff"],
            ["REQUEST 3", "str", "order 17"],
            ["REQUEST 4", "UUID", str(IDENTITY)],
        ],
    },
    "removal": ["org.apache.activemq.DestinationDoesNotExistException"] * 2,
    "client": [
        {"request": ["ping", "temp-queue", None], "body": "PING", "correlated": True, "destination": True},
        {"request": ["ping", "temp-queue", "order 17"], "body": "PING", "correlated": True, "destination": True},
    ],
    "durableResumedInAmqp": {"address": "topic://amqp.durable", "backlog": ["red", "red"], "rest": ["red"]},
    "durableResumedInJava": {"backlog": ["red", "red"], "after its end": "amqp:not-found"},
}


class NullSource(ReceiverOption):
    """Attaches a link without a source, to resume a durable subscription by its name."""

    def apply(self, link: Link) -> None:
        link.source.type = Terminus.UNSPECIFIED


class AmqpPeer:
    """The AMQP client: does what the checks ask for."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._port = port
        self._kept = stack
        self._connection = stack.enter_context(closing(connect(port)))
        self._acts: dict[str, Callable[[], Any]] = {
            "request": self._request,
            "answers": self._answers,
            "answer": self._answer,
            "resume": self._resume,
            "subscribe": self._subscribe,
            "resume another": self._resume_ended,
            "request, then end the link": lambda: self._request_and_end(ends_connection=False),
            "request, then end the connection": lambda: self._request_and_end(ends_connection=True),
        }

    def do(self, _check: str, act: str) -> Any:
        return self._acts[act]()

    def _request(self) -> None:
        self._replies = self._connection.create_receiver(None, dynamic=True, credit=len(REQUESTS))
        address = self._replies.link.remote_source.address
        sender = self._connection.create_sender("amqp.service")
        for number, ids in enumerate(REQUESTS):
            sender.send(Message(body=f"request {number}", reply_to=address, **ids))

    def _answers(self) -> list[object]:
        found: list[object] = []
        for _ in REQUESTS:
            answer = self._replies.receive(timeout=SECONDS)
            identity: Any = answer.correlation_id
            shown = identity.hex() if isinstance(identity, memoryview) else str(identity)
            found.append([answer.body, type(identity).__name__, shown])
            self._replies.accept()
        return found

    def _request_and_end(self, *, ends_connection: bool) -> None:
        with ExitStack() as stack:
            connection = stack.enter_context(closing(connect(self._port)))
            replies = connection.create_receiver(None, dynamic=True)
            address = replies.link.remote_source.address
            connection.create_sender("amqp.removal").send(Message(body="request", reply_to=address))
            if not ends_connection:
                replies.close()
                self._kept.enter_context(stack.pop_all())

    def _answer(self) -> list[object]:
        with closing(self._connection.create_receiver("queue://amqp.client", credit=1)) as receiver:
            request = receiver.receive(timeout=SECONDS)
            receiver.accept()
        relay = self._connection.create_sender(None)
        correlation_id = request.id if request.correlation_id is None else request.correlation_id
        answer = Message(address=request.reply_to, body=str(request.body).upper(), correlation_id=correlation_id)
        relay.send(answer)
        assert request.reply_to is not None
        return [request.body, request.reply_to.partition("://")[0], request.correlation_id]

    def _resume(self) -> dict[str, object]:
        found: dict[str, Any] = {}
        for part, count in (("backlog", 2), ("rest", 1)):
            with closing(connect(self._port, container="amqp client 1")) as connection:
                receiver = connection.create_receiver(None, name="sub", options=NullSource(), credit=10)
                found["address"] = receiver.link.remote_source.address
                found[part] = bodies(receiver, count)
                assert nothing_comes(receiver)
                receiver.detach()
            with closing(self._connection.create_sender("topic://amqp.durable")) as sender:
                for colour in ("blue", "red"):
                    sender.send(Message(body=colour, properties={"colour": colour}, durable=True))
        return found

    def _subscribe(self) -> None:
        options = [DurableSubscription(), Selector("colour = 'red'")]
        with closing(connect(self._port, container="amqp client 2")) as connection:
            connection.create_receiver("topic://amqp.durable", name="sub", options=options).detach()

    def _resume_ended(self) -> str:
        with closing(connect(self._port, container="amqp client 2")) as connection:
            with pytest.raises(LinkDetached) as refused:
                connection.create_receiver(None, name="sub", options=NullSource())
            return str(refused.value.condition)


@pytest.fixture(scope="module")
def outcomes(programs: Programs) -> Iterator[Outcomes]:
    openwire, port = free_port(), free_port()
    extra = ("--openwire", str(openwire), "--amqp", str(port), "--amqp-transformer", "jms")
    member = FollowedBroker("memory:", name="a", port=free_port(), extra=extra)
    try:
        member.wait_for("listening on")
        with ExitStack() as stack:
            peer = AmqpPeer(port, stack)
            yield programs.area("AmqpClients", f"tcp://127.0.0.1:{openwire}", answer=peer.do)
    finally:
        member.close()


@pytest.mark.parametrize("check", EXPECTED)
def test_amqp_clients_and_jms_clients(outcomes: Outcomes, check: str) -> None:
    assert outcomes.keys() == EXPECTED.keys()
    assert outcomes[check] == EXPECTED[check]
