"""Subscriptions to topics by name, by wildcard and by both: each message once to each that matches, in their order."""

from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import topic as topics
from pybroker.broker.core.policy import DestinationPolicy
from pybroker.broker.domain.delivery import Delivery
from pybroker.broker.domain.destination import is_advisory, topic
from pybroker.broker.domain.openwire.message import view
from pybroker.broker.domain.subscription import ConsumerRequest
from pybroker.store.memory import MemoryStore
from tests.compiled import interpreted
from tests.unit.core.conftest import Client, World

NAMES = ["A", "A.B", "A.C", "B"]
WANTED = [*NAMES, ">", "A.>", "A.*", "*", "*.B", "B.>"]


class Member:
    """A consumer of a broker, and its request."""

    def __init__(self, client: Client, names: list[str], got: list[tuple[int, str]], place: int) -> None:
        first, *others = (topic(name) for name in names)
        self.request = ConsumerRequest(destination=first, composite=tuple(others))

        def deliver(delivery: Delivery) -> None:
            if not is_advisory(delivery.message.destination):
                got.append((place, (view(delivery.message).content or b"").decode()))

        self.consumer = client.connection.subscribe(self.request, deliver, None)
        self.consumer.start()


SUBSCRIPTIONS = st.lists(st.sampled_from(WANTED), min_size=1, max_size=3, unique=True)
OPERATION = st.one_of(
    st.tuples(st.just("subscribe"), SUBSCRIPTIONS),
    st.tuples(st.just("close"), st.integers(0, 20)),
    st.tuples(st.just("publish"), st.sampled_from(NAMES)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
)
OPERATIONS = st.lists(OPERATION, max_size=30)


@interpreted
@pytest.mark.parametrize("remembered_max", [0, 2, 64])
@given(operations=OPERATIONS)
def test_each_message_goes_once_to_all_that_match_in_order(remembered_max, operations):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "DIRECT_MAX", remembered_max)
        world = World(MemoryStore(), DestinationPolicy())
        client = world.client()
        members: list[Member] = []
        got: list[tuple[int, str]] = []
        expected: list[tuple[int, str]] = []
        for number, (kind, value) in enumerate(operations):
            if kind == "subscribe":
                members.append(Member(client, value, got, len(members)))
            elif kind == "close" and value < len(members):
                members[value].consumer.close()
            elif kind == "publish":
                client.send(f"topic://{value}", str(number))
                expected += [(place, str(number)) for place in open_places(members, value)]
            elif kind == "remove" and not open_places(members, value):
                client.connection.remove_destination(topic(value))
            # Topics of more groups than they remember serve one group after the other.
            assert got == expected if remembered_max == 64 else by_place(got) == by_place(expected)
            for name in NAMES:
                count = len(open_places(members, name))
                if found := world.broker.topics.get(topic(name)):
                    assert (found.is_in_use, found.subscription_count) == (count > 0, count)


@interpreted
@pytest.mark.parametrize("remembered_max", [0, 2, 64])
@given(
    operations=st.lists(st.one_of(OPERATION, st.tuples(st.just("turns"), st.integers(1, 5))), max_size=40),
    piece=st.integers(1, 4),
)
def test_messages_in_pieces_come_once_to_those_that_stay(remembered_max, operations, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topics, "DIRECT_MAX", remembered_max)
        patch.setattr(topics, "FAN_OUT_PIECE", piece)
        world = World(MemoryStore(), DestinationPolicy())
        turns: deque[Callable[[], None]] = deque()
        world.broker.usage.paging.later = turns.append
        client = world.client()
        members: list[Member] = []
        got: list[tuple[int, str]] = []
        expected: list[tuple[int, str]] = []
        for number, (kind, value) in enumerate(operations):
            if kind == "subscribe":
                members.append(Member(client, value, got, len(members)))
            elif kind == "close" and value < len(members):
                members[value].consumer.close()
            elif kind == "publish":
                client.send(f"topic://{value}", f"{value} {number}")
                expected += [(place, f"{value} {number}") for place in open_places(members, value)]
            elif kind == "turns":
                for _ in range(min(value, len(turns))):
                    turns.popleft()()
        while turns:
            turns.popleft()()
        got_by_place, expected_by_place = by_place(got), by_place(expected)
        for place, member in enumerate(members):
            for name in NAMES:  # messages of several topics may come in another order, as some go to more consumers
                received, sent = of(name, got_by_place.get(place)), of(name, expected_by_place.get(place))
                assert received == (sent[: len(received)] if member.consumer.closed else sent)


def by_place(deliveries: list[tuple[int, str]]) -> dict[int, list[str]]:
    """Return the deliveries of each member."""
    found: dict[int, list[str]] = {}
    for place, content in deliveries:
        found.setdefault(place, []).append(content)
    return found


def of(name: str, contents: list[str] | None) -> list[str]:
    """Return the messages of one topic."""
    return [each for each in contents or () if each.split()[0] == name]


def open_places(members: list[Member], name: str) -> list[int]:
    """Return the places of the members that are open and match a topic."""
    return [
        place
        for place, member in enumerate(members)
        if not member.consumer.closed and member.request.wants(topic(name))
    ]
