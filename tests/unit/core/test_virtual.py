# mypy: disable-error-code="arg-type"
"""The router: who gets a message that goes to a destination behind which others stand."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pybroker.broker.core import virtual
from pybroker.broker.core.virtual import (
    HOPS_MAX,
    CompositeDestination,
    Definition,
    Forward,
    MirroredQueues,
    Router,
    VirtualTopic,
)
from pybroker.broker.domain.destination import PARTS_MAX, Destination, DestinationType, matches, parse, queue, topic
from pybroker.broker.domain.errors import InvalidDestination, InvalidSelector
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import view
from tests.compiled import interpreted
from tests.unit.core.conftest import World, make_message

Queues = dict[Destination, "Queue"]


@dataclass
class SelectorAwareConsumer:
    """A consumer that wants some messages."""

    wants: Callable[[Message], bool]

    def accepts(self, message: Message) -> bool:
        return self.wants(message)


@dataclass
class Queue:
    """A queue, as far as a router looks at it."""

    consumers: list[SelectorAwareConsumer] = field(default_factory=list)


def router(*definitions: Definition, queues: Queues | tuple[str, ...] = ()) -> Router[str]:
    """A router whose targets are the destinations' texts."""
    existing = queues if isinstance(queues, dict) else {queue(name): Queue() for name in queues}
    return Router(definitions, existing, str)


def composite(name: str, *forward_to: str | Forward, **options: bool) -> CompositeDestination:
    forwards = tuple(to if isinstance(to, Forward) else Forward(destination=parse(to)) for to in forward_to)
    return CompositeDestination(destination=parse(name), forward_to=forwards, **options)


def targets(routed: Router[str], destination: str, **fields: object) -> list[str]:
    """Return the destinations of a message, in order."""
    way = routed.route(make_message("m", destination, **fields))
    return [destination] if way is None else [target for target, _ in way]


def is_plain(routed: Router[str], destination: Destination) -> bool:
    """Return True if a message goes just where it was sent."""
    return routed.route(make_message("m", str(destination))) is None


def originals(routed: Router[str], destination: str) -> dict[str, str | None]:
    """Return the original destinations of copies, by their destination."""
    way = routed.route(make_message("m", destination))
    assert way is not None
    found = {}
    for target, copy in way:
        fields = view(copy)
        assert str(fields.destination) == str(copy.destination) == target
        found[target] = None if fields.original_destination is None else str(fields.original_destination)
    return found


# ---------------------------------------------------------------- plain destinations


@pytest.mark.parametrize(
    "destination",
    ["queue://ORDERS", "topic://PRICES", "queue://VirtualTopic.X", "topic://Consumer.a.VirtualTopic.X", "topic://V.X"],
)
def test_undefined_destination_is_plain(destination: str) -> None:
    routed = router(VirtualTopic(), composite("queue://A", "queue://B"), queues=("Consumer.a.VirtualTopic.X",))
    assert is_plain(routed, parse(destination))


@pytest.mark.parametrize("destination", ["topic://VirtualTopic.X", "topic://VirtualTopic", "queue://A", "queue://X,Y"])
def test_what_a_definition_names_is_not_plain(destination: str) -> None:
    routed = router(VirtualTopic(), composite("queue://A", "queue://B"))
    assert not is_plain(routed, parse(destination))


def test_advisory_and_temporary_topics_are_never_virtual() -> None:
    routed = router(VirtualTopic(name=">"), MirroredQueues(), composite("topic://>", "queue://B"))
    assert is_plain(routed, topic("ActiveMQ.Advisory.Connection"))
    assert is_plain(routed, Destination(DestinationType.TEMP_TOPIC, "ID:1"))
    assert is_plain(routed, Destination(DestinationType.TEMP_QUEUE, "ID:1"))


# ---------------------------------------------------------------- composite names


def test_composite_send_is_copied_with_the_origin() -> None:
    assert originals(router(), "queue://A,topic://B,queue://A, C") == {
        "queue://A": "queue://A,topic://B,queue://A, C",
        "topic://B": "queue://A,topic://B,queue://A, C",
        "queue://C": "queue://A,topic://B,queue://A, C",
    }


def test_copies_differ_in_their_destinations_only() -> None:
    message = make_message("m", "queue://A,B", persistent=False, expiration=7, priority=9, properties={"k": 1})
    copies = router().route(message)
    assert copies is not None
    (_, first), (_, second) = copies
    for copy in (first, second):
        assert (copy.message_id, copy.persistent, copy.expiration, copy.priority, copy.connection_id) == (
            message.message_id, False, 7, 9, message.connection_id,
        )  # fmt: skip
        assert view(copy).content == b"m"
        assert view(copy).properties == {"k": 1}
    assert view(message).destination == parse("queue://A,B"), "the message itself is shared, and stays as it was"


@pytest.mark.parametrize("name", [",", " , ,", ",".join(f"Q{n}" for n in range(PARTS_MAX + 1))])
def test_empty_or_long_composite_is_refused(name: str) -> None:
    routed = router()
    with pytest.raises(InvalidDestination):
        routed.route(make_message("m", f"queue://{name}"))


def test_parts_may_stand_for_others() -> None:
    routed = router(VirtualTopic(), composite("queue://A", "queue://B"), queues=("Consumer.a.VirtualTopic.X",))
    assert originals(routed, "queue://A,topic://VirtualTopic.X") == {
        "queue://B": "queue://A",
        "queue://Consumer.a.VirtualTopic.X": "topic://VirtualTopic.X",
        "topic://VirtualTopic.X": "queue://A,topic://VirtualTopic.X",
    }


# ---------------------------------------------------------------- virtual topics


def test_a_virtual_topic_feeds_its_queues_and_then_itself() -> None:
    routed = router(
        VirtualTopic(),
        queues=(
            "Consumer.a.VirtualTopic.X",
            "Consumer.b.VirtualTopic.X",
            "Consumer.a.VirtualTopic.Y",
            "VirtualTopic.X",
        ),
    )
    message = make_message("m", "topic://VirtualTopic.X")
    copies = routed.route(message)
    assert copies is not None
    way = list(copies)
    assert [target for target, _ in way] == [
        "queue://Consumer.a.VirtualTopic.X",
        "queue://Consumer.b.VirtualTopic.X",
        "topic://VirtualTopic.X",
    ]
    assert way[-1][1] is message
    assert view(way[0][1]).original_destination == topic("VirtualTopic.X")


def test_without_a_queue_only_the_topic_gets_the_message() -> None:
    message = make_message("m", "topic://VirtualTopic.X")
    copies = router(VirtualTopic()).route(message)
    assert copies is not None
    assert list(copies) == [("topic://VirtualTopic.X", message)]


def test_queues_are_seen_as_they_come_and_go() -> None:
    routed = router(VirtualTopic())
    name = queue("Consumer.a.VirtualTopic.X")
    assert targets(routed, "topic://VirtualTopic.X") == ["topic://VirtualTopic.X"]
    routed.queue_added(name)
    routed.queue_added(name)
    assert targets(routed, "topic://VirtualTopic.X") == [str(name), "topic://VirtualTopic.X"]
    routed.queue_removed(name)
    assert targets(routed, "topic://VirtualTopic.X") == ["topic://VirtualTopic.X"]
    routed.queue_removed(name)


@pytest.mark.parametrize(
    ("literal", "gets"),
    [
        ("Consumer.w.VirtualTopic.>", {"VirtualTopic", "VirtualTopic.X", "VirtualTopic.X.Y"}),
        ("Consumer.w.VirtualTopic.*", {"VirtualTopic.X"}),
        ("Consumer.*.VirtualTopic.X", {"VirtualTopic.X"}),
        ("Consumer.w.>", {"VirtualTopic", "VirtualTopic.X", "VirtualTopic.X.Y"}),
        ("Consumer.>", {"VirtualTopic", "VirtualTopic.X", "VirtualTopic.X.Y"}),
        ("Consumer.w.*.X", {"VirtualTopic.X"}),
        ("Consumer.w.Other.>", set()),
        ("Consumer.w", set()),
        ("Consumer.w.VirtualTopic.x", set()),
    ],
)
def test_consumer_queue_of_a_pattern_gets_its_topics(literal: str, gets: set[str]) -> None:
    routed = router(VirtualTopic(), queues=(literal,))
    topics = ("VirtualTopic", "VirtualTopic.X", "VirtualTopic.X.Y")
    assert {name for name in topics if f"queue://{literal}" in targets(routed, f"topic://{name}")} == gets
    routed.queue_removed(queue(literal))
    assert targets(routed, "topic://VirtualTopic.X") == ["topic://VirtualTopic.X"]


@pytest.mark.parametrize(
    ("name", "creates"),
    [
        ("Consumer.w.VirtualTopic.>", True),
        ("Consumer.*.VirtualTopic.X", True),
        ("Consumer.w.>", True),
        ("Consumer.w.VirtualTopic.X", False),
        ("Consumer.w.ORDERS.>", False),
        ("ORDERS.>", False),
        (">", True),
    ],
)
def test_pattern_consumer_creates_queue_of_its_name(name: str, creates: bool) -> None:
    routed = router(VirtualTopic())
    assert routed.creates_queue(queue(name)) is creates
    assert not routed.creates_queue(topic(name))


@pytest.mark.parametrize(
    ("definition", "topic_name", "queue_name"),
    [
        (VirtualTopic(name="*.EVENTS", prefix="VQ.", postfix=""), "A.EVENTS", "VQ.A.EVENTS"),
        (VirtualTopic(name=">", prefix="", postfix=".Queue"), "A.B", "A.B.Queue"),
        (VirtualTopic(name=">", prefix="Q-", postfix="-q"), "A.B", "Q-A.B-q"),
        (VirtualTopic(name=">", prefix="Consumer.*.", postfix=".*"), "A", "Consumer.1.A.*"),
        (VirtualTopic(name="A.>", prefix="*.*.", postfix=".q"), "A", "x.y.A.q"),
        (VirtualTopic(name="A.>", prefix="C.*.", postfix=".q"), "A.B", "C.w.A.>"),
        (VirtualTopic(name="A.>", prefix="C.*.", postfix=".q"), "A", "C.w.A.>"),
        (VirtualTopic(name="A.>", prefix="C.*.", postfix="-q"), "A.B", "C.w.A.>"),
        (VirtualTopic(name="A.>", prefix="C.*.", postfix="-q"), "A", "C.w.*.>"),
    ],
)
def test_prefix_and_postfix_are_the_operators(definition: VirtualTopic, topic_name: str, queue_name: str) -> None:
    routed = router(definition, queues=(queue_name, "other"))
    assert targets(routed, f"topic://{topic_name}") == [f"queue://{queue_name}", f"topic://{topic_name}"]


def test_postfix_in_last_level_is_no_pattern() -> None:
    """The queue of topic A would be C.w.A-q."""
    routed = router(VirtualTopic(name="A.>", prefix="C.*.", postfix="-q"), queues=("C.w.A.>",))
    assert targets(routed, "topic://A") == ["topic://A"]


def test_selector_aware_queue_gets_what_its_consumers_accept() -> None:
    queues: Queues = {queue("Consumer.a.VirtualTopic.X"): Queue(), queue("Consumer.b.VirtualTopic.X"): Queue()}
    routed = router(VirtualTopic(selector_aware=True), queues=queues)
    a, b = queues
    queues[a].consumers += [
        SelectorAwareConsumer(lambda message: False),
        SelectorAwareConsumer(lambda message: message.priority > 5),
    ]
    assert targets(routed, "topic://VirtualTopic.X", priority=9) == [str(a), "topic://VirtualTopic.X"]
    assert targets(routed, "topic://VirtualTopic.X", priority=1) == ["topic://VirtualTopic.X"]
    queues[b].consumers.append(SelectorAwareConsumer(lambda message: True))
    assert targets(routed, "topic://VirtualTopic.X", priority=1) == [str(b), "topic://VirtualTopic.X"]


def test_several_virtual_topics_each_feed_their_queues() -> None:
    routed = router(VirtualTopic(), VirtualTopic(name=">", prefix="VQ."), queues=("VQ.VirtualTopic.X", "VQ.Y"))
    routed.queue_added(queue("Consumer.a.VirtualTopic.X"))
    assert targets(routed, "topic://VirtualTopic.X") == [
        "queue://Consumer.a.VirtualTopic.X",
        "queue://VQ.VirtualTopic.X",
        "topic://VirtualTopic.X",
    ]
    assert targets(routed, "topic://Y") == ["queue://VQ.Y", "topic://Y"]


@interpreted
def test_queue_lookup_of_a_topic_skips_other_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def matching(pattern: str, name: str) -> bool:
        compared.append(pattern)
        return matches(pattern, name)

    routed = router(VirtualTopic(), queues=tuple(f"Consumer.a.VirtualTopic.T{n}" for n in range(1000)))
    routed.queue_added(queue("Consumer.w.VirtualTopic.>"))
    monkeypatch.setattr(virtual, "matches", matching)
    monkeypatch.setattr(VirtualTopic, "topics_of", lambda *_: pytest.fail("a queue's name is read when it is added"))
    assert targets(routed, "topic://VirtualTopic.T500") == [
        "queue://Consumer.a.VirtualTopic.T500",
        "queue://Consumer.w.VirtualTopic.>",
        "topic://VirtualTopic.T500",
    ]
    assert compared == ["VirtualTopic.>"], "the definition; the queue whose name is a pattern is found in a map"


# ---------------------------------------------------------------- composite queues and topics


def test_a_composite_destination_forwards_and_keeps_nothing() -> None:
    routed = router(composite("queue://ORDERS", "queue://BILLING", "topic://AUDIT"))
    assert originals(routed, "queue://ORDERS") == {
        "queue://BILLING": "queue://ORDERS",
        "topic://AUDIT": "queue://ORDERS",
    }


def test_composite_keeps_a_copy_unless_forward_only() -> None:
    routed = router(composite("queue://ORDERS", "queue://BILLING", forward_only=False))
    assert originals(routed, "queue://ORDERS") == {"queue://BILLING": "queue://ORDERS", "queue://ORDERS": None}
    assert targets(routed, "queue://ORDERS") == ["queue://BILLING", "queue://ORDERS"]


def test_a_pattern_names_many_composite_destinations_of_its_type() -> None:
    routed = router(composite("topic://A.>", "queue://ALL"))
    assert targets(routed, "topic://A.B.C") == targets(routed, "topic://A") == ["queue://ALL"]
    assert is_plain(routed, queue("A.B"))


def test_filtered_target_gets_messages_of_its_selector() -> None:
    large = Forward(destination=queue("LARGE"), selector="amount > 1000")
    routed = router(composite("queue://ORDERS", "queue://ALL", large))
    assert targets(routed, "queue://ORDERS", properties={"amount": 1001}) == ["queue://ALL", "queue://LARGE"]
    assert targets(routed, "queue://ORDERS", properties={"amount": 1000}) == ["queue://ALL"]


@pytest.mark.parametrize("forward_only", [True, False])
def test_a_message_without_a_target_is_kept_under_the_policy(forward_only: bool) -> None:
    large = Forward(destination=queue("LARGE"), selector="amount > 1000")
    routed = router(composite("queue://ORDERS", large, send_when_not_matched=True, forward_only=forward_only))
    assert targets(routed, "queue://ORDERS", properties={"amount": 1001}) == ["queue://LARGE"]
    assert targets(routed, "queue://ORDERS", properties={"amount": 1}) == ["queue://ORDERS"]


def test_a_message_without_a_target_is_dropped_by_default() -> None:
    routed = router(composite("queue://ORDERS", Forward(destination=queue("LARGE"), selector="amount > 1000")))
    assert targets(routed, "queue://ORDERS") == []


def test_a_bad_selector_is_found_at_once() -> None:
    with pytest.raises(InvalidSelector):
        router(composite("queue://ORDERS", Forward(destination=queue("LARGE"), selector="amount >")))


def test_definitions_of_one_destination_add_up() -> None:
    routed = router(
        composite("queue://A", "queue://B"),
        composite("queue://>", "queue://ALL", forward_only=False),
        VirtualTopic(name="T"),
        composite("topic://T", "queue://ALL"),
    )
    assert targets(routed, "queue://A") == ["queue://ALL", "queue://B", "queue://A"]
    assert targets(routed, "topic://T") == ["queue://ALL", "topic://T"], "a virtual topic always keeps its own"


def test_chains_are_followed_and_name_the_step_before() -> None:
    routed = router(
        composite("queue://A", "topic://VirtualTopic.A"),
        VirtualTopic(),
        composite("queue://Consumer.*.VirtualTopic.A", "queue://C"),
        queues=("Consumer.x.VirtualTopic.A",),
    )
    assert originals(routed, "queue://A") == {
        "queue://C": "queue://Consumer.x.VirtualTopic.A",
        "topic://VirtualTopic.A": "queue://A",
    }


def test_a_target_gets_one_copy_however_many_ways_lead_there() -> None:
    routed = router(
        composite("queue://A", "queue://B", "queue://C"),
        composite("queue://B", "queue://D"),
        composite("queue://C", "queue://D"),
    )
    assert originals(routed, "queue://A") == {"queue://D": "queue://B"}


def test_a_circle_keeps_the_message_where_it_closes() -> None:
    routed = router(composite("queue://A", "queue://B"), composite("queue://B", "queue://C", "queue://A"))
    assert originals(routed, "queue://A") == {"queue://C": "queue://B", "queue://A": "queue://B"}


def test_a_chain_ends_after_so_many_hops() -> None:
    routed = router(*(composite(f"queue://Q{n}", f"queue://Q{n + 1}") for n in range(HOPS_MAX + 10)))
    assert targets(routed, "queue://Q0") == [f"queue://Q{HOPS_MAX}"]


# ---------------------------------------------------------------- queues that have to be kept


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("Consumer.a.VirtualTopic.X", True),
        ("Consumer.a.VirtualTopic.>", True),
        ("Consumer.a.>", True),
        ("Consumer.a.ORDERS", False),
        ("VirtualTopic.X", False),
        ("ORDERS", False),
    ],
)
def test_queues_of_virtual_topics_are_kept_and_no_others(name: str, is_kept: bool) -> None:
    kept: list[Destination] = []
    routed: Router[str] = Router([VirtualTopic()], {}, str, declare=kept.append)
    routed.queue_added(queue(name))
    routed.queue_added(topic(name))
    routed.queue_added(Destination(DestinationType.TEMP_QUEUE, name))
    assert kept == [queue(name)] * is_kept


def test_nothing_is_kept_without_virtual_topics() -> None:
    kept: list[Destination] = []
    routed: Router[str] = Router([MirroredQueues(), composite("queue://A", "queue://B")], {}, str, declare=kept.append)
    routed.queue_added(queue("Consumer.a.VirtualTopic.X"))
    routed.queue_added(queue("B"))
    assert kept == []


# ---------------------------------------------------------------- mirrored queues


def test_a_mirrored_queues_messages_appear_on_a_topic_first() -> None:
    routed = router(MirroredQueues())
    assert originals(routed, "queue://ORDERS") == {"topic://VirtualTopic.Mirror.ORDERS": None, "queue://ORDERS": None}
    assert targets(routed, "queue://ORDERS") == ["topic://VirtualTopic.Mirror.ORDERS", "queue://ORDERS"]
    assert is_plain(routed, topic("ORDERS"))


def test_mirrors_have_configured_names_or_are_virtual_topics() -> None:
    routed = router(
        VirtualTopic(), MirroredQueues(prefix="VirtualTopic.", postfix=".m"), queues=("Consumer.a.VirtualTopic.Q.m",)
    )
    assert targets(routed, "queue://Q") == [
        "topic://VirtualTopic.Consumer.a.VirtualTopic.Q.m.m",
        "queue://Consumer.a.VirtualTopic.Q.m",
        "topic://VirtualTopic.Q.m",
        "queue://Q",
    ]


# ---------------------------------------------------------------- with the core


def test_copies_are_ordinary_messages_of_the_core(world: World) -> None:
    broker = world.broker
    client = world.client()
    inbox, other, live = (
        client.subscribe(name)
        for name in ("queue://Consumer.a.VirtualTopic.X", "queue://Consumer.b.VirtualTopic.X", "topic://VirtualTopic.X")
    )
    routed = Router((VirtualTopic(selector_aware=True),), broker.queues, broker.destinations.target)
    for target, copy in routed.route(make_message("m", "topic://VirtualTopic.X")) or ():
        target.send(copy)
    assert inbox.ids == other.ids == live.ids == ["m"]
    assert inbox.deliveries[0].message.destination == queue("Consumer.a.VirtualTopic.X")
    inbox.ack()
    recovered = world.start()
    stored = {str(destination): len(found.pending) for destination, found in recovered.queues.items()}
    assert stored["queue://Consumer.b.VirtualTopic.X"] == 1
    assert stored.get("queue://Consumer.a.VirtualTopic.X", 0) == 0
