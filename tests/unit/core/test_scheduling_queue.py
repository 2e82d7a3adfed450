# mypy: disable-error-code="arg-type, return-value"
"""Messages scheduled in a transaction survive a crash with the rest of it, or not at all."""

from typing import Any

import pytest

from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE
from pybroker.broker.domain.errors import InvalidDestination, NotReadYet, ResourceLimit, UnknownTransaction
from pybroker.broker.domain.message import RESENT
from pybroker.broker.domain.openwire.message import decode
from pybroker.broker.domain.openwire.values import Long
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId
from tests.slow import SlowJobStore, SlowStore
from tests.unit.core.conftest import Client, World, make_message

MANAGEMENT = "topic://ActiveMQ.Scheduler.Management"
BRANCH = XATransactionId(1, b"global", b"branch")
LATER = {"AMQ_SCHEDULED_DELAY": Long(500)}
START = 1_000_000


class Store(SlowStore):
    """A slow message store, which cannot always read."""

    is_away = False

    def read(self, *args: Any) -> Any:
        if self.is_away:
            raise NotReadYet("the database has not answered")
        return super().read(*args)

    def kept(self) -> int:
        """Return the number of messages that are still to be scheduled."""
        return len(self.recover().queues.get(SCHEDULING_QUEUE, ()))


class Pair(World):
    """A world with a scheduler, whose masters can die."""

    store: Store

    def __init__(self) -> None:
        super().__init__(Store())
        self.now_ms = START
        self.jobs = SlowJobStore()
        self.serve()

    def serve(self) -> None:
        """Open the scheduler."""
        self.broker.open_scheduler(
            self.jobs, self.jobs.recover(), wake_at=lambda _: None, connection_id="ID:b", jobs_max=10
        )

    def die(self, *, loses_jobs: bool = False) -> None:
        """A kill -9, and the next master. With `loses_jobs` the job store had nothing of the last one on disk yet."""
        self.store.waiting.clear()
        self.jobs.waiting.clear()
        if loses_jobs:
            self.jobs = SlowJobStore()
        self.start()
        self.serve()

    def sync(self) -> None:
        self.store.sync()
        self.jobs.sync()
        self.store.sync()

    def fire(self) -> None:
        """Let the delay pass."""
        self.now_ms += 500
        self.broker.scheduler.fire(self.now_ms)  # type: ignore[union-attr]
        self.sync()

    def received(self) -> list[str]:
        """Return the messages a new client consumes; it then leaves."""
        client = self.client()
        names = client.subscribe("queue://Q").ids
        client.connection.close()
        return names


@pytest.fixture
def pair() -> Pair:
    return Pair()


def begun(client: Client, name: str = "a", **fields: Any) -> LocalTransactionId:
    """Begin a transaction, and send a message in it now and one later."""
    transaction = client.connection.begin()
    client.send("queue://Q", "now", transaction=transaction)
    client.send("queue://Q", name, transaction=transaction, properties=LATER, **fields)
    return transaction


def prepared(client: Client) -> None:
    client.connection.begin(BRANCH)
    client.send("queue://Q", "a", transaction=BRANCH, properties=LATER)
    assert client.connection.prepare(BRANCH)


# ---------------------------------------------------------------- without a crash


@pytest.mark.parametrize("persistent", [True, False])
def test_its_time_counts_from_the_commit_on_disk(pair: Pair, persistent: bool) -> None:
    client = pair.client()
    transaction = begun(client, persistent=persistent)
    pair.now_ms += 10_000
    client.connection.commit(transaction)
    assert pair.jobs.recover() == []
    pair.sync()
    assert [job.next_time for job in pair.jobs.recover()] == [pair.now_ms + 500]
    assert pair.store.kept() == 0
    assert pair.received() == ["now"]
    pair.fire()
    assert pair.received() == ["now", "a"]


def test_a_commit_is_answered_once_the_job_is_on_disk(pair: Pair) -> None:
    client = pair.client()
    client.connection.commit(begun(client))
    answered: list[bool] = []
    client.connection.when_durable(lambda: answered.append(True))
    pair.store.sync()
    assert not answered
    pair.jobs.sync()
    assert answered


def test_what_is_rolled_back_is_never_scheduled(pair: Pair) -> None:
    client = pair.client()
    client.connection.rollback(begun(client))
    pair.sync()
    pair.die()
    assert (pair.jobs.recover(), pair.store.kept(), pair.received()) == ([], 0, [])


def test_the_job_is_of_the_message_as_it_was_sent(pair: Pair) -> None:
    client = pair.client()
    sent = make_message("a", "topic://T", properties=LATER)
    transaction = client.connection.begin()
    client.connection.send(sent, transaction)
    client.connection.commit(transaction)
    pair.sync()
    (job,) = pair.jobs.recover()
    assert (job.job_id, job.data) == (sent.message_id, sent.data)


# ---------------------------------------------------------------- with one


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_in_doubt_it_shares_the_branchs_fate(pair: Pair, outcome: str) -> None:
    prepared(pair.client())
    pair.sync()
    pair.die(loses_jobs=True)
    pair.sync()
    assert pair.jobs.recover() == []
    connection = pair.client().connection
    if outcome == "commit":
        connection.commit(BRANCH, prepared=True)
    else:
        connection.rollback(BRANCH)
    pair.sync()
    pair.fire()
    assert pair.received() == (["a"] if outcome == "commit" else [])
    assert pair.store.kept() == 0


def test_sent_again_to_a_branch_in_doubt_it_is_scheduled_once(pair: Pair) -> None:
    client = pair.client()
    sent = make_message("a", "queue://Q", properties=LATER)
    client.connection.begin(BRANCH)
    client.connection.send(sent, BRANCH)
    client.connection.prepare(BRANCH)
    pair.die()
    again = pair.client().connection
    again.begin(BRANCH)
    again.send(sent, BRANCH)
    again.prepare(BRANCH)
    again.commit(BRANCH, prepared=True)
    pair.sync()
    assert len(pair.jobs.recover()) == 1


@pytest.mark.parametrize("on_disk", ["the commit", "the commit, too late to go on", "the commit and the job"])
def test_committed_job_is_scheduled_once_despite_crashes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, on_disk: str
) -> None:
    monkeypatch.setattr(pair.store, "remove", lambda *_, **__: None)  # the removal never gets there
    client = pair.client()
    client.connection.commit(begun(client))
    if on_disk != "the commit, too late to go on":
        pair.store.sync()
    if on_disk == "the commit and the job":
        pair.jobs.sync()
    monkeypatch.undo()
    assert pair.store.kept() == 1
    pair.die(loses_jobs=on_disk != "the commit and the job")
    pair.sync()
    assert len(pair.jobs.recover()) == 1
    assert pair.store.kept() == 0
    pair.fire()
    assert pair.received() == ["now", "a"]


def test_message_that_a_crash_schedules_again_after_its_run_is_marked(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair.store, "remove", lambda *_, **__: None)  # the removal never gets there
    client = pair.client()
    transaction = client.connection.begin()
    client.send("topic://T", "a", transaction=transaction, properties=LATER)
    client.connection.commit(transaction)
    pair.sync()
    monkeypatch.undo()
    marks: list[object] = []
    for _ in range(2):
        inbox = pair.client().subscribe("topic://T")
        pair.fire()
        (sent,) = inbox.deliveries
        marks.append(decode(sent.message.data).properties.get(RESENT))
        pair.die()
        pair.sync()
    assert marks == [None, True]
    assert (pair.jobs.recover(), pair.store.kept()) == ([], 0)


def test_a_master_without_a_scheduler_leaves_it_to_the_next_one(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    prepared(pair.client())
    pair.start()
    pair.broker.resume_stalled()
    pair.client().connection.commit(BRANCH, prepared=True)
    pair.sync()
    assert "waits for a master with a scheduler" in caplog.text
    assert pair.store.kept() == 1
    pair.die()
    pair.sync()
    assert len(pair.jobs.recover()) == 1


def test_a_store_that_does_not_answer_gets_the_request_again(pair: Pair) -> None:
    client = pair.client()
    client.connection.commit(begun(client))
    pair.store.is_away = True
    pair.die()
    assert pair.jobs.recover() == []
    pair.store.is_away = False
    pair.broker.resume_stalled()
    pair.sync()
    assert len(pair.jobs.recover()) == 1
    assert pair.store.kept() == 0


def test_what_cannot_be_scheduled_is_dead_lettered(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = make_message("theirs", str(SCHEDULING_QUEUE), properties=LATER)  # an ActiveMQ's client may send there
    pair.store.add(foreign)
    client = pair.client()
    client.connection.commit(begun(client))
    pair.die()
    pair.sync()
    assert f"{foreign.message_id} is committed and cannot be scheduled" in caplog.text
    assert [decode(job.data or b"").content for job in pair.jobs.recover()] == [b"a"]
    assert pair.store.kept() == 0
    monkeypatch.setattr(pair.jobs, "add", refuse)
    client = pair.client()
    client.connection.commit(begun(client, "b"))
    pair.sync()
    assert pair.store.kept() == 0
    assert pair.received() == ["now", "now"]
    assert pair.client().subscribe("queue://ActiveMQ.DLQ").ids == ["theirs", "b"]


def refuse(*_: object) -> None:
    raise ResourceLimit("the schedule has a character that a database cannot hold")


def test_clients_do_not_come_near(pair: Pair) -> None:
    client = pair.client()
    prepared(client)
    with pytest.raises(InvalidDestination, match="the broker's own"):
        client.send(str(SCHEDULING_QUEUE), "a")
    with pytest.raises(InvalidDestination, match="the broker's own"):
        client.subscribe(str(SCHEDULING_QUEUE))
    client.connection.commit(BRANCH, prepared=True)
    assert client.subscribe("queue://>").ids == []


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_an_order_to_the_scheduler_is_carried_out_at_once(pair: Pair, outcome: str) -> None:
    client = pair.client()
    client.send("queue://Q", "a", properties=LATER)
    transaction = begun(client, "b")
    client.send(MANAGEMENT, "", transaction=transaction, properties={"AMQ_SCHEDULER_ACTION": "REMOVEALL"})
    assert pair.jobs.recover() == []
    getattr(client.connection, outcome)(transaction)
    pair.sync()
    assert [decode(job.data or b"").content for job in pair.jobs.recover()] == ([b"b"] if outcome == "commit" else [])
    assert pair.store.kept() == 0


def test_an_order_needs_its_transaction(pair: Pair) -> None:
    client = pair.client()
    client.send("queue://Q", "a", properties=LATER)
    order = {"AMQ_SCHEDULER_ACTION": "REMOVEALL"}
    with pytest.raises(UnknownTransaction):
        client.send(MANAGEMENT, "", transaction=LocalTransactionId("c1", 7), properties=order)
    assert len(pair.jobs.recover()) == 1


def test_an_order_in_a_transaction_is_carried_out_in_pieces(pair: Pair) -> None:
    turns: list[Any] = []
    pair.broker.usage.paging.later = turns.append
    pair.broker.open_scheduler(pair.jobs, (), wake_at=lambda _: None, connection_id="ID:b", jobs_max=10_000)
    client = pair.client()
    client.send("queue://Q", *map(str, range(200)), properties=LATER)
    transaction = client.connection.begin()
    client.send(MANAGEMENT, "", transaction=transaction, properties={"AMQ_SCHEDULER_ACTION": "REMOVEALL"})
    assert 0 < len(pair.jobs.recover()) < 200
    assert client.throttle.input_holds == 1, "the commit waits"
    while turns:
        turns.pop(0)()
    assert pair.jobs.recover() == []
    assert client.throttle.input_holds == 0


def test_leftovers_are_scheduled_a_page_per_turn(pair: Pair) -> None:
    """Messages that a dead master committed and did not schedule are not delayed until the next request."""
    client = pair.client()
    transaction = client.connection.begin()
    client.send("queue://Q", *map(str, range(1100)), transaction=transaction, properties=LATER)
    client.connection.commit(transaction)
    pair.store.sync()
    pair.store.waiting.clear()
    pair.jobs = SlowJobStore()
    pair.start()
    turns: list[Any] = []
    pair.broker.usage.paging.later = turns.append
    pair.broker.open_scheduler(pair.jobs, (), wake_at=lambda _: None, connection_id="ID:b", jobs_max=10_000)
    counts = []
    for _ in range(10):
        pair.broker.resume_stalled()  # no second page in the same turn
        pair.sync()
        counts.append(len(pair.jobs.recover()))
        for turn in [turns.pop() for _ in range(len(turns))]:
            turn()
    assert counts == [200, 400, 600, 800, 1000, 1100, 1100, 1100, 1100, 1100]
    assert pair.store.kept() == 0
