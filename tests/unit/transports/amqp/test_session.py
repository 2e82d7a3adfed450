"""AMQP connections: protocol headers, SASL, open and close, sessions, and the links of a first message."""

from collections.abc import Sequence

import pytest

from pybroker.broker.domain.amqp.frames import AMQP_HEADER, SASL_HEADER, AmqpHeaderSeen, encode_frame
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpAttach,
    AmqpBegin,
    AmqpClose,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpFlow,
    AmqpOpen,
    AmqpTransfer,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from pybroker.broker.domain.amqp.values import Symbol
from pybroker.broker.domain.destination import queue
from tests.unit.transports.amqp.conversation import World, text
from tests.unit.transports.authenticators import FakeAuthenticator


@pytest.fixture
def world() -> World:
    """A broker."""
    return World()


def frames(found: Sequence[object]) -> list[object]:
    return [getattr(each, "performative", each) for each in found]


# ---------------------------------------------------------------- headers and SASL


def test_sasl_header_is_answered_with_mechanisms(world: World) -> None:
    header, frame = world.connect().feed(SASL_HEADER)
    assert header == AmqpHeaderSeen(3, 1, 0, 0)
    assert getattr(frame, "performative", None) == SaslMechanisms(
        sasl_server_mechanisms=(Symbol("PLAIN"), Symbol("ANONYMOUS"))
    )


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"AMQP\0\0\x09\x01", "it speaks AMQP 0-9-1, as clients of RabbitMQ do"),
        (b"AMQP\2\1\0\0", "it asks for TLS inside of AMQP"),
        (b"AMQP\1\1\0\x0a", "it asks for protocol 1, version 1.0.10: AMQP 1.0 is spoken here"),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc", "it speaks TLS: use a port of AMQP with TLS"),
        (b"\x10\x10\0\x04MQTT\x04", "it speaks MQTT: use a port of that, or of auto"),
        (b"GET / HTTP/1.1", "it speaks HTTP: use a port of that, or of auto"),
    ],
)
def test_client_of_another_port_is_logged_with_the_remedy(
    world: World, head: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.connect().feed(head)
    [line] = caplog.messages
    assert f"closed: {reason}" in line


@pytest.mark.parametrize("header", [b"AMQP\0\0\x09\x01", b"AMQP\2\1\0\0", b"AMQP\0\2\0\0", b"AMQP\3\1\1\0"])
def test_other_header_is_answered_with_sasl_and_closed(world: World, header: bytes) -> None:
    peer = world.connect()
    assert peer.feed(header) == [AmqpHeaderSeen(3, 1, 0, 0)]
    assert peer.link.closed


def test_garbage_is_answered_with_sasl_and_closed(world: World) -> None:
    peer = world.connect()
    assert peer.feed(b"GET / HTTP/1.1\r\n\r\n") == [AmqpHeaderSeen(3, 1, 0, 0)]
    assert peer.link.closed


def test_connection_without_sasl_is_opened(world: World) -> None:
    peer = world.connect()
    assert peer.feed(AMQP_HEADER) == [AmqpHeaderSeen(0, 1, 0, 0)]
    [opened] = peer.send(AmqpOpen(container_id="c"))
    assert opened.container_id == "b"


def test_unknown_mechanism_is_refused(world: World) -> None:
    peer = world.connect()
    peer.secure("GSSAPI")
    assert peer.link.closed


@pytest.mark.parametrize("response", [b"\0u\0right", b"someone\0u\0right", b"u\0right"])
def test_plain_login_succeeds(response: bytes) -> None:
    peer = World(FakeAuthenticator()).connect()
    peer.feed(SASL_HEADER)
    init = SaslInit(mechanism=Symbol("PLAIN"), initial_response=response)
    assert peer.send(init) == [SaslOutcome(code=0)]
    assert peer.feed(AMQP_HEADER) == [AmqpHeaderSeen(0, 1, 0, 0)]


@pytest.mark.parametrize("response", [b"\0u\0wrong", b"u", b"\0\xff\0x", b"a\0b\0c\0d"])
def test_plain_login_is_refused(response: bytes) -> None:
    peer = World(FakeAuthenticator()).connect()
    peer.feed(SASL_HEADER)
    init = SaslInit(mechanism=Symbol("PLAIN"), initial_response=response)
    assert peer.send(init) == [SaslOutcome(code=1)]
    assert peer.link.closed


def test_login_without_sasl_is_refused_at_open() -> None:
    peer = World(FakeAuthenticator()).connect()
    peer.feed(AMQP_HEADER)
    opened, closed = peer.send(AmqpOpen(container_id="c"))
    assert opened.container_id == ""
    assert opened.properties == {"amqp:connection-establishment-failed": True}
    assert closed.error.condition == "amqp:unauthorized-access"
    assert peer.link.closed


# ---------------------------------------------------------------- open, close, time-outs


def test_open_says_what_activemq_says(world: World) -> None:
    opened = world.open().opened
    assert (opened.container_id, opened.max_frame_size, opened.channel_max) == ("b", 131072, 255)
    assert opened.idle_time_out == 15000
    assert opened.offered_capabilities == ("ANONYMOUS-RELAY", "DELAYED_DELIVERY")
    assert opened.properties is not None
    assert opened.properties["topic-prefix"] == "topic://"


def test_container_id_in_use_is_refused(world: World) -> None:
    world.open("one")
    peer = world.connect()
    peer.secure()
    opened, closed = peer.send(AmqpOpen(container_id="one"))
    assert (opened.container_id, opened.idle_time_out) == ("", None)
    assert closed.error.condition == "amqp:invalid-field"
    assert closed.error.info == {"invalid-field": "container-id"}
    assert "Client: one already connected" in closed.error.description
    assert peer.link.closed


def test_close_is_answered(world: World) -> None:
    peer = world.open("one")
    assert peer.send(AmqpClose()) == [AmqpClose()]
    assert peer.link.closed
    world.open("one")


@pytest.mark.parametrize("is_slow", [False, True], ids=["at once", "after the disk"])
@pytest.mark.parametrize(
    "behind",
    [encode_frame(1, AmqpBegin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)), b"\0\0\0\0garbage"],
    ids=["begin", "no frame"],
)
@pytest.mark.parametrize("is_same_chunk", [True, False])
def test_bytes_behind_close_are_discarded(world: World, is_slow: bool, behind: bytes, is_same_chunk: bool) -> None:
    peer = world.open("one")
    world.store.is_slow = is_slow
    close = encode_frame(0, AmqpClose())
    found = peer.feed(close + behind) if is_same_chunk else peer.feed(close) + peer.feed(behind)
    assert peer.link.closed is not is_slow
    world.store.sync()
    assert frames(found + peer.receive()) == [AmqpClose()]
    assert peer.link.closed


def test_client_that_closes_while_the_disk_waits_gets_empty_frames(world: World) -> None:
    peer = world.open(idle_time_out=900)
    world.store.is_slow = True
    assert peer.send(AmqpClose()) == []
    peer.link.now = 40.0  # longer than a client may be silent that has not sent close
    peer.session.on_timer()
    peer.link.now = peer.link.wakes_at or 0.0
    assert peer.link.now == pytest.approx(40.3)
    peer.session.on_timer()
    assert peer.performatives() == [None]
    world.store.sync()
    assert peer.performatives() == [AmqpClose()]
    assert peer.link.closed


def test_silent_client_is_closed_at_twice_the_announced_time(world: World) -> None:
    peer = world.open()
    peer.link.now = 29.9
    peer.session.on_timer()
    assert not peer.link.closed
    peer.link.now = 30.0
    peer.link.reading_since = 0.0
    peer.session.on_timer()
    [closed] = peer.performatives()
    assert closed.error.condition == "amqp:resource-limit-exceeded"
    assert peer.link.closed


def test_client_that_asks_for_it_gets_empty_frames(world: World) -> None:
    peer = world.open(idle_time_out=900)
    peer.link.now = peer.link.wakes_at or 0.0
    assert peer.link.now == pytest.approx(0.3)
    peer.session.on_timer()
    assert peer.performatives() == []  # begin was answered meanwhile
    peer.link.now = peer.link.wakes_at or 0.0
    peer.session.on_timer()
    assert peer.performatives() == [None]


def test_client_that_does_not_open_in_time_is_closed(world: World) -> None:
    peer = world.connect()
    peer.feed(SASL_HEADER)
    peer.link.now = 29.0
    peer.session.on_timer()
    assert not peer.link.closed
    peer.link.now = 30.0
    peer.session.on_timer()
    assert peer.link.closed


def test_client_that_does_not_open_after_its_login_is_closed() -> None:
    logins = FakeAuthenticator(is_slow=True)
    peer = World(logins).connect()
    peer.feed(SASL_HEADER)
    peer.send(SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0u\0right"))
    peer.link.now = 31.0
    peer.session.on_timer()
    logins.decide()
    assert peer.performatives() == [SaslOutcome(code=0)]
    assert peer.link.wakes_at == 31.0
    peer.session.on_timer()
    assert peer.link.closed


def test_stopping_broker_closes_with_forced(world: World) -> None:
    peer = world.open()
    peer.session.stopping()
    [closed] = peer.performatives()
    assert closed.error.condition == "amqp:connection:forced"


def test_frame_that_does_not_decode_closes_the_connection(world: World) -> None:
    peer = world.open()
    [closed] = frames(peer.feed(b"\0\0\0\x0c\2\0\0\0\0\x53\x12\x43"))
    assert isinstance(closed, AmqpClose)
    assert closed.error is not None
    assert closed.error.condition == "amqp:decode-error"
    assert peer.link.closed


# ---------------------------------------------------------------- sessions


def test_end_is_answered(world: World) -> None:
    peer = world.open()
    assert peer.send(AmqpEnd()) == [AmqpEnd()]
    peer.begin()


def test_frame_without_session_closes_the_connection(world: World) -> None:
    peer = world.open()
    [closed] = peer.send(AmqpDetach(handle=0), channel=3)
    assert closed.error.condition == "amqp:connection:framing-error"


@pytest.mark.parametrize(
    "frame", [AmqpTransfer(handle=9, delivery_id=0), AmqpDetach(handle=9)], ids=["transfer", "detach"]
)
def test_frame_for_no_link_ends_the_session(world: World, frame: object) -> None:
    peer = world.open()
    [ended] = peer.send(frame)
    assert ended.error.condition == "amqp:session:unattached-handle"
    assert peer.send(AmqpDetach(handle=8)) == []
    assert peer.send(AmqpEnd()) == []
    peer.begin()


def test_handle_in_use_ends_the_session(world: World) -> None:
    peer = world.open()
    peer.sender("q", 0)
    [ended] = peer.sender("p", 0)
    assert ended.error.condition == "amqp:session:handle-in-use"


# ---------------------------------------------------------------- a message


def accepted(first: int, last: int | None = None) -> AmqpDisposition:
    return AmqpDisposition(role=True, first=first, last=last, settled=True, state=AmqpAccepted())


def test_sender_gets_credit_at_once(world: World) -> None:
    attached, flow = world.open().sender("queue://q", name="snd")
    assert (attached.name, attached.role, attached.target.address) == ("snd", True, "queue://q")
    assert (flow.handle, flow.delivery_count, flow.link_credit) == (0, 0, 1000)


def test_message_is_accepted_once_it_is_on_disk(world: World) -> None:
    peer = world.open()
    peer.sender("queue://q")
    world.store.is_slow = True
    assert peer.transfer(text("m")) == []
    world.store.sync()
    assert peer.performatives() == [accepted(0)]


def test_message_that_is_not_durable_is_accepted_at_once(world: World) -> None:
    peer = world.open()
    peer.sender("queue://q")
    world.store.is_slow = True
    assert peer.transfer(text("m", durable=False)) == [accepted(0)]


def test_messages_of_a_chunk_are_accepted_together(world: World) -> None:
    peer = world.open()
    peer.sender("queue://q")
    data = [
        encode_frame(0, AmqpTransfer(handle=0, delivery_id=number, delivery_tag=b"t"), text("m")) for number in range(5)
    ]
    assert frames(peer.feed(*data)) == [accepted(0, 4)]


def test_message_goes_to_a_receiver_and_is_settled(world: World) -> None:
    sender, receiver = world.open("c1"), world.open("c2")
    sender.sender("queue://q")
    sender.transfer(text("m", x=1))
    [attached] = receiver.receiver("queue://q")
    assert isinstance(attached, AmqpAttach)
    assert (attached.role, attached.initial_delivery_count) == (False, 0)
    receiver.credit(1)
    [found] = receiver.messages(receiver.frames)
    assert found.body == "m"
    assert found.message.application_properties == {"x": 1}
    assert (found.transfer.delivery_id, found.transfer.settled) == (0, False)
    assert receiver.settle(0) == []
    assert world.broker.queues[queue("q")].counters().size == 0


def test_outcome_without_settlement_is_answered_once_durable(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    peer.receiver("q")
    peer.credit(1)
    peer.transfer(text("m"))
    world.store.is_slow = True
    assert peer.settle(0, settled=False) == []
    world.store.sync()
    [answer] = peer.performatives()
    assert answer == AmqpDisposition(role=False, first=0, settled=True, state=AmqpAccepted())


def test_credit_is_topped_up_when_little_is_left(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    flows: list[AmqpFlow] = []
    for _ in range(700):
        flows += [each for each in peer.transfer(text("m")) if isinstance(each, AmqpFlow)]
    [flow] = flows
    assert (flow.delivery_count, flow.link_credit) == (700, 1000)


def test_presettled_message_has_no_answer(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    assert peer.transfer(text("m"), settled=True) == []
    assert world.broker.queues[queue("q")].counters().size == 1


def test_lost_connection_returns_messages_as_redelivered(world: World) -> None:
    first, second = world.open("c1"), world.open("c2")
    first.sender("q")
    first.transfer(text("m"))
    first.receiver("q")
    assert first.take(1) == ["m"]
    first.drop()
    second.receiver("q")
    second.credit(1)
    [found] = second.messages(second.frames)
    assert found.message.header is not None
    assert found.message.header.delivery_count == 1
