"""Links: addresses, dynamic nodes, durable subscriptions, browsers, filters, options, and refusals."""

import logging
import tracemalloc
from typing import Any

import pytest

from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.amqp.frames import AmqpLimits, encode_frame
from pybroker.broker.domain.amqp.performatives import (
    AmqpAttach,
    AmqpDetach,
    AmqpDisposition,
    AmqpEnd,
    AmqpModified,
    AmqpRejected,
    AmqpTarget,
    AmqpTransfer,
)
from pybroker.broker.domain.amqp.values import AmqpDescribed, Symbol, UnsignedLong
from pybroker.broker.domain.destination import queue, topic
from pybroker.transports.amqp import channel
from tests.compiled import interpreted
from tests.unit.transports.amqp.conversation import Peer, World, text


@pytest.fixture
def world() -> World:
    """A broker."""
    return World()


def selector(condition: object, descriptor: object = "apache.org:selector-filter:string") -> dict[Any, Any]:
    described = UnsignedLong(descriptor) if isinstance(descriptor, int) else Symbol(str(descriptor))
    return {Symbol("any-key"): AmqpDescribed(described, condition)}  # type: ignore[arg-type]


NO_LOCAL: dict[Any, Any] = {Symbol("n"): AmqpDescribed(UnsignedLong(0x0000_468C_0000_0003), [])}


def refusal(answers: list[Any]) -> tuple[str, str]:
    """Return condition and text of a link that was refused."""
    attached, detached = answers
    assert isinstance(attached, AmqpAttach)
    assert isinstance(detached, AmqpDetach)
    assert detached.closed
    assert (attached.source if not attached.role else attached.target) is None
    assert detached.error is not None
    return str(detached.error.condition), str(detached.error.description)


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("address", "capabilities", "expected"),
    [
        ("q", None, queue("q")),
        ("queue://q", None, queue("q")),
        ("queue://a/b.c", None, queue("a/b.c")),
        ("topic://t", None, topic("t")),
        ("t", (Symbol("topic"),), topic("t")),
        ("queue://t", (Symbol("topic"),), queue("t")),
    ],
)
def test_address_names_a_destination(
    world: World, address: str, capabilities: tuple[Symbol, ...] | None, expected: object
) -> None:
    peer = world.open()
    attached, _ = peer.sender(address, target=AmqpTarget(address=address, capabilities=capabilities))
    assert attached.target.address == address
    assert expected in {*world.broker.queues, *world.broker.topics}


def test_refused_link_is_logged_with_its_reason(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="pybroker")
    peer = world.open()
    peer.receiver("")
    assert "ID:host-1-1: attach of the link 'r1' refused: source address not set" in caplog.text


def test_anonymous_relay_sends_where_each_message_says(world: World) -> None:
    peer = world.open()
    peer.sender(None)
    peer.transfer(text("a", to="queue://one"))
    peer.transfer(text("b", to="two"))
    [answer] = peer.transfer(text("c"))
    assert isinstance(answer.state, AmqpRejected)
    assert answer.settled
    assert answer.state.error is not None
    assert answer.state.error.condition == "amqp:precondition-failed"
    assert {queue("one"), queue("two")} <= set(world.broker.queues)


def test_link_without_target_is_an_anonymous_relay(world: World) -> None:
    peer = world.open()
    attached, _ = peer.sender(None, target=None)
    assert attached.target == AmqpTarget()
    peer.transfer(text("a", to="queue://one"))
    assert world.broker.queues[queue("one")].counters().size == 1


def test_composite_and_wildcard_sources(world: World) -> None:
    peer = world.open()
    peer.sender("a.x,b.x")
    peer.transfer(text("m"))
    peer.receiver("*.x")
    assert peer.take(5) == ["m", "m"]
    peer.receiver("queue://a.x,b.x", 2)
    peer.detach(1)
    assert peer.take(5, 2) == ["m", "m"]


# ---------------------------------------------------------------- dynamic nodes


@pytest.mark.parametrize(
    ("capability", "prefix", "answered"),
    [
        (None, "temp-queue://", "temporary-queue"),
        ("temporary-queue", "temp-queue://", "temporary-queue"),
        ("temporary-topic", "temp-topic://", "temporary-topic"),
    ],
)
def test_dynamic_source_is_a_temporary_destination(
    world: World, capability: str | None, prefix: str, answered: str
) -> None:
    peer, other = world.open("c1"), world.open("c2")
    wanted = (Symbol(capability),) if capability else None
    [attached] = peer.receiver(None, dynamic=True, capabilities=wanted)
    source = attached.source
    assert source.address.startswith(prefix)
    assert source.dynamic
    assert source.capabilities == (answered,)
    assert source.dynamic_node_properties == {"lifetime-policy": AmqpDescribed(UnsignedLong(0x2B), [])}
    peer.credit(1)
    other.sender(source.address)
    other.transfer(text("reply"))
    assert [each.body for each in peer.messages()] == ["reply"]
    peer.detach(1)
    assert refusal(other.sender(source.address, 5)) == (
        "amqp:precondition-failed", "Not a broker created temp destination",
    )  # fmt: skip


def test_dynamic_target_lives_as_long_as_its_link(world: World) -> None:
    peer = world.open("c1")
    attached, _ = peer.sender(None, target=AmqpTarget(dynamic=True))
    address = attached.target.address
    peer.transfer(text("m"))
    peer.receiver(address)
    assert peer.take(1) == ["m"]
    peer.detach(1)
    peer.detach(0)
    assert refusal(peer.receiver(address))[0] == "amqp:invalid-field"


def test_foreign_temporary_queue_is_refused(world: World) -> None:
    peer = world.open()
    assert refusal(peer.receiver("temp-queue://x"))[0] == "amqp:invalid-field"


# ---------------------------------------------------------------- durable subscriptions


def subscribe(peer: Peer, **fields: Any) -> list[Any]:
    return peer.receiver("topic://t", name="sub", durable=2, **fields)


def publish(world: World, *bodies: str, **properties: Any) -> None:
    sender = world.open("publisher")
    sender.sender("topic://t")
    for body in bodies:
        sender.transfer(text(body, **properties))
    sender.drop()


def test_durable_subscription_outlives_its_link(world: World) -> None:
    peer = world.open("c")
    [attached] = subscribe(peer)
    assert (attached.source.address, attached.source.durable) == ("topic://t", 2)
    assert peer.detach(1, closed=False) == [AmqpDetach(handle=1, closed=False)]
    publish(world, "a", "b")
    peer.drop()
    peer = world.open("c")
    subscribe(peer)
    assert peer.take(5) == ["a", "b"]
    assert [each.key for each in durables(world)] == ["c:sub"]


def durables(world: World) -> list[Any]:
    return [each.info for each in world.broker.durables.values()]


def test_durable_subscription_is_attached_once_it_is_on_disk(world: World) -> None:
    peer = world.open("c")
    world.store.is_slow = True
    assert subscribe(peer) == []
    peer.credit(5)
    publish(world, "a")
    assert peer.performatives() == []
    world.store.sync()
    peer.receive()
    kinds = [type(each.performative) for each in peer.frames]
    assert kinds == [AmqpAttach, AmqpTransfer]


def test_link_that_is_detached_before_it_is_durable_has_both_answers(world: World) -> None:
    peer = world.open("c")
    world.store.is_slow = True
    subscribe(peer)
    assert peer.detach(1, closed=False) == []
    world.store.sync()
    world.store.sync()
    assert [type(each) for each in peer.performatives()] == [AmqpAttach, AmqpDetach]


@pytest.mark.parametrize("address", ["p", "q?consumer.unknown=1"])
@pytest.mark.parametrize("is_receiver", [False, True])
def test_handle_in_use_again_is_answered_after_the_detach(world: World, address: str, *, is_receiver: bool) -> None:
    peer = world.open("c")
    attach = peer.receiver if is_receiver else peer.sender
    attach("q", 0)
    world.store.is_slow = True
    assert peer.detach(0) == []
    assert attach(address, 0, name="other") == []
    assert peer.detach(0) == []
    assert attach("q", 0, name="third") == []
    world.store.sync()
    answers = [each for each in peer.performatives() if isinstance(each, AmqpAttach | AmqpDetach)]
    assert [type(each) for each in answers] == [AmqpDetach, AmqpAttach, AmqpDetach, AmqpAttach]
    assert [each.name for each in answers if isinstance(each, AmqpAttach)] == ["other", "third"]


def test_closed_link_deletes_its_durable_subscription(world: World) -> None:
    peer = world.open("c")
    subscribe(peer)
    world.store.is_slow = True
    assert peer.detach(1) == []
    world.store.sync()
    assert peer.performatives() == [AmqpDetach(handle=1, closed=True)]
    assert durables(world) == []


def test_link_without_source_attaches_a_durable_subscription_again(world: World) -> None:
    peer = world.open("c")
    peer.receiver("topic://t", name="sub", durable=1, filter=selector("x = 1") | NO_LOCAL)
    peer.detach(1, closed=False)
    publish(world, "a", x=1)
    [attached] = peer.receiver(None, name="sub", source=None)
    source = attached.source
    assert (source.address, source.durable, source.expiry_policy) == ("topic://t", 2, "never")
    assert source.distribution_mode == "copy"
    assert {each.descriptor for each in source.filter.values()} == {
        "apache.org:selector-filter:string",
        "apache.org:no-local-filter:list",
    }
    assert peer.take(5) == ["a"]
    peer.detach(1)
    assert durables(world) == []
    assert refusal(peer.receiver(None, name="sub", source=None)) == (
        "amqp:not-found", "Unknown subscription link: sub",
    )  # fmt: skip


def test_durable_subscription_in_use_is_refused(world: World) -> None:
    peer = world.open("c")
    subscribe(peer)
    condition, _ = refusal(subscribe(peer, handle=2))
    assert condition == "amqp:resource-locked"


def test_durable_source_of_a_queue_is_a_consumer(world: World) -> None:
    peer = world.open("c")
    peer.sender("q")
    peer.transfer(text("m"))
    peer.receiver("q", durable=2)
    assert peer.take(1) == ["m"]
    assert durables(world) == []


def test_changed_selector_begins_a_new_durable_subscription(world: World) -> None:
    peer = world.open("c")
    subscribe(peer)
    peer.detach(1, closed=False)
    publish(world, "a", x=1)
    subscribe(peer, filter=selector("x = 1"))
    assert peer.take(5) == []


# ---------------------------------------------------------------- browsers, filters, options


def test_browser_sees_all_messages_and_consumes_none(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    for body in "abc":
        peer.transfer(text(body, even=body == "b"))
    peer.receiver("q", distribution_mode=Symbol("copy"))
    assert peer.take(2) == ["a", "b"]
    peer.settle(0, last=1)
    assert peer.take(5, delivery_count=2) == ["c"]
    peer.receiver("q", 2, distribution_mode=Symbol("copy"), filter=selector("even"))
    assert peer.take(5, 2) == ["b"]
    peer.settle(3, AmqpRejected())
    peer.detach(1)
    assert world.broker.queues[queue("q")].counters().size == 3


@pytest.mark.parametrize("descriptor", ["apache.org:selector-filter:string", 0x0000_468C_0000_0004])
def test_selector_is_recognised_by_its_descriptor(world: World, descriptor: object) -> None:
    peer = world.open()
    peer.sender("q")
    for body in "abc":
        peer.transfer(text(body, name=body))
    others: dict[Any, Any] = {Symbol("other"): AmqpDescribed(Symbol("other:filter"), "x"), Symbol("plain"): "x"}
    [attached] = peer.receiver("q", filter=selector("name = 'b'", descriptor) | others)
    assert list(attached.source.filter) == ["any-key"]
    assert peer.take(5) == ["b"]


@pytest.mark.parametrize("condition", ["color =", 5])
def test_bad_selector_is_refused(world: World, condition: object) -> None:
    assert refusal(world.open().receiver("q", filter=selector(condition)))[0] == "amqp:invalid-field"


def test_no_local_leaves_out_what_the_connection_sends(world: World) -> None:
    peer = world.open()
    peer.receiver("topic://t", filter=NO_LOCAL)
    peer.credit(5)
    peer.sender("topic://t")
    peer.transfer(text("mine"))
    publish(world, "others")
    assert [each.body for each in peer.messages()] == ["others"]


def test_consumer_options(world: World) -> None:
    first, second = world.open("c1"), world.open("c2")
    first.receiver("q?consumer.priority=5&other=1")
    second.receiver("queue://q?consumer.exclusive=true&consumer.prefetchSize=7")
    first.credit(5)
    second.credit(5)
    first.sender("q")
    first.transfer(text("m"))
    assert [each.body for each in second.messages()] == ["m"]


@pytest.mark.parametrize("option", ["nope=1", "priority=high", "priority=1000", "exclusive=1"])
def test_unknown_consumer_option_is_refused(world: World, option: str) -> None:
    condition, description = refusal(world.open().receiver(f"q9?consumer.{option}"))
    assert condition == "amqp:invalid-field"
    assert description == (
        "There are 1 consumer options that couldn't be set on the consumer. Check the options are spelled correctly. "
        f"Unknown parameters=[{{{option}}}]. This consumer cannot be started."
    )


@pytest.mark.parametrize("address", [None, "", "queue://"])
def test_source_without_address_is_refused(world: World, address: str | None) -> None:
    peer = world.open()
    assert refusal(peer.receiver(address))[0] == "amqp:invalid-field"
    assert peer.detach(1) == []
    assert len(peer.receiver("q")) == 1


# ---------------------------------------------------------------- messages of several frames, and limits


def parts(peer: Peer, *pieces: bytes, handle: int = 0, last: bool = True, **fields: Any) -> list[Any]:
    answers: list[Any] = []
    for number, piece in enumerate(pieces):
        first: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"t"} if not number else {}
        more = number < len(pieces) - 1 or not last
        answers += peer.send(AmqpTransfer(handle=handle, more=more, **first, **fields), payload=piece)
    return answers


def test_message_of_several_frames(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    payload = text("x" * 100)
    [answer] = parts(peer, payload[:50], payload[50:51], payload[51:])
    assert isinstance(answer, AmqpDisposition)
    peer.receiver("q")
    assert peer.take(1) == ["x" * 100]


def test_aborted_message_is_dropped(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    assert parts(peer, b"abc", b"def", last=False) == []
    assert peer.send(AmqpTransfer(handle=0, aborted=True)) == []
    [answer] = parts(peer, text("m"))
    assert isinstance(answer, AmqpDisposition)
    assert world.broker.queues[queue("q")].counters().size == 1


def test_settled_flag_of_the_last_frame_counts(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    payload = text("m")
    parts(peer, payload[:5], last=False)
    assert peer.send(AmqpTransfer(handle=0, settled=True), payload=payload[5:]) == []
    assert world.broker.queues[queue("q")].counters().size == 1


def test_message_above_the_limit_ends_its_link_only() -> None:
    world = World(limits=AmqpLimits(message_bytes_max=1000))
    peer = world.open()
    attached, _ = peer.sender("q")
    assert attached.max_message_size == 1000
    peer.sender("q", 2)
    [detached] = parts(peer, b"x" * 600, b"x" * 600)
    assert (detached.handle, detached.closed) == (0, True)
    assert detached.error.condition == "amqp:link:message-size-exceeded"
    [answer] = peer.send(AmqpTransfer(handle=2, delivery_id=1), payload=text("m"))
    assert isinstance(answer, AmqpDisposition)


def test_unfinished_messages_of_a_connection_are_limited_together() -> None:
    world = World(limits=AmqpLimits(message_bytes_max=1000))
    peer = world.open()
    peer.sender("q")
    peer.sender("q", 2)
    assert parts(peer, b"x" * 600, last=False) == []
    [detached] = parts(peer, b"x" * 600, handle=2, last=False)
    assert detached.error.condition == "amqp:resource-limit-exceeded"
    peer.detach(2)
    peer.sender("q", 2)
    assert parts(peer, b"x" * 300, handle=2, last=False) == []


def test_message_of_many_small_frames_takes_no_more_memory(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    part = encode_frame(0, AmqpTransfer(handle=0, more=True), b"ab")
    peer.feed(encode_frame(0, AmqpTransfer(handle=0, delivery_id=0, more=True), b"ab"))
    tracemalloc.start()
    for _ in range(20):
        peer.feed(part * 500)
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert allocated < 4 * 20_000


def test_part_of_a_message_is_reserved_until_it_is_complete(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    parts(peer, b"x" * 50_000, last=False)
    assert peer.link.reserved == 50_000
    peer.send(AmqpTransfer(handle=0, aborted=True))
    assert peer.link.reserved == 0


def test_delivery_without_number_ends_the_session(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    [ended] = peer.send(AmqpTransfer(handle=0), payload=text("m"))
    assert isinstance(ended, AmqpEnd)


def test_handle_above_the_limit_ends_the_session(world: World) -> None:
    [ended] = world.open().sender("q", 1024)
    assert isinstance(ended, AmqpEnd)


@interpreted
def test_links_of_a_connection_are_limited_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LINKS_MAX", 3)
    peer = world.open()
    for handle in range(3):
        peer.receiver("q?consumer.nope=1" if handle else "q", handle)
    peer.begin(1)
    peer.channel = 1
    [ended] = peer.sender("q", 0)
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    peer.channel = 0
    peer.detach(2)
    assert len(peer.sender("q", 2)) == 2


def test_transfer_from_a_receiver_ends_its_link(world: World) -> None:
    peer = world.open()
    peer.receiver("q")
    [detached] = peer.send(AmqpTransfer(handle=1, delivery_id=0), payload=text("m"))
    assert detached.error.condition == "amqp:not-allowed"
    assert peer.detach(1) == []


# ---------------------------------------------------------------- space


FULL = DestinationPolicy(memory_limit=1500)


def test_full_queue_stops_the_credit_of_its_link_only() -> None:
    world = World(limits=AmqpLimits(producer_credit=3), policy=FULL)
    peer = world.open()
    peer.sender("q")
    peer.sender("free", 2)
    found: list[Any] = []
    for _ in range(3):
        found += peer.transfer(text("x" * 600, durable=False))
    assert len([each for each in found if isinstance(each, AmqpDisposition)]) < 3
    [answer] = peer.transfer(text("m", durable=False), 2)
    assert isinstance(answer, AmqpDisposition)
    reader = world.open("reader")
    reader.receiver("q")
    reader.credit(10)
    reader.settle(0, last=9)
    assert [each for each in peer.performatives() if isinstance(each, AmqpDisposition)]


def test_message_without_space_waits_and_is_refused_in_time() -> None:
    world = World(policy=DestinationPolicy(memory_limit=1500, send_fail_if_no_space_after_timeout=5000))
    peer = world.open()
    peer.sender("q")
    while peer.transfer(text("x" * 600, durable=False)):
        pass
    peer.transfer(text("behind", durable=False))
    world.timers.elapse()
    [refused] = peer.performatives()
    assert isinstance(refused.state, AmqpRejected)
    assert refused.state.error is not None
    assert refused.state.error.condition == "amqp:resource-limit-exceeded"
    world.timers.elapse()
    [refused] = peer.performatives()
    assert isinstance(refused.state, AmqpRejected)


def test_modified_is_no_state_of_a_sender(world: World) -> None:
    peer = world.open()
    peer.sender("q")
    [answer] = peer.transfer(text("m"), state=AmqpModified())
    assert isinstance(answer, AmqpDisposition)
