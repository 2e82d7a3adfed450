"""Scheduled messages beside ordinary ones of the same producer, sent again after a crash between two stores' syncs."""

from collections.abc import Sequence
from unittest.mock import Mock

import pytest

from pybroker.broker.core import scheduler
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.commands import ActiveMQTextMessage, MessageDispatch, OpenWireMessageId
from pybroker.broker.domain.openwire.loose import MalformedOpenWire
from pybroker.broker.domain.openwire.values import Long, encode_map
from pybroker.broker.domain.ports import MessageStore
from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore
from tests.unit.transports.openwire.conversation import OpenWireClient, World, of_kind, texts

Q = queue("Q")
DELAY_MS = 5


class Master(World):
    """A master with a scheduler, on what the crash has left in each store."""

    def __init__(self, store: MessageStore, jobs: MemoryJobStore) -> None:
        super().__init__(store)
        self.jobs = jobs
        self.broker.open_scheduler(
            jobs, jobs.recover(), wake_at=lambda _: None, connection_id=f"ID:b-{id(self)}", jobs_max=10
        )

    def fire(self) -> None:
        self.clock.now_ms += DELAY_MS
        assert self.broker.scheduler is not None
        self.broker.scheduler.fire(self.clock())


def ordinary(client: OpenWireClient, number: int) -> ActiveMQTextMessage:
    return client.message(Q, f"ordinary {number}", message_id=OpenWireMessageId(None, client.producer(), number))


def scheduled(client: OpenWireClient, number: int) -> ActiveMQTextMessage:
    properties = encode_map({"AMQ_SCHEDULED_DELAY": Long(DELAY_MS)})
    message_id = OpenWireMessageId(None, client.producer(), number)
    return client.message(Q, f"scheduled {number}", message_id=message_id, marshalled_properties=properties)


def again(master: Master) -> OpenWireClient:
    return master.client(failover_reconnect=True)


def received(master: Master) -> Sequence[str | None]:
    """Return what a consumer gets of what has been sent, and of what is due by then."""
    master.fire()
    reader = master.client("reader")
    return sorted(map(str, texts(of_kind(reader.consume(Q), MessageDispatch))))


def test_a_scheduled_message_the_crash_took_is_scheduled() -> None:
    store = MemoryStore()
    client = Master(store, MemoryJobStore()).client()
    client.request(scheduled(client, 1), ordinary(client, 2))
    new_master = Master(store, MemoryJobStore())  # the message store was synced, the job store was not
    client = again(new_master)
    client.request(scheduled(client, 1), ordinary(client, 2))
    assert received(new_master) == ["ordinary 2", "scheduled 1"]


def test_an_ordinary_message_the_crash_took_is_stored() -> None:
    jobs = MemoryJobStore()
    client = Master(MemoryStore(), jobs).client()
    client.request(ordinary(client, 1), scheduled(client, 2))
    new_master = Master(MemoryStore(), jobs)  # the job store was synced, the message store was not
    new_master.fire()  # what was scheduled is delivered before its producer is back
    client = again(new_master)
    client.request(ordinary(client, 1), scheduled(client, 2))
    assert received(new_master) == ["ordinary 1", "scheduled 2"]


def test_a_dead_lettered_job_leaves_ordinary_sends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = MemoryJobStore()
    client = Master(MemoryStore(), jobs).client()
    client.request(ordinary(client, 1), scheduled(client, 2))
    new_master = Master(MemoryStore(), jobs)  # the job store was synced, the message store was not
    with monkeypatch.context() as patch:
        patch.setattr(scheduler, "delivered", Mock(side_effect=MalformedOpenWire("does not decode")))
        new_master.fire()
    client = again(new_master)
    client.request(ordinary(client, 1))
    assert received(new_master) == ["ordinary 1"]


@pytest.mark.parametrize("is_delivered", [False, True])
def test_what_both_stores_kept_is_stored_once(*, is_delivered: bool) -> None:
    store, jobs = MemoryStore(), MemoryJobStore()
    client = Master(store, jobs).client()
    client.request(ordinary(client, 1), scheduled(client, 2), ordinary(client, 3), scheduled(client, 4))
    new_master = Master(store, jobs)
    if is_delivered:
        new_master.fire()
    client = again(new_master)
    client.request(ordinary(client, 1), scheduled(client, 2), ordinary(client, 3), scheduled(client, 4))
    assert received(new_master) == ["ordinary 1", "ordinary 3", "scheduled 2", "scheduled 4"]


def test_a_delivered_message_shows_the_id_it_had() -> None:
    master = Master(MemoryStore(), MemoryJobStore())
    client = master.client()
    message = scheduled(client, 1)
    sent = str(message.message_id)
    client.request(message)
    master.fire()
    (dispatch,) = of_kind(master.client("reader").consume(Q), MessageDispatch)
    assert dispatch.message is not None
    assert dispatch.message.message_id is not None
    assert dispatch.message.message_id.jms_message_id == sent
