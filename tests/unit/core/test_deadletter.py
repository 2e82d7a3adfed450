"""Dead letters: what is stored, where, with which properties, and what is dropped."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from pybroker.broker.core.deadletter import AUDITS_MAX, Audit, DeadLetters, DiscardedLetters
from pybroker.broker.core.policy import (
    AnyDeadLetterStrategy,
    DestinationPolicy,
    DiscardingDeadLetterStrategy,
    IndividualDeadLetterStrategy,
    SharedDeadLetterStrategy,
)
from pybroker.broker.domain.destination import Destination, DestinationType, parse, queue, topic
from pybroker.broker.domain.errors import ResourceLimit, StoreUnavailable
from pybroker.broker.domain.linear_expression import LinearExpression
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import decode, view
from pybroker.broker.domain.openwire.values import Long
from pybroker.store.memory import MemoryStore
from tests.unit.core.conftest import World, make_message

NOW = 1_000_000


@dataclass
class DeadLetterRig:
    """Dead letters under one strategy, and where they went."""

    strategy: AnyDeadLetterStrategy = field(default_factory=SharedDeadLetterStrategy)
    letters: list[tuple[str, Message]] = field(default_factory=list)
    events: list[tuple[str, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dead_letters = DeadLetters(
            target=lambda destination: Target(self, destination),
            clock=lambda: NOW,
            strategies=lambda destination: self.strategy,
            on_dead_lettered=lambda message, letter, cause: self.events.append(
                (f"dead-lettered: {cause}", None if letter is None else str(letter.destination))
            ),
            on_expired=lambda message: self.events.append(("expired", None)),
        )

    def dead_letter(self, message: Message, cause: str = "why", subscription_key: str | None = None) -> Message | None:
        """Bury a message and return the letter, if there was one."""
        before = len(self.letters)
        self.dead_letters.dead_letter(message, cause, subscription_key=subscription_key)
        return self.letters[-1][1] if len(self.letters) > before else None

    def places(self) -> list[str]:
        return [place for place, _ in self.letters]


@dataclass
class Target:
    rig: DeadLetterRig
    destination: Destination

    def send(self, message: Message) -> None:
        assert message.destination == self.destination == view(message).destination
        self.rig.letters.append((str(self.destination), message))


def shared(**options: object) -> DeadLetterRig:
    return DeadLetterRig(SharedDeadLetterStrategy(**options))  # type: ignore[arg-type]


def individual(**options: object) -> DeadLetterRig:
    return DeadLetterRig(IndividualDeadLetterStrategy(**options))  # type: ignore[arg-type]


# ---------------------------------------------------------------- the letter


@pytest.mark.parametrize("origin", ["queue://ORDERS", "topic://PRICES"])
def test_a_letter_is_the_message_with_its_origin_and_cause(origin: str) -> None:
    message = make_message("body", origin, priority=7, expiration=NOW + 5, properties={"k": 1})
    letter = DeadLetterRig().dead_letter(message, "java.lang.Throwable: enough")
    assert letter is not None
    fields = view(letter)
    assert (letter.message_id, letter.priority, fields.content) == (message.message_id, 7, b"body")
    assert (letter.persistent, letter.expiration, fields.redelivery_counter) == (True, 0, 0)
    assert fields.original_destination == parse(origin)
    assert fields.transaction_id is None
    assert fields.properties == {
        "k": 1,
        "dlqDeliveryFailureCause": "java.lang.Throwable: enough",
        "originalExpiration": NOW + 5,
    }
    assert type(fields.properties["originalExpiration"]) is Long


def test_original_expiration_is_set_and_never_overwritten() -> None:
    plain = DeadLetterRig().dead_letter(make_message("m", "queue://A"))
    letter = DeadLetterRig().dead_letter(
        make_message("m", "queue://A", expiration=9, properties={"originalExpiration": Long(5)})
    )
    assert plain is not None
    assert letter is not None
    assert view(plain).properties["originalExpiration"] == 0
    assert view(letter).properties["originalExpiration"] == 5


def test_dead_letter_that_expires_lacks_original_expiration() -> None:
    letter = shared(expiration=60_000).dead_letter(make_message("m", "queue://A", expiration=NOW + 1))
    assert letter is not None
    assert letter.expiration == view(letter).expiration == NOW + 60_000
    assert "originalExpiration" not in view(letter).properties


def test_expired_message_has_its_expiration_and_two_callbacks() -> None:
    rig = DeadLetterRig()
    rig.dead_letters.expire(make_message("m", "queue://A", expiration=NOW - 1))
    cause = f"java.lang.Throwable: Message Expired. Expiration:{NOW - 1}"
    assert view(rig.letters[0][1]).properties["dlqDeliveryFailureCause"] == cause
    assert rig.events == [(f"dead-lettered: {cause}", "queue://ActiveMQ.DLQ"), ("expired", None)]


def test_a_message_that_does_not_decode_is_kept_as_it_is() -> None:
    message = make_message("m", "queue://A", expiration=NOW - 1, properties={"a": 5})
    message.data, message.decoded = message.data.replace(b"a\x05", b"a\x63"), None
    taken: list[Message] = []

    class Plain:
        def send(self, message: Message) -> None:
            taken.append(message)

    DeadLetters(target=lambda destination: Plain(), clock=lambda: NOW).dead_letter(message, "why")
    (letter,) = taken
    fields, original = decode(letter.data), decode(message.data)
    assert (letter.destination, letter.expiration) == (queue("ActiveMQ.DLQ"), 0)
    assert fields == replace(
        original, destination=queue("ActiveMQ.DLQ"), original_destination=queue("A"), expiration=0
    ), "else a next master would take it for one of another queue, or drop it as expired"


# ---------------------------------------------------------------- what is dropped


def test_non_persistent_message_is_dropped_with_a_callback() -> None:
    rig = DeadLetterRig()
    assert rig.dead_letter(make_message("m", "queue://A", persistent=False)) is None
    assert rig.events == [("dead-lettered: why", None)]


def test_non_persistent_messages_become_persistent_and_marked() -> None:
    letter = shared(process_non_persistent=True).dead_letter(make_message("m", "queue://A", persistent=False))
    assert letter is not None
    assert letter.persistent
    assert view(letter).persistent
    assert view(letter).properties["originalDeliveryMode"] == "NON_PERSISTENT"


def test_persistent_messages_are_not_marked() -> None:
    letter = shared(process_non_persistent=True).dead_letter(make_message("m", "queue://A"))
    assert letter is not None
    assert "originalDeliveryMode" not in view(letter).properties


@pytest.mark.parametrize("expiration", [NOW - 1, NOW + 1])
def test_expired_messages_are_dropped_by_the_strategy(
    expiration: int,
) -> None:
    rig = shared(process_expired=False)
    rig.dead_letters.expire(make_message("m", "queue://A", expiration=expiration))
    assert rig.letters == []
    assert [event for event, _ in rig.events][1:] == ["expired"]


def test_rejected_message_that_has_expired_is_dropped_too() -> None:
    rig = shared(process_expired=False)
    assert rig.dead_letter(make_message("m", "queue://A", expiration=NOW - 1)) is None
    assert rig.dead_letter(make_message("m", "queue://A", expiration=NOW + 1)) is not None


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (shared, "queue://ActiveMQ.DLQ"),
        (individual, "queue://ActiveMQ.DLQ.Queue.A"),
        (individual, "queue://ActiveMQ.DLQ.Topic.A"),
        (lambda: individual(queue_prefix="", queue_suffix=".dead"), "queue://A.dead"),
        (lambda: individual(use_queue_for_topic_messages=False), "topic://ActiveMQ.DLQ.Topic.A"),
        (lambda: shared(dead_letter_queue=topic("DEAD")), "topic://DEAD"),
    ],
)
def test_what_dies_on_its_dead_letter_queue_is_dropped(make: Callable[[], DeadLetterRig], place: str) -> None:
    assert make().dead_letter(make_message("m", place)) is None


def test_a_discarding_strategy_drops_all() -> None:
    rig = DeadLetterRig(DiscardingDeadLetterStrategy(process_non_persistent=True))
    assert rig.dead_letter(make_message("m", "queue://A")) is None
    assert rig.events == [("dead-lettered: why", None)]


# ---------------------------------------------------------------- where letters go


@pytest.mark.parametrize(
    ("options", "origin", "place"),
    [
        ({}, "queue://A", "queue://ActiveMQ.DLQ.Queue.A"),
        ({}, "topic://A", "queue://ActiveMQ.DLQ.Topic.A"),
        ({}, "temp-queue://ID:1", "queue://ActiveMQ.DLQ.Queue.ID:1"),
        ({"queue_prefix": "DLQ.", "queue_suffix": ".x"}, "queue://A", "queue://DLQ.A.x"),
        ({"topic_prefix": "DLT.", "topic_suffix": ".x"}, "topic://A", "queue://DLT.A.x"),
        ({"use_queue_for_queue_messages": False}, "queue://A", "topic://ActiveMQ.DLQ.Queue.A"),
        ({"use_queue_for_topic_messages": False}, "topic://A", "topic://ActiveMQ.DLQ.Topic.A"),
        ({"destination_per_durable_subscriber": True}, "topic://A", "queue://ActiveMQ.DLQ.Topic.A.c:s"),
        ({"destination_per_durable_subscriber": True}, "queue://A", "queue://ActiveMQ.DLQ.Queue.A"),
    ],
)
def test_individual_dead_letter_queues(options: dict[str, object], origin: str, place: str) -> None:
    rig = individual(**options)
    rig.dead_letter(make_message("m", origin), subscription_key="c:s")
    assert rig.places() == [place]


def test_a_shared_one_has_any_name() -> None:
    rig = shared(dead_letter_queue=queue("DEAD"))
    rig.dead_letter(make_message("m", "topic://A"))
    assert rig.places() == ["queue://DEAD"]


def test_a_letter_whose_place_cannot_be_goes_to_the_shared_one() -> None:
    letters: list[Message] = []

    class Shared:
        def send(self, message: Message) -> None:
            letters.append(message)

    def target(destination: Destination) -> Shared:
        if destination != queue("ActiveMQ.DLQ"):
            raise ResourceLimit("too many destinations")
        return Shared()

    dead_letters = DeadLetters(
        target=target, clock=lambda: NOW, strategies=lambda destination: IndividualDeadLetterStrategy()
    )
    dead_letters.dead_letter(make_message("m", "queue://A"), "why")
    dead_letters.dead_letter(make_message("m", f"queue://{'n' * 65530}"), "why")
    assert [view(letter).destination for letter in letters] == [queue("ActiveMQ.DLQ")] * 2


# ---------------------------------------------------------------- duplicates


def copies(*destinations: str) -> list[Message]:
    """One message on several destinations."""
    first = make_message("m", destinations[0])
    found = []
    for destination in destinations:
        copy = make_message("m", destination)
        copy.message_id = first.message_id
        found.append(copy)
    return found


def test_an_id_gets_into_a_dead_letter_queue_once() -> None:
    rig = DeadLetterRig()
    first, again, copy = copies("queue://A", "queue://A", "queue://B")
    assert rig.dead_letter(first) is not None
    assert rig.dead_letter(again) is None
    assert rig.dead_letter(copy) is None
    assert rig.dead_letter(make_message("other", "queue://A")) is not None
    assert [place for _, place in rig.events] == ["queue://ActiveMQ.DLQ", None, None, "queue://ActiveMQ.DLQ"]


def test_copies_become_one_letter_in_each_individual_queue() -> None:
    rig = individual()
    for copy in copies("queue://A", "queue://B", "queue://A"):
        rig.dead_letter(copy)
    assert rig.places() == ["queue://ActiveMQ.DLQ.Queue.A", "queue://ActiveMQ.DLQ.Queue.B"]


def test_as_often_as_it_dies_without_an_audit() -> None:
    rig = shared(enable_audit=False)
    for copy in copies("queue://A", "queue://A"):
        rig.dead_letter(copy)
    assert len(rig.letters) == 2


def test_a_letter_that_could_not_be_sent_is_not_remembered() -> None:
    class Full:
        def send(self, message: Message) -> None:
            raise StoreUnavailable("the journal has stopped")

    rig = DeadLetterRig()
    message = make_message("m", "queue://A")
    works, rig.dead_letters._target = rig.dead_letters._target, lambda destination: Full()
    with pytest.raises(StoreUnavailable):
        rig.dead_letter(message)
    rig.dead_letters._target = works
    assert rig.dead_letter(message) is not None


def test_refused_dead_letter_goes_to_the_default_queue() -> None:
    class Refusing:
        def send(self, message: Message) -> None:
            raise RuntimeError("a copy of it cannot be made")

    rig = DeadLetterRig()
    rig.dead_letters._target = lambda destination: Refusing()
    rig.dead_letter(make_message("m", "queue://A"))
    assert rig.places() == ["queue://ActiveMQ.DLQ"]


def test_dead_letter_queues_are_remembered_up_to_a_limit() -> None:
    rig = individual()
    first = make_message("m", "queue://first")
    rig.dead_letter(first)
    for number in range(AUDITS_MAX):
        rig.dead_letters._audit(queue(str(number)), rig.strategy)
    assert len(rig.dead_letters._audits) == AUDITS_MAX
    assert rig.dead_letter(first) is not None, "the one used longest ago is forgotten"


def test_an_audit_knows_the_last_numbers_of_the_last_producers() -> None:
    audit = Audit(depth=4, producers=2)
    for sequence in (1, 2, 4, 7):
        audit.add(f"c:1:1:{sequence}")
    assert [sequence for sequence in range(-1, 12) if f"c:1:1:{sequence}" in audit] == [4, 7]
    audit.add("c:1:1:2")
    assert "c:1:1:2" not in audit, "older than the window"
    audit.add("c:1:1:5")
    assert [sequence for sequence in range(12) if f"c:1:1:{sequence}" in audit] == [4, 5, 7]
    audit.add("c:1:1:1000000000000")
    assert [sequence for sequence in range(12) if f"c:1:1:{sequence}" in audit] == []
    assert "c:1:1:1000000000000" in audit
    audit.add("c:1:2:1")
    audit.add("c:1:1:1000000000000")
    audit.add("c:1:3:1")
    assert ("c:1:1:1000000000000" in audit, "c:1:2:1" in audit, "c:1:3:1" in audit) == (True, False, True)


# ---------------------------------------------------------------- with the core


def test_rejected_message_is_dead_lettered_by_the_core(world: World) -> None:
    client = world.client()
    client.send("queue://A", "m")
    inbox = client.subscribe("queue://A")
    inbox.consumer.reject(inbox.deliveries[0], "because")
    letters = client.subscribe("queue://ActiveMQ.DLQ")
    assert letters.ids == ["m"]
    assert view(letters.deliveries[0].message).properties["dlqDeliveryFailureCause"] == "because"


def test_letters_of_a_temporary_queue_go_where_all_go(world: World) -> None:
    client = world.client()
    own = client.connection.create_temporary(DestinationType.TEMP_QUEUE)
    client.send(str(own), "m")
    inbox = client.subscribe(str(own))
    inbox.consumer.reject(inbox.deliveries[0], "because")
    assert client.subscribe("queue://ActiveMQ.DLQ").ids == ["m"]


def test_destinations_without_dead_letters_have_none() -> None:
    rig = DeadLetterRig()
    rig.dead_letters.discarded = DiscardedLetters(drop_all=False, drop_only=(LinearExpression(r"A\..*"),))
    assert rig.dead_letter(make_message("1", "queue://A.x")) is None
    assert rig.dead_letter(make_message("2", "queue://A")) is not None
    rig.dead_letters.expire(make_message("3", "topic://A.y", expiration=NOW - 1))
    assert rig.places() == ["queue://ActiveMQ.DLQ"]
    assert rig.events[0] == ("dead-lettered: why", None)
    rig.dead_letters.discarded = DiscardedLetters()
    assert rig.dead_letter(make_message("4", "queue://A")) is None
    assert sum(rig.dead_letters.sent.values()) == 1


# ---------------------------------------------------------------- consumers that leave


def leave(world: World, destination: str, times: int) -> None:
    """Have so many consumers get what waits, and end without an acknowledgement."""
    for _ in range(times):
        client = world.client()
        client.subscribe(destination)
        client.connection.close()


def without_dead_letters(place: str) -> World:
    """Return a broker whose queue `place` has no dead letters."""
    is_by_policy = place == "queue://BY.POLICY"
    strategy = DiscardingDeadLetterStrategy() if is_by_policy else SharedDeadLetterStrategy()
    world = World(MemoryStore(), DestinationPolicy(max_redeliveries=2, dead_letter_strategy=strategy))
    if place == "queue://BY.PLUGIN":
        world.broker.dead_letters.discarded = DiscardedLetters()
    return world


@pytest.mark.parametrize("place", ["queue://BY.POLICY", "queue://BY.PLUGIN", "queue://ActiveMQ.DLQ"])
def test_what_no_client_rejected_is_not_dropped(place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where there are no dead letters, a consumer that crashes again and again would delete it."""
    world = without_dead_letters(place)
    world.client().send(place, "m")
    with caplog.at_level("INFO"):
        leave(world, place, 10)
    assert f"on {place}: its consumers left it 3 times, and there are no dead letters of it" in caplog.text
    inbox = world.client().subscribe(place)
    assert inbox.ids == ["m"]
    inbox.consumer.reject(inbox.deliveries[0], "NACK")
    assert world.client().subscribe(place).ids == [], "a client has rejected it"


def test_what_is_not_persistent_is_dropped_when_its_consumers_left_too_often() -> None:
    world = without_dead_letters("queue://BY.PLUGIN")
    world.client().send("queue://Q", "m", persistent=False)
    leave(world, "queue://Q", 3)
    assert world.client().subscribe("queue://Q").ids == []
