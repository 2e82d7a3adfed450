# mypy: disable-error-code="attr-defined, union-attr"
"""What a browser remembers of its deliveries: a few bytes each, and enough for every way to acknowledge them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core.browsing import BrowsedDeliveries, BrowserConsumer
from pybroker.broker.domain.errors import RequestError
from pybroker.broker.domain.message import BodilessMessage
from tests.unit.core.conftest import Inbox, World

COUNT = 20


@given(operations=st.lists(st.tuples(st.sampled_from(["append", "remove", "back"]), st.integers(0, 9)), max_size=60))
def test_deliveries_behave_like_a_list_of_pairs(operations):
    deliveries, model, removed, newest = BrowsedDeliveries(), [], [], 0
    for what, number in operations:
        match what:
            case "append":
                newest += 1 + number
                deliveries.append(newest, number - 5)
                model.append((newest, number - 5))
            case "remove" if model:
                removed.append(model.pop(number % len(model)))
                deliveries.remove(deliveries.index(removed[-1][0]))
            case "back":
                deliveries.put_back(removed[:number])
                model, removed = sorted(model + removed[:number]), removed[number:]
        hashes = [id_hash for _, id_hash in model]
        assert len(deliveries) == len(model)
        assert [(deliveries.number(each), deliveries.id_hash(each)) for each in range(len(model))] == model
        for wanted in range(-5, 5):
            assert deliveries.find(wanted) == (hashes.index(wanted) if wanted in hashes else -1)
            stop = len(model) // 2
            last = max((at for at in range(len(hashes)) if hashes[at] == wanted and at <= stop), default=-1)
            assert deliveries.find_last(wanted, stop) == last
        for each, _ in removed:
            assert deliveries.index(each) == -1


def filled(world: World, **request: object) -> Inbox:
    world.client().send("queue://Q", *map(str, range(COUNT)))
    return world.client().subscribe("queue://Q", browser=True, **request)


def browsed(inbox: Inbox) -> int:
    assert isinstance(inbox.consumer, BrowserConsumer)
    return len(inbox.consumer._browsed)


def ids(inbox: Inbox, *indexes: int) -> list[str]:
    return [inbox.deliveries[index].message.message_id for index in indexes]


def test_a_browser_keeps_neither_bodies_nor_references(world):
    inbox = filled(world)
    assert inbox.ids == list(map(str, range(COUNT)))
    assert all(isinstance(each.message, BodilessMessage) for each in inbox.deliveries)
    assert not inbox.consumer.outstanding
    assert browsed(inbox) == COUNT
    assert list(inbox.consumer.unsettled()) == []
    assert list(inbox.consumer.delivered()) == []


def test_the_window_opens_with_each_acknowledgement(world):
    inbox = filled(world, prefetch=5)
    assert len(inbox.deliveries) == 5
    inbox.ack(2)
    assert len(inbox.deliveries) == 6
    inbox.ack(2)
    assert len(inbox.deliveries) == 6, "it was acknowledged before"
    inbox.consumer.acknowledge_through(inbox.deliveries[3])
    assert len(inbox.deliveries) == 9
    inbox.consumer.expire(inbox.deliveries[4])
    assert len(inbox.deliveries) == 10
    inbox.consumer.acknowledge_all(inbox.deliveries[6:10])
    assert len(inbox.deliveries) == 14
    assert browsed(inbox) == 5


def test_a_range_of_ids_is_found(world):
    inbox = filled(world)
    first, last = ids(inbox, 3, 7)
    found = inbox.consumer.outstanding_through(first, last)
    assert [each.delivery for each in found] == [4, 5, 6, 7, 8]
    assert len(inbox.consumer.outstanding_through(None, last)) == 8
    assert len(inbox.consumer.outstanding_through(last, last)) == 1
    assert inbox.consumer.outstanding_through(last, first) == ()
    assert inbox.consumer.outstanding_through(None, "a:1:1:1") == ()
    inbox.consumer.acknowledge_all(found)
    assert browsed(inbox) == COUNT - 5
    assert inbox.consumer.outstanding_through(first, last) == ()
    assert inbox.consumer.acknowledge_each([*ids(inbox, 9, 0), last, "a:1:1:1"]) == [last, "a:1:1:1"]
    assert browsed(inbox) == COUNT - 7


def test_many_acknowledgements_are_settled(world):
    world.client().send("queue://Q", *map(str, range(600)))
    inbox = world.client().subscribe("queue://Q", browser=True, prefetch=1000)
    inbox.consumer.acknowledge_through(inbox.deliveries[-1])
    assert browsed(inbox) == 0


@pytest.mark.parametrize("outcome", ["commit", "rollback", "close"])
def test_an_acknowledgement_in_a_transaction_ends_with_it(world, outcome):
    inbox = filled(world, prefetch=5)
    connection = inbox.consumer.connection
    transaction = connection.begin()
    first, last = ids(inbox, 0, 2)
    inbox.consumer.acknowledge_all(inbox.consumer.outstanding_through(first, last), transaction)
    inbox.consumer.acknowledge(inbox.deliveries[3], transaction)
    assert browsed(inbox) == 5
    assert len(inbox.deliveries) == 9
    if outcome == "close":
        connection.close()
        assert browsed(inbox) == 0
    else:
        getattr(connection, outcome)(transaction)
        assert browsed(inbox) == (9 if outcome == "rollback" else 5)
    if outcome == "rollback":
        assert len(inbox.consumer.outstanding_through(first, last)) == 3
        assert inbox.consumer.outstanding_through(first, first)[0].delivery == 1
    assert world.client().subscribe("queue://Q").ids == list(map(str, range(COUNT)))


def test_a_window_may_be_granted_or_pulled(world):
    granted = filled(world, prefetch=5)
    granted.consumer.grant(3)
    assert len(granted.deliveries) == 8
    pulling = world.client().subscribe("queue://Q", browser=True, prefetch=0)
    assert pulling.ids == []
    pulling.consumer.pull(2)
    assert pulling.ids == ["0", "1"]
    pulling.ack(0)
    pulling.consumer.pull()
    assert pulling.ids == ["0", "1", "2"]


def test_a_browser_rejects_nothing(world):
    inbox = filled(world)
    with pytest.raises(RequestError, match="Cannot Nack a message on a Queue Browser"):
        inbox.consumer.reject(inbox.deliveries[0], "no use")
    with pytest.raises(RequestError, match="Cannot Nack a message on a Queue Browser"):
        inbox.consumer.reject_all(inbox.deliveries, "no use")


def test_a_delivery_that_fails_does_not_end_the_browse(world):
    world.client().send("queue://Q", "a", "b", "c")
    inbox = world.client().subscribe("queue://Q", browser=True, prefetch=2)
    inbox.consumer.deliver = lambda delivery: 1 // 0
    inbox.ack(0)
    inbox.ack(1)
    assert inbox.ended
    assert browsed(inbox) == 1
