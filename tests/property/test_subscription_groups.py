"""Subscriptions to topics by name, by wildcard and by both: each message once to each that matches, in their order."""

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
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), SUBSCRIPTIONS),
        st.tuples(st.just("close"), st.integers(0, 20)),
        st.tuples(st.just("publish"), st.sampled_from(NAMES)),
        st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    ),
    max_size=30,
)


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
            assert got == expected
            for name in NAMES:
                count = len(open_places(members, name))
                if found := world.broker.topics.get(topic(name)):
                    assert (found.is_in_use, found.subscription_count) == (count > 0, count)


def open_places(members: list[Member], name: str) -> list[int]:
    """Return the places of the members that are open and match a topic."""
    return [
        place
        for place, member in enumerate(members)
        if not member.consumer.closed and member.request.wants(topic(name))
    ]
