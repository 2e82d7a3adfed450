"""Deliveries settled by message id, in any order: each is found, with an index as without."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import consumer as consumer_module
from tests.compiled import interpreted
from tests.unit.core.backlogs import World

pytestmark = interpreted

STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "send", "ack", "ack", "again", "reject", "unknown"]), st.integers(0, 50)),
    max_size=60,
)


@given(steps=STEPS, prefetch=st.integers(1, 20))
def test_delivery_is_found_in_every_history(steps, prefetch):
    with mock.patch.object(consumer_module, "_LOOKED_AT_MAX", 1):
        world = World()
        client = world.consume(prefetch=prefetch)
        consumer = client.consumer
        for number, (what, value) in enumerate(steps):
            held = list(consumer.outstanding)
            if what == "send":
                world.put(str(number))
            elif what == "unknown":
                assert consumer.outstanding_through("nobody:1", "nobody:1") == ()
            elif held:
                wanted = held[value % len(held)]
                message_id = wanted.message.message_id
                assert list(consumer.outstanding_through(message_id, message_id)) == [wanted]
                if what == "again":
                    consumer.acknowledge(wanted)
                    consumer.reinstate([wanted])
                    assert list(consumer.outstanding)[: len(held)] == held
                elif what == "ack":
                    assert consumer.acknowledge_each([message_id]) == []
                    assert consumer.acknowledge_each([message_id]) == [message_id]
                else:
                    consumer.reject(wanted, "cause")
            for reference in consumer.outstanding:
                message_id = reference.message.message_id
                assert list(consumer.outstanding_through(message_id, message_id)) == [reference]


def test_copies_of_one_message_are_found_oldest_first():
    with mock.patch.object(consumer_module, "_LOOKED_AT_MAX", 1):
        world = World()
        client = world.consume(prefetch=100)
        for number in range(3):
            world.put(str(number))
        twin = client.got[1].message
        world.queue.enqueue(twin)
        message_id = twin.message_id
        consumer = client.consumer
        assert consumer.outstanding_through(message_id, message_id)[0] is client.got[1]
        consumer.acknowledge_each([message_id])
        assert consumer.outstanding_through(message_id, message_id)[0] is client.got[3]
        consumer.acknowledge_each([message_id])
        assert consumer.outstanding_through(message_id, message_id) == ()


def test_window_settled_from_its_end_is_indexed_once():
    world = World()
    client = world.consume(prefetch=1000)
    world.put(*map(str, range(1000)))
    consumer = client.consumer
    for delivery in reversed(client.got):
        assert consumer.acknowledge_each([delivery.message.message_id]) == []
    assert not consumer.outstanding
    assert consumer._index is None
