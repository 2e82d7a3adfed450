"""What an operator does with dead letters, destinations, clients, transactions in doubt, and scheduled messages."""

import logging
from typing import Any

import pytest

from pybroker.broker.core.arrival_rules import ArrivalRules
from pybroker.broker.core.policy import IndividualDeadLetterStrategy, SharedDeadLetterStrategy
from pybroker.broker.domain.destination import parse, queue, topic
from pybroker.broker.domain.errors import (
    ClosedByOperator,
    DestinationInUse,
    InvalidDestination,
    RequestError,
    ResourceLimit,
    StoreUnavailable,
    SubscriptionInUse,
    UnknownTransaction,
)
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, outline, to_message, view
from pybroker.broker.domain.openwire.values import Long
from pybroker.broker.domain.operations import (
    EVERY_MESSAGE,
    FIRST_JOB,
    JobCursor,
    JobPage,
    MessageSelection,
    NotDeadLetterQueue,
    OperationInterrupted,
)
from pybroker.broker.domain.transaction import XATransactionId
from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore
from tests.unit.core.conftest import Client, make_message
from tests.unit.core.operators import ACTOR, TARGET, Operator, Q, operated
from tests.unit.core.test_delivered import Disk

DLQ = queue("ActiveMQ.DLQ")
BRANCH = XATransactionId(1, b"global", b"branch")


@pytest.fixture
def operator() -> Operator:
    return operated()


class Calls:
    """Counts calls back."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


# ---------------------------------------------------------------- dead letters


def reject_all(operator: Operator, source: str = "queue://Q", client: Client | None = None) -> None:
    inbox = (client or operator.world.client()).subscribe(source)
    operator.loop.run()
    inbox.consumer.reject_all(list(inbox.deliveries), "of no use")
    operator.loop.run()
    inbox.consumer.close()


def test_dead_letters_go_back_to_where_they_came_from(operator: Operator) -> None:
    operator.world.client().send("queue://Q", "1", "2", properties={"n": 1})
    operator.world.client().send("queue://OTHER", "3")
    reject_all(operator)
    reject_all(operator, "queue://OTHER")
    assert operator.names(DLQ) == ["1", "2", "3"]
    result = operator.retry(DLQ)
    assert (result.affected, result.skipped) == (3, 0)
    assert (operator.names(DLQ), operator.names(), operator.names(queue("OTHER"))) == ([], ["1", "2"], ["3"])
    again = operator.browse().messages[0]
    fields = view(again.message)
    assert (fields.original_destination, again.redelivery_count) == (DLQ, 0)
    assert fields.properties["dlqDeliveryFailureCause"] == "of no use", "as in ActiveMQ"


def test_a_retried_message_that_fails_again_is_a_dead_letter_again(operator: Operator) -> None:
    operator.world.client().send("queue://Q", "1")
    reject_all(operator)
    for _ in range(3):
        assert operator.retry(DLQ).affected == 1
        reject_all(operator)
        assert operator.names(DLQ) == ["1"], "its id is not taken for that of the first letter"


def test_selected_dead_letters_are_retried(operator: Operator) -> None:
    for number in range(10):
        operator.world.client().send("queue://Q", str(number), properties={"n": number})
    reject_all(operator)
    assert operator.retry(DLQ, MessageSelection(selector="n >= 5", maximum=3)).affected == 3
    assert operator.names() == ["5", "6", "7"]


def test_a_message_of_unknown_origin_stays_on_the_dead_letter_queue(operator: Operator) -> None:
    operator.world.client().send("queue://ActiveMQ.DLQ", "sent there")
    operator.world.client().send("queue://Q", "1")
    reject_all(operator)
    result = operator.retry(DLQ)
    assert (result.affected, result.skipped) == (1, 1)
    assert operator.names(DLQ) == ["sent there"]


def test_an_origin_that_is_gone_keeps_its_letters_and_no_others(operator: Operator) -> None:
    client = operator.world.client()
    temporary = client.connection.create_temporary(parse("temp-queue://x").type)
    client.send(str(temporary), "lost")
    client.send("queue://Q", "1")
    reject_all(operator, str(temporary), client)
    reject_all(operator)
    client.connection.close()
    operator.loop.run()
    result = operator.retry(DLQ)
    assert (result.affected, result.skipped, result.error) == (1, 1, None)
    assert (operator.names(DLQ), operator.names()) == (["lost"], ["1"])


def test_retry_of_a_queue_for_no_dead_letters_names_move(operator: Operator) -> None:
    operator.world.client().send("queue://Q", "1")
    with pytest.raises(NotDeadLetterQueue, match=r"^'Q' is no dead letter queue, .*: use move, and name their target$"):
        operator.retry(Q)


@pytest.mark.parametrize(
    ("strategy", "name", "is_one"),
    [
        (SharedDeadLetterStrategy(), "ActiveMQ.DLQ", True),
        (SharedDeadLetterStrategy(dead_letter_queue=queue("FAILED")), "FAILED", True),
        (SharedDeadLetterStrategy(dead_letter_queue=queue("FAILED")), "OTHER", False),
        (IndividualDeadLetterStrategy(), "ActiveMQ.DLQ.Queue.Q", True),
        (IndividualDeadLetterStrategy(queue_prefix="DLQ."), "ActiveMQ.DLQ.Queue.Q", False),
        (IndividualDeadLetterStrategy(queue_prefix="DLQ."), "DLQ.Q", True),
    ],
)
def test_a_policy_makes_a_dead_letter_queue(strategy: Any, name: str, is_one: bool) -> None:
    operator = operated(dead_letter_strategy=strategy)
    operator.world.client().send(f"queue://{name}", "1")
    state = operator.world.broker.admin.state(queue(name))
    assert state is not None
    assert state.is_dead_letter_queue is is_one


def test_a_queue_that_has_got_dead_letters_is_one(operator: Operator) -> None:
    strategy = SharedDeadLetterStrategy(dead_letter_queue=queue("FAILED"))
    world = operator.world
    world.client().send("queue://Q", "1")
    world.broker.dead_letters._strategies = lambda destination: strategy
    reject_all(operator)
    state = world.broker.admin.state(queue("FAILED"))
    assert state is not None
    assert state.is_dead_letter_queue


# ---------------------------------------------------------------- pausing


@pytest.mark.parametrize("selector", [None, "n > 0"])
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_paused_queue_takes_messages_and_delivers_none(
    operator: Operator, selector: str | None, exclusive: bool
) -> None:
    client = operator.world.client()
    inbox = client.subscribe("queue://Q", selector=selector, exclusive=exclusive)
    operations = operator.world.broker.operations
    client.send("queue://Q", "before", properties={"n": 1})
    operations.pause(Q, ACTOR)
    state = operator.world.broker.admin.state(Q)
    assert state is not None
    assert state.is_paused
    client.send("queue://Q", "1", "2", properties={"n": 1})
    inbox.ack(0)
    late = operator.world.client().subscribe("queue://Q", selector=selector, exclusive=exclusive)
    assert (inbox.ids, late.ids) == (["before"], [])
    assert operator.names() == ["1", "2"]
    operations.resume(Q, ACTOR)
    operator.loop.run()
    assert inbox.ids + late.ids in (["before", "1", "2"], ["before", "2", "1"])
    client.send("queue://Q", "3", properties={"n": 1})
    assert len(inbox.ids + late.ids) == 4


def test_a_browser_sees_the_messages_of_a_paused_queue(operator: Operator) -> None:
    client = operator.world.client()
    client.send("queue://Q", "1")
    operator.world.broker.operations.pause(Q, ACTOR)
    browser = client.subscribe("queue://Q", browser=True)
    operator.loop.run()
    assert (browser.ids, browser.ended) == (["1"], True)


def test_groups_and_consumers_that_come_and_go_get_nothing_of_a_paused_queue(operator: Operator) -> None:
    client = operator.world.client()
    client.send("queue://Q", "old")
    operator.world.broker.operations.pause(Q, ACTOR)
    first = client.subscribe("queue://Q")
    grouped = view(make_message("grouped", "queue://Q"))
    grouped.group_id = "G"
    client.connection.send(to_message(grouped))
    second = operator.world.client().subscribe("queue://Q")
    first.consumer.close()
    operator.loop.run()
    assert (first.ids, second.ids) == ([], [])
    operator.world.broker.operations.resume(Q, ACTOR)
    operator.loop.run()
    assert second.ids == ["old", "grouped"]


def test_many_consumers_get_nothing_of_a_paused_queue(operator: Operator) -> None:
    inboxes = [operator.world.client().subscribe("queue://Q", prefetch=1) for _ in range(200)]
    operator.world.broker.operations.pause(Q, ACTOR)
    operator.world.client().send("queue://Q", *map(str, range(100)))
    assert sum(len(inbox.ids) for inbox in inboxes) == 0
    operator.world.broker.operations.resume(Q, ACTOR)
    operator.loop.run()
    assert sum(len(inbox.ids) for inbox in inboxes) == 100


def test_a_pause_is_not_kept_by_the_next_master_nor_lost_while_the_queue_is_idle(operator: Operator) -> None:
    world = operator.world
    world.client().send("queue://Q", "1")
    world.broker.operations.pause(Q, ACTOR)
    operator.remove()
    for _ in range(3):
        world.now_ms += 1_000_000
        world.broker.remove_inactive_destinations()
        operator.loop.run()
    assert Q in world.broker.queues
    world.client().send("queue://Q", "2")
    world.start()
    assert world.client().subscribe("queue://Q").ids == ["2"]


# ---------------------------------------------------------------- destinations


def test_a_queue_that_is_created_is_there_after_a_start_until_it_is_deleted(operator: Operator) -> None:
    operations, done = operator.world.broker.operations, Calls()
    assert operations.create(queue("NEW"), ACTOR, done)
    assert not operations.create(queue("NEW"), ACTOR, done)
    assert operations.create(topic("NEW"), ACTOR, done)
    operator.world.start()
    assert queue("NEW") in operator.world.broker.queues
    operations = operator.world.broker.operations
    assert operations.delete(queue("NEW"), ACTOR, done)
    assert not operations.delete(queue("NEW"), ACTOR, done)
    operator.world.start()
    assert queue("NEW") not in operator.world.broker.queues
    assert done.count == 5


@pytest.mark.parametrize("name", ["queue://A,B", "queue://A.>", "temp-queue://x:1", "queue://" + "x" * 2000])
def test_a_name_that_cannot_be_created_is_refused(operator: Operator, name: str) -> None:
    with pytest.raises(InvalidDestination):
        operator.world.broker.operations.create(parse(name), ACTOR, Calls())


def test_an_empty_name_is_refused_in_the_words_of_activemq(operator: Operator) -> None:
    with pytest.raises(InvalidDestination, match="Invalid destination name: a non-empty name is required"):
        operator.world.broker.operations.create(queue(""), ACTOR, Calls())


def test_the_queue_of_all_virtual_topics_can_be_created(operator: Operator) -> None:
    assert operator.world.broker.operations.create(queue("Consumer.a.VirtualTopic.>"), ACTOR, Calls())
    operator.world.client().send("topic://VirtualTopic.X", "1")
    assert operator.names(queue("Consumer.a.VirtualTopic.>")) == ["1"]


def test_a_destination_with_consumers_is_not_deleted(operator: Operator) -> None:
    inbox = operator.world.client().subscribe("queue://Q")
    delete = operator.world.broker.operations.delete
    with pytest.raises(DestinationInUse):
        delete(Q, ACTOR, Calls())
    inbox.consumer.close()
    operator.world.client().send("queue://Q", "1")
    assert delete(Q, ACTOR, Calls())
    assert operator.names() == []


def test_a_message_is_sent_and_answered_once_it_is_on_disk() -> None:
    disk = Disk()
    operator = operated(disk)
    disk.is_slow = True
    done = Calls()
    fields = OpenWireMessage(
        type=MessageType.TEXT, destination=Q, persistent=True, priority=7, content=encode_text("hello")
    )
    sent_id = operator.world.broker.operations.send(fields, ACTOR, done)
    assert done.count == 0
    disk.sync()
    assert done.count == 1
    (found,) = operator.browse().messages
    shown = view(found.message)
    assert (found.message.message_id, shown.text(), shown.priority) == (sent_id, "hello", 7)
    assert shown.timestamp == operator.world.now_ms
    other = operator.world.broker.operations.send(fields, ACTOR, done)
    assert other != sent_id
    disk.is_slow = False


def test_a_message_for_which_there_is_no_space_is_refused() -> None:
    operator = operated(memory_limit=5000)
    fields = OpenWireMessage(type=MessageType.TEXT, destination=Q, content=encode_text("x" * 10_000))
    send = operator.world.broker.operations.send
    send(fields, ACTOR, Calls())
    with pytest.raises(ResourceLimit, match="Memory Limit reached on queue://Q"):
        send(fields, ACTOR, Calls())


@pytest.mark.parametrize("destination", [None, topic("ActiveMQ.Scheduler.Management")])
def test_a_message_that_cannot_be_sent_is_refused(operator: Operator, destination: Any) -> None:
    fields = OpenWireMessage(type=MessageType.TEXT, destination=destination)
    fields.set_properties({"AMQ_SCHEDULER_ACTION": "REMOVEALL"})
    with pytest.raises(RequestError):
        operator.world.broker.operations.send(fields, ACTOR, Calls())


def test_the_operator_is_the_user_of_a_message_if_messages_have_users(operator: Operator) -> None:
    operator.world.broker.arrival_rules = ArrivalRules(populates_user=True)
    operator.world.broker.operations.send(OpenWireMessage(type=MessageType.TEXT, destination=Q), ACTOR, Calls())
    assert view(operator.browse().messages[0].message).user_id == "ops"


# ---------------------------------------------------------------- clients


def test_a_connection_is_closed(operator: Operator, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pybroker.audit")
    client = operator.world.client("me")
    cut_off = operator.world.broker.operations.cut_off
    assert cut_off(client.connection.connection_id, ACTOR)
    assert isinstance(client.throttle.error, ClosedByOperator)
    assert not cut_off("none", ACTOR)
    assert [record.getMessage() for record in caplog.records] == [
        f"'ops' from 10.0.0.9 closed the connection {client.connection.connection_id}",
        "'anonymous' from 10.0.0.1:50000 is disconnected: an operator has closed it",
    ]


def test_a_durable_subscription_without_consumer_is_deleted(operator: Operator) -> None:
    client = operator.world.client("me")
    inbox = client.subscribe("topic://T", subscription_name="s")
    unsubscribe, done = operator.world.broker.operations.unsubscribe, Calls()
    with pytest.raises(SubscriptionInUse):
        unsubscribe("me", "s", ACTOR, done)
    inbox.consumer.close()
    client.send("topic://T", "1")
    unsubscribe("me", "s", ACTOR, done)
    assert (done.count, list(operator.world.broker.admin.durable_subscriptions())) == (1, [])
    with pytest.raises(InvalidDestination, match="No durable subscription exists for clientID: me"):
        unsubscribe("me", "s", ACTOR, done)


# ---------------------------------------------------------------- transactions in doubt


def prepared(operator: Operator, sends: int = 2) -> None:
    """Prepare a branch that acknowledges two messages of Q, and sends some to TARGET."""
    client = operator.world.client()
    client.send("queue://Q", "1", "2", "3")
    inbox = client.subscribe("queue://Q", prefetch=2)
    client.connection.begin(BRANCH)
    inbox.consumer.acknowledge_all(list(inbox.deliveries), BRANCH)
    client.send("queue://TARGET", *map(str, range(sends)), transaction=BRANCH)  # type: ignore[arg-type]
    client.connection.prepare(BRANCH)
    inbox.consumer.close()
    operator.loop.run()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("outcome", ["commit_branch", "roll_back_branch"])
def test_a_branch_in_doubt_is_decided(outcome: str, restarts: bool) -> None:
    operator = operated(MemoryStore(supports_paging=True))
    prepared(operator)
    if restarts:
        operator = Operator(operator.world)
        operator.world.start()
        operator = Operator(operator.world)
    operations = operator.world.broker.operations
    (branch,) = operations.in_doubt()
    assert (branch.branch, branch.sent, branch.acknowledged) == (BRANCH, 2, 2)
    getattr(operations, outcome)(BRANCH, ACTOR, operator.results.append)
    assert operator.result().affected == 4
    expected = (["3"], ["0", "1"]) if outcome == "commit_branch" else (["1", "2", "3"], [])
    assert (operator.names(), operator.names(TARGET)) == expected
    assert operations.in_doubt() == []
    operator.world.start()
    operator = Operator(operator.world)
    assert (operator.names(), operator.names(TARGET)) == expected


def test_a_long_branch_is_committed_in_pieces_and_not_stopped_by_a_cancel(operator: Operator) -> None:
    prepared(operator, sends=3000)
    running = operator.world.broker.operations.commit_branch(BRANCH, ACTOR, operator.results.append)
    assert not running.is_done
    running.cancel()
    assert operator.result().affected == 3002
    assert operator.world.broker.queues[TARGET].pending.count == 3000


def test_a_broker_that_stops_carries_a_commit_out(operator: Operator) -> None:
    prepared(operator, sends=3000)
    operator.world.broker.operations.commit_branch(BRANCH, ACTOR, operator.results.append)
    operator.world.broker.quiesce()
    (result,) = operator.results
    assert (result.affected, result.error) == (3002, None)


@pytest.mark.parametrize("outcome", ["commit_branch", "roll_back_branch"])
def test_a_branch_that_is_not_in_doubt_is_refused(operator: Operator, outcome: str) -> None:
    operator.world.client().connection.begin(BRANCH)
    with pytest.raises(UnknownTransaction, match="is not in doubt"):
        getattr(operator.world.broker.operations, outcome)(BRANCH, ACTOR, operator.results.append)


# ---------------------------------------------------------------- scheduled messages


class UnreadableJobs(MemoryJobStore):
    """Cannot read some jobs."""

    unreadable: frozenset[str] = frozenset()

    def load(self, job: Any) -> bytes:
        if job.job_id in self.unreadable:
            raise StoreUnavailable("the disk does not answer")
        return super().load(job)


def scheduling(jobs: MemoryJobStore, delays: list[int]) -> Operator:
    operator = operated()
    broker = operator.world.broker
    broker.open_scheduler(jobs, jobs.recover(), wake_at=lambda _: None, connection_id="ID:b", jobs_max=10_000)
    client = operator.world.client()
    for delay in delays:
        client.send("queue://Q", f"in {delay}", properties={"AMQ_SCHEDULED_DELAY": Long(delay)})
    return operator


def job_page(operator: Operator, cursor: JobCursor, size: int) -> JobPage:
    operator.world.broker.operations.jobs(cursor, size, operator.results.append)
    operator.loop.run()
    page = operator.results.pop()
    assert isinstance(page, JobPage)
    return page


def test_jobs_are_listed_page_by_page_the_earliest_first() -> None:
    delays = [1000 + (number * 7919) % 1201 for number in range(1200)]
    operator = scheduling(MemoryJobStore(), delays)
    seen: list[int] = []
    cursor: JobCursor | None = FIRST_JOB
    page_count = 0
    while cursor is not None:
        page = job_page(operator, cursor, 250)
        page_count += 1
        seen += [job.next_time - operator.world.now_ms for job in page.jobs]
        assert page.total == 1200
        cursor = page.cursor
    assert (seen, page_count) == (sorted(delays), 5)
    first = job_page(operator, FIRST_JOB, 1).jobs[0]
    assert (first.delay, first.repeat, first.cron, first.start_time) == (1000, 0, "", operator.world.now_ms)
    assert first.message is not None
    assert outline(first.message).destination == Q


def test_a_job_that_cannot_be_read_is_listed_without_its_message() -> None:
    jobs = UnreadableJobs()
    operator = scheduling(jobs, [1000])
    jobs.unreadable = frozenset([job_page(operator, FIRST_JOB, 1).jobs[0].job_id])
    assert [job.message for job in job_page(operator, FIRST_JOB, 1).jobs] == [None]


def test_a_job_is_removed() -> None:
    operator = scheduling(MemoryJobStore(), [1000, 2000])
    remove, done = operator.world.broker.operations.remove_job, Calls()
    first, second = job_page(operator, FIRST_JOB, 10).jobs
    assert remove(first.job_id, first.next_time + 1, ACTOR, done) == 0
    assert remove(first.job_id, first.next_time, ACTOR, done) == 1
    assert remove(first.job_id, None, ACTOR, done) == 0
    assert [job.job_id for job in job_page(operator, FIRST_JOB, 10).jobs] == [second.job_id]
    assert done.count == 3


def test_without_a_scheduler_there_are_no_jobs(operator: Operator) -> None:
    assert job_page(operator, FIRST_JOB, 10) == JobPage(jobs=[], total=0, cursor=None)
    assert operator.world.broker.operations.remove_job("x", None, ACTOR, Calls()) == 0


def test_a_message_with_a_delay_is_scheduled_by_the_operator() -> None:
    operator = scheduling(MemoryJobStore(), [])
    fields = OpenWireMessage(type=MessageType.TEXT, destination=Q, persistent=True)
    fields.set_properties({"AMQ_SCHEDULED_DELAY": Long(5000)})
    operator.world.broker.operations.send(fields, ACTOR, Calls())
    assert operator.names() == []
    assert job_page(operator, FIRST_JOB, 10).total == 1


# ---------------------------------------------------------------- the end


def test_nothing_is_begun_once_the_broker_stops(operator: Operator) -> None:
    operator.world.client().send("queue://Q", "1")
    operator.world.broker.quiesce()
    operations = operator.world.broker.operations
    for act in (
        lambda: operations.create(queue("A"), ACTOR, Calls()),
        lambda: operations.delete(Q, ACTOR, Calls()),
        lambda: operations.remove(Q, EVERY_MESSAGE, ACTOR, operator.results.append),
        lambda: operations.send(OpenWireMessage(type=MessageType.TEXT, destination=Q), ACTOR, Calls()),
        lambda: operations.unsubscribe("me", "s", ACTOR, Calls()),
        lambda: operations.remove_job("x", None, ACTOR, Calls()),
    ):
        with pytest.raises(OperationInterrupted, match="repeat the operation at the present master"):
            act()
