# mypy: disable-error-code="arg-type"
"""Errors of one message stay with it; errors of a store do not."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from pybroker.broker.core.containment import LOGGED_IN_FULL_MAX, contain
from pybroker.broker.core.gate import Gate
from pybroker.broker.core.policy import FixedCountRecovery
from pybroker.broker.core.usage import Usage
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import LockNotHeld, StoreUnavailable
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, decode, encode, routing
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.unit.core.conftest import Client, World, make_message

NULS, EMOJI = b"\0" * 40_000, "\N{PILE OF POO}".encode() * 16_000
MARK = b"\0\x08@@mark@@"


def oversized(destination: str, text: bytes, number: int = 1, **fields: object) -> Message:
    """Return a message as some client writes it: texts in standard UTF-8, too long for Java's form of it."""
    made = OpenWireMessage(
        type=MessageType.TEXT,
        producer_id=ProducerId("ID:p", 1, 1),
        destination=parse(destination),
        message_id=OpenWireMessageId(None, ProducerId("ID:p", 1, 1), number),
        persistent=True,
        correlation_id="@@mark@@",
        jms_type="@@mark@@",
        **fields,
    )
    made.set_properties({"n": 1})
    properties = made.marshalled_properties or b""
    made.marshalled_properties = properties.replace(b"\0\1n", len(text).to_bytes(2) + text)
    return routing(encode(made).replace(MARK, len(text).to_bytes(2) + text))


@pytest.fixture(params=[NULS, EMOJI], ids=["nuls", "emoji"])
def text(request: pytest.FixtureRequest) -> bytes:
    found: bytes = request.param
    return found


def letters(world: World) -> list[OpenWireMessage]:
    inbox = world.client().subscribe("queue://ActiveMQ.DLQ")
    return [decode(each.message.data) for each in inbox.deliveries]


def test_an_oversized_message_that_expires_is_a_dead_letter(world: World, text: bytes) -> None:
    world.client().connection.send(oversized("queue://Q", text, expiration=world.now_ms + 1))
    world.now_ms += 10
    world.broker.remove_expired()
    (letter,) = letters(world)
    assert letter.correlation_id == letter.jms_type == text.decode()
    assert set(letter.properties) == {text.decode(), "originalExpiration", "dlqDeliveryFailureCause"}


def test_an_oversized_group_in_a_transaction_is_delivered(world: World, text: bytes) -> None:
    consumer, client = world.client(), world.client()
    inbox = consumer.subscribe("queue://Q")
    transaction = client.connection.begin()
    client.connection.send(oversized("queue://Q", text, group_id="@@mark@@"), transaction)
    client.connection.commit(transaction)
    (delivery,) = inbox.deliveries
    assert decode(delivery.message.data).group_first_for_consumer


def test_an_oversized_message_left_too_often_is_a_dead_letter(make_world: Callable[..., World], text: bytes) -> None:
    world = make_world(max_redeliveries=2)
    world.client().connection.send(oversized("queue://Q", text))
    for _ in range(3):
        client = world.client("the same id each time")
        client.subscribe("queue://Q")
        client.connection.close()
    assert len(letters(world)) == 1


def test_an_oversized_retained_message_is_published(make_world: Callable[..., World], text: bytes) -> None:
    world = make_world(subscription_recovery_policy=FixedCountRecovery(maximum_size=1))
    inbox = world.client().subscribe("topic://T")
    message = oversized("topic://T", text)
    fields = decode(message.data)
    fields.set_properties({**fields.properties, "ActiveMQ.Retain": True})
    world.client().connection.send(replace(message, data=encode(fields)))
    assert len(inbox.deliveries) == 1


def test_oversized_message_has_advisories(world: World, text: bytes) -> None:
    expired = world.client().subscribe("topic://ActiveMQ.Advisory.Expired.>")
    world.client().connection.send(oversized("queue://Q", text, expiration=world.now_ms + 1))
    world.now_ms += 10
    world.broker.remove_expired()
    assert len(expired.deliveries) == 1


# ---------------------------------------------------------------- isolation


class Deaf:
    """A client whose transport fails for every message."""

    def __init__(self, world: World, destination: str) -> None:
        self.client = world.client()
        self.inbox = self.client.subscribe("queue://NOTHING")
        self.inbox.consumer.close()
        subscribed = self.client.connection.subscribe(
            replace(self.inbox.consumer.request, destination=parse(destination)), self.fail
        )
        subscribed.start()

    def fail(self, _: object) -> None:
        raise RuntimeError("a frame that cannot be written")


def test_a_delivery_that_fails_costs_the_sender_nothing(world: World) -> None:
    deaf = Deaf(world, "queue://Q")
    sender = world.client()
    sender.send("queue://Q", "a", "b")
    deaf.client.connection.close()
    assert world.client().subscribe("queue://Q").ids == ["a", "b"]


def test_a_commit_is_carried_out_past_what_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://A", "a", transaction=transaction)
    client.send("queue://B", "b", transaction=transaction)
    queue = world.broker.queues[parse("queue://A")]
    monkeypatch.setattr(queue.gate, "_deliver", partial(fail, "a"))
    client.connection.commit(transaction)
    assert world.client().subscribe("queue://B").ids == ["b"]


def fail(*_: object) -> None:
    raise RuntimeError("a bug")


def test_a_gate_lets_the_next_message_through() -> None:
    passed: list[str] = []

    def deliver(message: Message) -> None:
        if message.message_id.endswith("1"):
            raise RuntimeError("a bug")
        passed.append(message.message_id)

    gate = Gate(deliver, MemoryStore(), Usage())
    gate.close()
    for number in (1, 2):
        gate.admit(oversized("queue://Q", b"x", number))
    gate.open()
    assert passed == ["ID:p:1:1:2"]
    gate.admit(oversized("queue://Q", b"x", 3))
    assert passed == ["ID:p:1:1:2", "ID:p:1:1:3"]


@interpreted
@pytest.mark.parametrize("failing", ["rollback", "remove_producer"])
def test_a_close_frees_the_client_id_whatever_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    client = world.client("me")
    transaction = client.connection.begin()
    client.send("queue://Q", "gone", transaction=transaction)
    client.connection.add_producer(ProducerId("c1", 1, 1), parse("queue://Q"))
    inbox = client.subscribe("queue://Q")
    monkeypatch.setattr(client.connection, failing, fail)
    client.connection.close()
    assert inbox.consumer.closed
    again: Client = world.client("me")
    again.send("queue://Q", "a")
    assert again.subscribe("queue://Q").ids == ["a"]


@interpreted
def test_a_close_frees_the_client_id_when_the_store_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = world.client("me")
    transaction = client.connection.begin()
    client.send("queue://Q", "gone", transaction=transaction)
    monkeypatch.setattr(world.store, "rollback", partial(fail_with, StoreUnavailable("stopped")))
    with pytest.raises(StoreUnavailable):
        client.connection.close()
    world.client("me")


def fail_with(error: Exception, *_: object, **__: object) -> None:
    raise error


@pytest.mark.parametrize("error", [StoreUnavailable("stopped"), LockNotHeld("lost"), OSError(5, "bad")])
def test_expiry_passes_a_failed_store_on(world: World, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    world.client().send("queue://Q", "a", expiration=world.now_ms + 1)
    world.now_ms += 10
    monkeypatch.setattr(world.store, "add", partial(fail_with, error))
    with pytest.raises(type(error)):
        world.broker.remove_expired()


def test_expiry_goes_on_behind_what_cannot_be_buried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("queue://A", "queue://B"):
        world.client().send(name, "a", expiration=world.now_ms + 1)
    world.now_ms += 10
    monkeypatch.setattr(world.broker.queues[parse("queue://A")], "_dead_letters", None)
    world.broker.remove_expired()
    assert len(letters(world)) == 1


def test_reports_of_one_kind_become_fewer(caplog: pytest.LogCaptureFixture) -> None:
    message = make_message("m", "queue://Q")
    for _ in range(100):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError as error:
            contain(error, "a test of reports", message)
    assert f"{message.message_id} on queue://Q" in caplog.text
    assert len(caplog.records) == LOGGED_IN_FULL_MAX + 3, "the first ones, and the 16th, 32nd and 64th"
