"""What the settings change in messages that clients send: times and delivery mode, whatever else a message has."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.arrival_rules import ArrivalRules, TimeStamping
from pybroker.broker.core.policy import SharedDeadLetterStrategy
from pybroker.broker.domain.destination import parse
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.delivery_headers import DeliveryHeaders
from pybroker.broker.domain.openwire.message import decode, encode, to_message, view
from pybroker.broker.domain.transaction import LocalTransactionId
from tests.unit.core.conftest import World, make_message

NOW = 1_700_000_000_000
HOUR = 3_600_000


def stamping(**attributes: object) -> ArrivalRules:
    return ArrivalRules(time_stamping=TimeStamping(**attributes))  # type: ignore[arg-type]


def sent(*, timestamp: int, expiration: int = 0, bridges: tuple[str, ...] | None = None) -> Message:
    """A message with these headers."""
    fields = decode(make_message("m", "queue://A").data)
    return to_message(replace(fields, timestamp=timestamp, expiration=expiration, broker_path=bridges))


def times(message: Message) -> tuple[int, int]:
    fields = view(message)
    assert fields.expiration == message.expiration
    return fields.timestamp, fields.expiration


@pytest.mark.parametrize(
    ("attributes", "given_times", "expected"),
    [
        ({}, (NOW - HOUR, 0), (NOW, 0)),
        ({}, (NOW - HOUR, NOW - HOUR + 100), (NOW, NOW + 100)),
        ({}, (NOW + HOUR, NOW + HOUR + 100), (NOW, NOW + 100)),
        ({}, (0, 500), (0, 500)),  # no timestamp
        ({}, (-5, 500), (-5, 500)),
        ({}, (NOW - 100, NOW - 200), (NOW, NOW - 200)),  # expired when it was sent
        ({}, (1, 2**63 - 1), (NOW, 2**63 - 1)),  # the sum has no space
        ({"zero_expiration_override": 60_000}, (NOW - 5, 0), (NOW, NOW + 60_000)),
        ({"zero_expiration_override": 60_000}, (NOW - 5, NOW + 5), (NOW, NOW + 10)),
        ({"zero_expiration_override": 60_000}, (0, 0), (0, 0)),
        ({"zero_expiration_override": 60_000, "ttl_ceiling": 30_000}, (NOW, 0), (NOW, NOW + 30_000)),
        ({"ttl_ceiling": 30_000}, (NOW - HOUR, NOW), (NOW, NOW + 30_000)),
        ({"ttl_ceiling": 30_000}, (NOW, NOW + 30_000), (NOW, NOW + 30_000)),
        ({"ttl_ceiling": 30_000}, (NOW - 1, 0), (NOW, 0)),
        ({"future_only": True}, (NOW + HOUR, NOW + HOUR + 100), (NOW + HOUR, NOW + HOUR + 100)),
        ({"future_only": True}, (NOW - HOUR, NOW - HOUR + 100), (NOW, NOW + 100)),
        ({"future_only": True}, (NOW, NOW + 100), (NOW, NOW + 100)),
        ({"future_only": True}, (NOW + HOUR, 0), (NOW, 0)),
        ({"future_only": True}, (1, 2**63 - 1), (1, 2**63 - 1)),
    ],
)
def test_times_are_those_of_activemq(
    attributes: dict[str, object], given_times: tuple[int, int], expected: tuple[int, int]
) -> None:
    timestamp, expiration = given_times
    message = sent(timestamp=timestamp, expiration=expiration)
    assert times(stamping(**attributes).apply(message, "u", NOW)) == expected


@pytest.mark.parametrize("bridges", [None, (), ("ID:a",), ("ID:a", "ID:b")])
@pytest.mark.parametrize("processes", [True, False])
def test_what_came_over_a_bridge_stays_unless_told(bridges: tuple[str, ...] | None, processes: bool) -> None:
    message = sent(timestamp=5, bridges=bridges)
    stamped = stamping(process_network_messages=processes).apply(message, "u", NOW)
    assert times(stamped)[0] == (NOW if processes or not bridges else 5)


@given(
    correlation=st.none() | st.text(max_size=20),
    group=st.none() | st.text(max_size=20),
    reply_to=st.none() | st.sampled_from(["queue://R", "temp-topic://R"]),
    kind=st.none() | st.text(max_size=20),
    has_transaction=st.booleans(),
    persistent=st.booleans(),
    text=st.text(max_size=40),
    new=st.tuples(st.none() | st.booleans(), st.none() | st.integers(0, 2**63 - 1), st.none() | st.integers(0, 2**50)),
)
def test_other_bytes_are_kept(
    correlation: str | None,
    group: str | None,
    reply_to: str | None,
    kind: str | None,
    has_transaction: bool,
    persistent: bool,
    text: str,
    new: tuple[bool | None, int | None, int | None],
) -> None:
    fields = replace(
        decode(make_message(text, "queue://A", persistent=persistent, properties={"color": "red"}).data),
        correlation_id=correlation,
        group_id=group,
        reply_to=None if reply_to is None else parse(reply_to),
        jms_type=kind,
        original_transaction_id=LocalTransactionId("c", 1) if has_transaction else None,
        timestamp=77,
        expiration=88,
    )
    message = to_message(fields)
    view(message)
    delivery_mode, expiration, timestamp = new
    found = DeliveryHeaders(message).replaced(persistent=delivery_mode, expiration=expiration, timestamp=timestamp)
    expected = replace(
        fields,
        persistent=persistent if delivery_mode is None else delivery_mode,
        expiration=88 if expiration is None else expiration,
        timestamp=77 if timestamp is None else timestamp,
    )
    assert found.data == encode(expected)
    assert (found.persistent, found.expiration) == (expected.persistent, expected.expiration)
    assert (found.message_id, found.payload_size, found.size) == (
        message.message_id,
        message.payload_size,
        message.size,
    )
    assert found.decoded is None


def test_expiration_counts_from_the_brokers_time(world: World) -> None:
    """A client whose clock is an hour behind sends what ActiveMQ and pybroker would else drop as expired."""
    world.broker.arrival_rules = stamping()
    client = world.client()
    inbox = client.subscribe("queue://A")
    transaction = client.connection.begin()
    late = sent(timestamp=world.now_ms - 500_000, expiration=world.now_ms - 400_000)
    client.connection.send(late, transaction)
    assert inbox.ids == []
    client.connection.commit(transaction)
    (message,) = inbox.messages.values()
    assert times(message) == (world.now_ms, world.now_ms + 100_000)


def test_dead_letters_keep_their_times(world: World) -> None:
    world.broker.arrival_rules = stamping(zero_expiration_override=1000)
    client = world.client()
    client.connection.send(sent(timestamp=5))
    world.now_ms += 1001
    world.broker.remove_expired()
    letters = client.subscribe("queue://ActiveMQ.DLQ")
    (letter,) = letters.messages.values()
    assert times(letter) == (world.now_ms - 1001, 0)


def test_message_that_does_not_decode_is_refused(world: World) -> None:
    world.broker.arrival_rules = stamping()
    message = sent(timestamp=5)
    message.data = message.data[:60]
    with pytest.raises(RequestError, match="does not decode"):
        world.client().connection.send(message)


@pytest.mark.parametrize("as_sent", [True, False])
@pytest.mark.parametrize("persistency", [None, True, False])
def test_all_messages_have_one_delivery_mode(world: World, persistency: bool | None, as_sent: bool) -> None:
    world.broker.arrival_rules = ArrivalRules(persistency=persistency, populates_user=True)
    client = world.client()
    transaction = client.connection.begin()
    client.send("queue://A", "1", persistent=as_sent)
    client.connection.send(make_message("2", "queue://A", persistent=as_sent), transaction)
    client.connection.commit(transaction)
    inbox = client.subscribe("queue://A")
    expected = as_sent if persistency is None else persistency
    assert [(each.persistent, view(each).persistent) for each in inbox.messages.values()] == [(expected, expected)] * 2
    world.start()
    assert world.client().subscribe("queue://A").ids == (["1", "2"] if expected else [])
    assert client.connection.persistency is persistency


def test_dead_letters_stay_persistent(make_world: Callable[..., World]) -> None:
    world = make_world(dead_letter_strategy=SharedDeadLetterStrategy(process_non_persistent=True))
    world.broker.arrival_rules = ArrivalRules(persistency=False)
    client = world.client()
    client.send("queue://A", "m", expiration=world.now_ms + 1)
    world.now_ms += 2
    world.broker.remove_expired()
    (letter,) = client.subscribe("queue://ActiveMQ.DLQ").messages.values()
    assert letter.persistent
