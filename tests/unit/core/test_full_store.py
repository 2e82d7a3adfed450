"""A store without space: what is sent is refused, what frees space goes on."""

import pytest

from pybroker.broker.domain.errors import ResourceLimit
from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore
from pybroker.transports.openwire.faults import throwable


class FullStore(MemoryStore):
    """A store that is full when the test sets it."""

    full = False

    @property
    def is_full(self) -> bool:
        return self.full


class FullJobStore(MemoryJobStore):
    """The same for scheduled messages."""

    full = False

    @property
    def is_full(self) -> bool:
        return self.full


@pytest.fixture
def full(make_world):
    """A world whose store had space for one message, and has none any more."""
    world = make_world()
    world.store = FullStore()
    world.start()
    world.client().send("queue://Q", "stored")
    world.store.full = True
    return world


@pytest.mark.parametrize("destination", ["queue://Q", "topic://T", "queue://NEW"])
def test_a_persistent_message_is_refused_in_activemqs_words(full, destination):
    with pytest.raises(ResourceLimit, match="Usage Manager Store is Full") as refused:
        full.client().send(destination, "a")
    assert throwable(refused.value).class_name == "javax.jms.ResourceAllocationException"
    assert len(full.broker.queues) == 1, "it was refused before anything was made for it"


def test_in_a_transaction_too_which_may_still_end(full):
    client = full.client()
    transaction = client.connection.begin()
    with pytest.raises(ResourceLimit):
        client.send("queue://Q", "a", transaction=transaction)
    client.connection.commit(transaction)


def test_what_is_not_stored_is_accepted(full):
    inbox = full.client().subscribe("queue://Q")
    full.client().send("queue://Q", "fleeting", persistent=False)
    assert inbox.ids == ["stored", "fleeting"]


def test_consumers_are_served_and_sends_resume_with_free_space(full):
    inbox = full.client().subscribe("queue://Q")
    inbox.ack()
    full.store.full = False
    full.client().send("queue://Q", "again")
    assert inbox.drain() == ["stored", "again"]
    full.store.full = True
    full.start()
    assert full.client().subscribe("queue://Q").ids == ["again"], "what was acknowledged is gone from the store"


def test_a_full_job_store_counts_as_well(world):
    jobs = FullJobStore()
    world.broker.open_scheduler(jobs, [], wake_at=lambda when: None, connection_id="s", jobs_max=10)
    jobs.full = True
    with pytest.raises(ResourceLimit):
        world.client().send("queue://Q", "a", properties={"AMQ_SCHEDULED_DELAY": 1000})


def test_a_scheduled_message_that_is_due_waits_for_space(full):
    full.store.full = False
    full.broker.open_scheduler(MemoryJobStore(), [], wake_at=lambda when: None, connection_id="s", jobs_max=10)
    inbox = full.client().subscribe("queue://LATER")
    full.client().send("queue://LATER", "later", properties={"AMQ_SCHEDULED_DELAY": 1000})
    full.store.full = True
    full.now_ms += 1500
    full.broker.scheduler.fire(full.now_ms)
    assert inbox.ids == []
    assert len(full.broker.scheduler._job_queue) == 1, "it is not dropped"
    full.store.full = False
    full.now_ms += 1500
    full.broker.scheduler.fire(full.now_ms)
    assert inbox.ids == ["later"]
