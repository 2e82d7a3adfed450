# mypy: disable-error-code="union-attr"
"""Rejected messages come back to their queue after a delay, as often as its policy says, whatever crashes."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from pybroker.broker.core.deadletter import DiscardedLetters
from pybroker.broker.core.policy import DestinationPolicy, EntryMap
from pybroker.broker.core.redelivery import BrokerRedelivery, RedeliveryPolicy, RedeliveryRules
from pybroker.broker.core.scheduling_queue import SCHEDULING_QUEUE
from pybroker.broker.domain.destination import parse, queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.message import decode, view
from pybroker.broker.domain.openwire.values import Long
from tests.slow import SlowJobStore, SlowStore
from tests.unit.core.conftest import Inbox, World

DLQ = "queue://ActiveMQ.DLQ"
POLICY = RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=1000, redelivery_delay=3000)


def rules(policy: RedeliveryPolicy | None = POLICY, **given: bool) -> RedeliveryRules:
    return RedeliveryRules(policies=EntryMap([(queue("Q.>"), policy)] if policy else (), None), **given)


class Pair(World):
    """A world that redelivers, whose masters can die."""

    store: SlowStore

    def __init__(self, given: RedeliveryRules | None = None, jobs_max: int = 10, **policy: Any) -> None:
        self.given = given or rules()
        self.jobs = SlowJobStore()
        self.jobs_max = jobs_max
        super().__init__(SlowStore(), DestinationPolicy(**policy))
        self.serve()

    def serve(self) -> None:
        """Do what a master does when it starts."""
        self.broker.dead_letters.redelivery = BrokerRedelivery(self.broker, self.given, lambda: 0.5)
        self.broker.open_scheduler(
            self.jobs, self.jobs.recover(), wake_at=lambda _: None, connection_id="ID:b", jobs_max=self.jobs_max
        )

    def die(self) -> None:
        """A kill -9, and the next master, which finds what the stores have."""
        self.store.waiting.clear()
        self.jobs.waiting.clear()
        self.start()
        self.serve()
        self.sync()

    def sync(self) -> None:
        for _ in range(2):
            self.store.sync()
            self.jobs.sync()

    def after(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        self.broker.scheduler.fire(self.now_ms)
        self.sync()

    def waiting(self, name: str) -> list[Message]:
        """Return the messages of a queue, without consuming them."""
        client = self.client()
        inbox = client.subscribe(name, browser=True)
        client.connection.close()
        return list(inbox.messages.values())

    def kept(self) -> int:
        """Return the number of messages that are still to be scheduled."""
        return len(self.store.recover().queues.get(SCHEDULING_QUEUE, ()))


def send(pair: Pair, name: str = "queue://Q.A", **fields: Any) -> Inbox:
    """Send a message to a consumer."""
    inbox = pair.client().subscribe(name)
    pair.client().send(name, "m", **fields)
    pair.sync()
    return inbox


def reject(pair: Pair, inbox: Inbox) -> None:
    inbox.consumer.reject(inbox.deliveries.pop(), "no")
    pair.sync()


# ---------------------------------------------------------------- delays


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RedeliveryPolicy(initial_redelivery_delay=5000, redelivery_delay=2000), [5000, 2000, 2000]),
        (RedeliveryPolicy(use_exponential_back_off=True), [1000, 5000, 25_000, 125_000]),
        (RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=1.0), [1000, 1000, 1000]),
        (RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=1.5), [1000, 1500, 2250, 3375]),
        (RedeliveryPolicy(back_off_multiplier=9.0, maximum_redelivery_delay=1500), [1000, 1000]),
        (RedeliveryPolicy(use_exponential_back_off=True, maximum_redelivery_delay=6000), [1000, 5000, 6000, 6000]),
        (
            RedeliveryPolicy(use_exponential_back_off=True, maximum_redelivery_delay=500, redelivery_delay=700),
            [1000, 700, 700],
        ),
        (RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=1000.0), [1000, 10**6, 10**9, 2**31 - 1]),
    ],
)
def test_delays_are_those_of_activemq(policy: RedeliveryPolicy, expected: Sequence[int]) -> None:
    delays = [0]
    for count in range(len(expected)):
        delays.append(policy.delay(count, delays[-1], lambda: 1.0))
    assert delays[1:] == expected


@pytest.mark.parametrize(("random", "expected"), [((0.0, 1.0), 1150), ((0.5, 1.0), 850), ((0.4, 0.5), 1075)])
def test_collisions_are_avoided_by_a_random_part(random: tuple[float, float], expected: int) -> None:
    policy = RedeliveryPolicy(use_collision_avoidance=True)
    assert policy.delay(1, 1000, iter(random).__next__) == expected
    assert policy.delay(0, 0, iter(random).__next__) == 1000


# ---------------------------------------------------------------- without a crash


@pytest.mark.parametrize("persistent", [True, False])
def test_rejected_message_comes_back_until_its_policy_ends(persistent: bool) -> None:
    pair = Pair()
    inbox = send(pair, persistent=persistent, properties={"color": "red"})
    (first,) = inbox.messages.values()
    for count, delay in ((1, 1000), (2, 3000)):
        reject(pair, inbox)
        assert (pair.waiting("queue://Q.A"), pair.kept(), pair.broker.scheduler.job_count) == ([], 0, 1)
        pair.after(delay - 1)
        assert inbox.deliveries == []
        pair.after(1)
        (delivery,) = inbox.deliveries
        assert delivery.redelivery_count == count
        fields = view(delivery.message)
        assert fields.redelivery_counter == count
        assert fields.message_id is not None
        assert fields.message_id.text_view == first.message_id, "clients see the id that it has had"
        assert delivery.message.persistent == persistent
        properties = dict(fields.properties)
        assert str(properties.pop("scheduledJobId")).endswith(f"~{count}")
        assert properties == {"color": "red", "redeliveryDelay": Long(delay)}
        assert pair.broker.scheduler.job_count == 0
    reject(pair, inbox)
    assert pair.broker.scheduler.job_count == 0
    letters = pair.waiting(DLQ)
    assert [view(each).redelivery_counter for each in letters] == ([0] if persistent else [])
    assert pair.broker.usage.used == sum(each.size for each in letters)
    assert pair.broker.queues[queue("Q.A")].counters().size == 0


def test_message_is_redelivered_for_ever() -> None:
    pair = Pair(rules(RedeliveryPolicy(maximum_redeliveries=-1)))
    inbox = send(pair)
    for count in range(1, 20):
        reject(pair, inbox)
        pair.after(1000)
        assert inbox.counts == [count]


@pytest.mark.parametrize("goes_to_dlq", [True, False])
def test_last_rejection_follows_the_rules(goes_to_dlq: bool, caplog: pytest.LogCaptureFixture) -> None:
    policy = RedeliveryPolicy(maximum_redeliveries=0)
    pair = Pair(rules(policy, send_to_dlq_if_max_retries_exceeded=goes_to_dlq))
    with caplog.at_level(logging.INFO):
        reject(pair, send(pair))
    assert len(pair.waiting(DLQ)) == goes_to_dlq
    assert ("dropped" in caplog.text) is not goes_to_dlq
    pair.die()
    assert (pair.waiting("queue://Q.A"), len(pair.waiting(DLQ))) == ([], goes_to_dlq)


@pytest.mark.parametrize("falls_back", [True, False])
def test_queue_without_policy_follows_the_rules(falls_back: bool) -> None:
    pair = Pair(rules(fallback_to_dead_letter=falls_back))
    reject(pair, send(pair, "queue://OTHER"))
    assert (pair.waiting("queue://OTHER"), len(pair.waiting(DLQ))) == ([], falls_back)
    assert pair.broker.usage.used == sum(each.size for each in pair.waiting(DLQ))


def test_expired_message_is_a_dead_letter() -> None:
    pair = Pair()
    inbox = send(pair, expiration=pair.now_ms + 10)
    pair.now_ms += 11
    reject(pair, inbox)
    assert (pair.broker.scheduler.job_count, len(pair.waiting(DLQ))) == (0, 1)


def test_message_of_a_durable_subscription_is_a_dead_letter() -> None:
    pair = Pair(RedeliveryRules(policies=EntryMap((), POLICY), fallback_to_dead_letter=False))
    inbox = pair.client("me").subscribe("topic://T", subscription_name="s")
    pair.sync()
    pair.client().send("topic://T", "m")
    pair.sync()
    reject(pair, inbox)
    assert (pair.broker.scheduler.job_count, len(pair.waiting(DLQ))) == (0, 1)


NONE_LEFT = RedeliveryPolicy(maximum_redeliveries=0)


@pytest.mark.parametrize(
    ("given", "is_discarding"),
    [
        (rules(NONE_LEFT, send_to_dlq_if_max_retries_exceeded=False), False),
        (rules(None, fallback_to_dead_letter=False), False),
        (rules(NONE_LEFT), True),
        (rules(None), True),
    ],
)
def test_message_that_only_came_back_is_not_dropped(given: RedeliveryRules, is_discarding: bool) -> None:
    """No client has rejected it; one that does has it dropped."""
    pair = Pair(given, max_redeliveries=1)
    if is_discarding:
        pair.broker.dead_letters.discarded = DiscardedLetters()
    pair.client().send("queue://Q.A", "m")
    for _ in range(5):
        client = pair.client()
        client.subscribe("queue://Q.A")
        client.connection.close()
        pair.sync()
    inbox = pair.client().subscribe("queue://Q.A")
    assert inbox.ids == ["m"]
    reject(pair, inbox)
    assert (pair.waiting("queue://Q.A"), pair.waiting(DLQ), pair.broker.scheduler.job_count) == ([], [], 0)


def test_message_that_comes_back_too_often_is_redelivered_later() -> None:
    pair = Pair(rules(RedeliveryPolicy(maximum_redeliveries=5)), max_redeliveries=1)
    pair.client().send("queue://Q.A", "m")
    for _ in range(2):
        client = pair.client()
        assert client.subscribe("queue://Q.A").ids == ["m"]
        client.connection.close()
    pair.sync()
    assert (pair.waiting("queue://Q.A"), pair.broker.scheduler.job_count) == ([], 1)
    pair.after(1000)
    assert pair.client().subscribe("queue://Q.A").counts == [3]


def test_rejection_before_the_last_job_is_complete_loses_nothing() -> None:
    """A consumer may have a job's message before that is on disk, and the job is complete."""
    pair = Pair()
    inbox = send(pair)
    reject(pair, inbox)
    pair.now_ms += 1000
    pair.broker.scheduler.fire(pair.now_ms)
    inbox.consumer.reject(inbox.deliveries.pop(), "no")
    pair.sync()
    assert pair.broker.scheduler.job_count == 1
    pair.after(3000)
    assert inbox.counts == [2]


def test_job_that_is_not_on_disk_in_time_loses_nothing() -> None:
    pair = Pair()
    inbox = send(pair)
    inbox.consumer.reject(inbox.deliveries.pop(), "no")
    pair.store.sync()
    pair.now_ms += 1000
    pair.broker.scheduler.fire(pair.now_ms)
    assert pair.kept() == 1, "its job is not on disk"
    inbox.consumer.reject(inbox.deliveries.pop(), "no")
    pair.sync()
    pair.sync()
    assert (pair.kept(), pair.waiting("queue://Q.A"), pair.broker.scheduler.job_count) == (0, [], 1)
    pair.after(3000)
    assert inbox.counts == [2]
    inbox.ack()
    pair.sync()
    assert (pair.broker.usage.used, pair.broker.queues[queue("Q.A")].counters().size) == (0, 0)


def test_what_has_no_space_among_the_jobs_is_a_dead_letter() -> None:
    pair = Pair(jobs_max=0)
    reject(pair, send(pair))
    assert (pair.broker.scheduler.job_count, len(pair.waiting(DLQ))) == (0, 1)


def test_message_that_does_not_decode_is_a_dead_letter() -> None:
    pair = Pair()
    inbox = send(pair, properties={"color": "red"})
    message = inbox.deliveries[0].message
    message.data = message.data.replace(b"color", b"c\xff\xff\xffr")
    message.decoded = None
    reject(pair, inbox)
    assert (pair.broker.scheduler.job_count, pair.waiting("queue://Q.A")) == (0, [])
    assert len(pair.broker.queues[parse(DLQ)].pending) == 1


def test_repetition_of_the_client_is_not_repeated() -> None:
    """Properties that ask for several deliveries are of the first time: the broker redelivers once."""
    pair = Pair()
    inbox = send(pair, properties={"AMQ_SCHEDULED_REPEAT": 5})
    reject(pair, inbox)
    pair.after(1000)
    assert (len(inbox.deliveries), pair.broker.scheduler.job_count) == (1, 0)


# ---------------------------------------------------------------- crashes


def test_crash_before_the_commit_is_on_disk_leaves_it_in_its_queue() -> None:
    """The memory store has a commit at once, as a journal whose last batch was written; so the job is made again."""
    pair = Pair()
    inbox = send(pair)
    inbox.consumer.reject(inbox.deliveries.pop(), "no")
    assert (pair.kept(), pair.jobs.recover()) == (1, [])
    pair.die()
    assert (pair.kept(), pair.waiting("queue://Q.A"), len(pair.jobs.recover())) == (0, [], 1)
    pair.after(1000)
    (message,) = pair.waiting("queue://Q.A")
    assert decode(message.data).redelivery_counter == 1


def test_crash_after_the_job_is_on_disk_makes_no_second_one() -> None:
    pair = Pair()
    inbox = send(pair)
    inbox.consumer.reject(inbox.deliveries.pop(), "no")
    pair.store.sync()
    assert (pair.kept(), len(pair.jobs.recover())) == (1, 1)
    pair.die()
    assert (pair.kept(), pair.waiting("queue://Q.A"), len(pair.jobs.recover())) == (0, [], 1)
    pair.after(1000)
    assert len(pair.waiting("queue://Q.A")) == 1


def test_count_survives_a_crash() -> None:
    pair = Pair()
    reject(pair, send(pair))
    pair.after(1000)
    pair.die()
    inbox = pair.client().subscribe("queue://Q.A")
    assert inbox.counts == [1]
    reject(pair, inbox)
    pair.after(3000)
    assert inbox.counts == [2]
    reject(pair, inbox)
    assert len(pair.waiting(DLQ)) == 1


def test_master_without_the_table_delivers_what_was_scheduled() -> None:
    pair = Pair()
    reject(pair, send(pair))
    pair.die()
    pair.broker.dead_letters.redelivery = None
    pair.after(1000)
    inbox = pair.client().subscribe("queue://Q.A")
    assert inbox.ids == ["m"]
    reject(pair, inbox)
    assert len(pair.waiting(DLQ)) == 1
