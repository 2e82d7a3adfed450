# mypy: disable-error-code="arg-type"
"""Scheduled delivery: what waits, when it goes, what arrives, and what a crash leaves of it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pybroker.broker.core import scheduler as scheduler_module
from pybroker.broker.core.scheduled import is_scheduled
from pybroker.broker.core.scheduler import (
    BROWSED_MAX,
    FIRED_MAX,
    READ_AGAIN_MS,
    RETRY_MS,
    WAKE_MS_MAX,
    Scheduler,
)
from pybroker.broker.domain.destination import Destination, parse, queue
from pybroker.broker.domain.errors import (
    InvalidDestination,
    JournalCorrupt,
    NotReadYet,
    RequestError,
    ResourceLimit,
)
from pybroker.broker.domain.jobs import TIME_MAX, InvalidSchedule, Job
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import (
    MessageType,
    OpenWireMessage,
    decode,
    routing,
    to_message,
    view,
)
from pybroker.broker.domain.openwire.values import Byte, Float, Long, Short, Value, encode_map
from pybroker.broker.domain.transaction import LocalTransactionId
from pybroker.store.scheduler.memory import MemoryJobStore

START = 1_700_000_000_123
PRODUCER = ProducerId("ID:client-1-1:1", 1, 1)
MANAGEMENT = "topic://ActiveMQ.Scheduler.Management"
_numbers = count(1)


def message(
    text: str = "hello", destination: str = "queue://Q", properties: Mapping[str, Value] | None = None, **fields: Any
) -> Message:
    made = OpenWireMessage(
        type=MessageType.TEXT,
        producer_id=PRODUCER,
        destination=parse(destination),
        message_id=fields.pop("message_id", OpenWireMessageId(None, PRODUCER, next(_numbers))),
        persistent=fields.pop("persistent", True),
        **fields,
    )
    made.content = encode_text(text)
    if properties is not None:
        made.set_properties(properties)
    return to_message(made)


class World:
    """A scheduler whose clock, timer and message store are moved by hand."""

    def __init__(self, **options: Any) -> None:
        self.now = START
        self.jobs: Any = options.pop("jobs", None) or MemoryJobStore()
        self.sent: list[tuple[int, Message]] = []
        self.wake_time: int | None = None
        self.unsafe: list[Callable[[], None]] = []
        self.is_slow = False
        """The message store calls back only in `sync`."""
        self.refusal: Exception | None = None
        self.options = options
        self.scheduler = self.start()

    def start(self, *, after_crash: bool = False) -> Scheduler:
        self.unsafe.clear()
        self.wake_time = None
        self.scheduler = Scheduler(
            jobs=self.jobs,
            send=self._route,
            when_durable=self._when_durable,
            clock=lambda: self.now,
            wake_at=self._wake_at,
            connection_id=f"ID:broker-{self.now}",
            **{"offset_at": lambda _: 0, **self.options},
        )
        self.scheduler.load(self.jobs.recover(), after_crash=after_crash)
        return self.scheduler

    @property
    def job_count(self) -> int:
        """The number of jobs that the scheduler has."""
        return len(self.scheduler._job_queue)

    def _route(self, sent: Message) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.sent.append((self.now, sent))

    def _when_durable(self, callback: Callable[[], None]) -> None:
        if self.is_slow:
            self.unsafe.append(callback)
        else:
            callback()

    def _wake_at(self, time: int | None) -> None:
        self.wake_time = time

    def sync(self) -> None:
        callbacks, self.unsafe = self.unsafe, []
        for callback in callbacks:
            callback()

    def send(self, *args: Any, **fields: Any) -> Message:
        made = message(*args, **fields)
        assert is_scheduled(made)
        assert self.scheduler.accepts(made)
        self.scheduler.schedule(made)
        return made

    def order(self, action: str, destination: str = MANAGEMENT, **properties: Value) -> None:
        reply_to = properties.pop("reply_to", None)
        self.send("", destination, {"AMQ_SCHEDULER_ACTION": action, **properties}, reply_to=reply_to)

    def run_to(self, time: int) -> None:
        """Let time pass; the timer rings whenever it was set to."""
        for _ in range(100_000):
            if self.wake_time is None or self.wake_time > time:
                break
            self.now = max(self.now, self.wake_time)
            self.wake_time = None
            self.scheduler.fire(self.now)
        else:
            raise AssertionError("the timer rings for ever")
        self.now = max(self.now, time)

    def drain(self) -> list[tuple[int, str | None]]:
        """Return what was sent, each with its time after the start."""
        sent, self.sent = self.sent, []
        return [(time - START, view(each).text()) for time, each in sent]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


# ---------------------------------------------------------------- times


def test_a_delay_is_kept_to_the_millisecond(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": Long(700)})
    world.run_to(START + 699)
    assert not world.sent
    world.run_to(START + 10_000)
    assert world.drain() == [(700, "hello")]
    assert world.job_count == 0
    assert world.wake_time is None


def test_a_timer_that_fires_early_sends_nothing(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": Long(700)})
    world.scheduler.fire(START + 699)
    assert not world.sent
    assert world.wake_time == START + 700


@pytest.mark.parametrize(
    ("properties", "times"),
    [
        ({"AMQ_SCHEDULED_DELAY": 0}, [0]),
        ({"AMQ_SCHEDULED_DELAY": -5}, [0]),
        ({"AMQ_SCHEDULED_PERIOD": 300}, [300]),
        ({"AMQ_SCHEDULED_PERIOD": 300, "AMQ_SCHEDULED_REPEAT": 2}, [300, 600, 900]),
        ({"AMQ_SCHEDULED_DELAY": 50, "AMQ_SCHEDULED_PERIOD": 300, "AMQ_SCHEDULED_REPEAT": 2}, [50, 350, 650]),
        ({"AMQ_SCHEDULED_DELAY": 50, "AMQ_SCHEDULED_REPEAT": 2}, [50, 150, 250]),
        ({"AMQ_SCHEDULED_DELAY": 50, "AMQ_SCHEDULED_PERIOD": 1, "AMQ_SCHEDULED_REPEAT": 2}, [50, 150, 250]),
        ({"AMQ_SCHEDULED_CRON": ""}, [0]),
        ({"AMQ_SCHEDULED_DELAY": "50", "AMQ_SCHEDULED_PERIOD": " 300 ", "AMQ_SCHEDULED_REPEAT": "1"}, [50, 350]),
        ({"AMQ_SCHEDULED_DELAY": Short(50), "AMQ_SCHEDULED_REPEAT": Byte(0)}, [50]),
    ],
)
def test_runs(world: World, properties: dict[str, Value], times: list[int]) -> None:
    world.send(properties=properties)
    world.run_to(START + 5000)
    assert [time for time, _ in world.drain()] == times
    assert world.job_count == 0


def test_for_ever(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": -3})
    world.run_to(START + 2_000_000)
    assert len(world.sent) == 2000
    assert world.job_count == 1


def test_repeat_alone_does_not_schedule(world: World) -> None:
    assert not world.scheduler.accepts(message(properties={"AMQ_SCHEDULED_REPEAT": 3}))


def test_what_was_scheduled_once_is_not_scheduled_again(world: World) -> None:
    assert not world.scheduler.accepts(message(properties={"AMQ_SCHEDULED_DELAY": 3, "scheduledJobId": "x"}))


def test_a_name_in_the_body_alone_schedules_nothing(world: World) -> None:
    assert not world.scheduler.accepts(message("AMQ_SCHEDULED_DELAY"))


def test_a_delay_without_end_is_never(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": Long(TIME_MAX)})
    (job,) = world.jobs.recover()
    assert job.next_time == TIME_MAX


def test_order_is_by_time_and_then_by_arrival(world: World) -> None:
    for number in range(5):
        world.send(f"late {number}", properties={"AMQ_SCHEDULED_DELAY": 500})
    for number in range(5):
        world.send(f"soon {number}", properties={"AMQ_SCHEDULED_DELAY": 400})
    world.scheduler.fire(START + 600)
    assert [text for _, text in world.drain()] == [
        f"{when} {number}" for when in ("soon", "late") for number in range(5)
    ]


def test_the_timer_fires_for_the_first_and_no_more_than_needed(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": 5000})
    assert world.wake_time == START + 5000
    world.send(properties={"AMQ_SCHEDULED_DELAY": 400})
    assert world.wake_time == START + 400
    world.wake_time = -1
    world.send(properties={"AMQ_SCHEDULED_DELAY": 900})
    assert world.wake_time == -1, "it rings before that already"


def test_changed_clock_is_noticed(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": 86_400_000})
    assert world.wake_time == START + WAKE_MS_MAX
    world.now += 86_400_000
    world.scheduler.fire(world.now)
    assert len(world.sent) == 1


def test_a_period_keeps_its_grid_however_late_a_run_was(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": 3})
    world.now = START + 1400
    world.scheduler.fire(world.now)
    world.run_to(START + 9000)
    assert [time for time, _ in world.drain()] == [1400, 2000, 3000, 4000]


def test_missed_runs_are_one_run(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": 3})
    world.now = START + 60_500
    world.start()
    world.run_to(START + 90_000)
    assert [time for time, _ in world.drain()] == [60_500, 61_500, 62_500, 63_500]


# ---------------------------------------------------------------- cron


def minute(number: int) -> int:
    """Return a full minute after the start, relative to it."""
    return (START // 60_000 + number) * 60_000 - START


def test_a_cron_entry_fires_at_every_instant(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_CRON": "* * * * *"})
    world.run_to(START + 200_000)
    assert [time for time, _ in world.drain()] == [minute(1), minute(2), minute(3)]
    assert len({view(m).message_id for _, m in world.sent}) == len(world.sent)


def test_a_delay_moves_the_first_instant_only_as_in_activemq(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_CRON": "* * * * *", "AMQ_SCHEDULED_DELAY": 1500})
    world.run_to(START + 200_000)
    assert [time for time, _ in world.drain()] == [minute(1) + 1500, minute(2), minute(3)]


def test_each_instant_starts_repetitions(world: World) -> None:
    made = world.send(
        properties={"AMQ_SCHEDULED_CRON": "* * * * *", "AMQ_SCHEDULED_PERIOD": 500, "AMQ_SCHEDULED_REPEAT": 1}
    )
    first = minute(1) + 500
    world.run_to(START + minute(2) + 499)
    assert [time for time, _ in world.drain()] == [first + 500, first + 1000]
    assert world.job_count == 2, "the entry, and what its second instant started"
    assert made.message_id in {job.job_id for job in world.jobs.recover()}


def test_repetitions_are_limited_by_the_number_of_jobs(make_world: Callable[..., World], caplog: Any) -> None:
    world = make_world(jobs_max=3)
    world.send(
        properties={"AMQ_SCHEDULED_CRON": "* * * * *", "AMQ_SCHEDULED_PERIOD": 3_600_000, "AMQ_SCHEDULED_REPEAT": -1}
    )
    world.run_to(START + 3_600_000 + 20 * 60_000)
    assert world.job_count == 3
    assert "starts no repetitions" in caplog.text


def test_another_brokers_entry_that_makes_no_sense_runs_once(world: World, caplog: Any) -> None:
    world.jobs.add(Job(job_id="x", start_time=1, cron="0 0 * * 7", next_time=START, data=message().data))
    world.start()
    world.run_to(START + 1000)
    assert len(world.sent) == 1
    assert world.job_count == 0
    assert "job x is over" in caplog.text


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "properties",
    [
        {"AMQ_SCHEDULED_DELAY": "soon"},
        {"AMQ_SCHEDULED_DELAY": True},
        {"AMQ_SCHEDULED_DELAY": 1.5},
        {"AMQ_SCHEDULED_DELAY": b"5"},
        {"AMQ_SCHEDULED_DELAY": "9" * 30},
        {"AMQ_SCHEDULED_DELAY": "9" * 5000},
        {"AMQ_SCHEDULED_DELAY": 5, "AMQ_SCHEDULED_PERIOD": Float(1)},
        {"AMQ_SCHEDULED_DELAY": 5, "AMQ_SCHEDULED_REPEAT": 1001},
        {"AMQ_SCHEDULED_DELAY": 5, "AMQ_SCHEDULED_REPEAT": "x"},
        {"AMQ_SCHEDULED_CRON": "* * *"},
        {"AMQ_SCHEDULED_CRON": "0 0 30 2 *"},
        {"AMQ_SCHEDULED_CRON": 5},
    ],
)
def test_what_makes_no_sense_is_refused(world: World, properties: dict[str, Value]) -> None:
    with pytest.raises(InvalidSchedule):
        world.scheduler.accepts(message(properties=properties))
    assert issubclass(InvalidSchedule, RequestError)


def test_too_many_repeats_are_refused_in_activemqs_words(world: World) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        world.scheduler.accepts(message(properties={"AMQ_SCHEDULED_DELAY": 5, "AMQ_SCHEDULED_REPEAT": 1001}))
    assert str(refused.value) == "The scheduled repeat value is too large"


def test_properties_that_do_not_decode_are_refused(world: World) -> None:
    broken = message(properties={"AMQ_SCHEDULED_DELAY": 5})
    data = broken.data.replace(b"AMQ_SCHEDULED_DELAY\x05", b"AMQ_SCHEDULED_DELAY\x63")
    assert data != broken.data
    with pytest.raises(InvalidSchedule, match="do not decode"):
        world.scheduler.accepts(replace(broken, data=data, decoded=None))


def test_the_number_of_jobs_is_limited(make_world: Callable[..., World]) -> None:
    world = make_world(jobs_max=2)
    for _ in range(2):
        world.send(properties={"AMQ_SCHEDULED_DELAY": 5})
    with pytest.raises(ResourceLimit):
        world.scheduler.accepts(message(properties={"AMQ_SCHEDULED_DELAY": 5}))
    assert not world.scheduler.accepts(message()), "others are not concerned"


# ---------------------------------------------------------------- what arrives


def arrived(world: World) -> list[OpenWireMessage]:
    return [view(each) for _, each in world.sent]


def test_delivered_message_has_no_timetable(world: World) -> None:
    properties: dict[str, Value] = {
        "AMQ_SCHEDULED_DELAY": Long(5),
        "AMQ_SCHEDULED_PERIOD": "7",
        "colour": "grün",
        "count": Short(3),
        "ratio": Float(0.5),
    }
    made = world.send(
        properties=properties,
        transaction_id=LocalTransactionId("c", 1),
        correlation_id="c",
        jms_type="t",
        reply_to=queue("R"),
        group_id="g",
        priority=7,
        persistent=False,
    )
    world.run_to(START + 1000)
    (got,) = arrived(world)
    expected = replace(view(made), message_id=got.message_id, transaction_id=None, broker_in_time=START + 5)
    expected.set_properties(
        {"colour": "grün", "count": Short(3), "ratio": Float(0.5), "scheduledJobId": made.message_id}
    )
    assert got == expected
    assert got.message_id is not None
    assert got.message_id.jms_message_id == made.message_id, "clients see the id it had"
    assert type(got.properties["count"]) is Short
    sent = world.sent[0][1]
    assert routing(sent.data).message_id == sent.message_id
    assert (sent.persistent, sent.priority, sent.connection_id) == (False, 7, "ID:client-1-1:1")


def test_a_job_forgets_the_transaction_it_was_sent_in(world: World) -> None:
    """An ActiveMQ that takes it over would store what it sends as part of that transaction."""
    transaction = LocalTransactionId("c", 1)
    made = world.send(
        properties={"AMQ_SCHEDULED_DELAY": 5}, transaction_id=transaction, original_transaction_id=transaction
    )
    (job,) = world.jobs.recover()
    kept = decode(world.jobs.load(job))
    assert kept == replace(view(made), transaction_id=None, original_transaction_id=None)


def test_time_to_live_counts_from_the_delivery(world: World) -> None:
    properties = {"AMQ_SCHEDULED_DELAY": 5000}
    world.send("short", properties=properties, timestamp=START, expiration=START + 300)
    world.send("dead on arrival", properties=properties, timestamp=START, expiration=START - 1)
    world.send("for ever", properties=properties, timestamp=START)
    world.send("without a timestamp", properties=properties, expiration=START + 300)
    world.run_to(START + 9000)
    assert [(m.timestamp - START, m.expiration - START) for m in arrived(world)] == [
        (5000, 5300),
        (0, -1),
        (0, -START),
        (-START, 300),
    ]


def test_what_repeats_gets_an_id_of_its_own_each_time(world: World) -> None:
    made = world.send(properties={"AMQ_SCHEDULED_PERIOD": 500, "AMQ_SCHEDULED_REPEAT": 2})
    world.run_to(START + 5000)
    ids = [str(m.message_id) for m in arrived(world)]
    assert len({*ids, made.message_id}) == 4
    assert {m.properties["scheduledJobId"] for m in arrived(world)} == {made.message_id}
    assert all(m.producer_id == PRODUCER for m in arrived(world)), "it is still the client's message"


# ---------------------------------------------------------------- crashes


def test_a_job_survives_a_restart(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": 5000})
    world.start()
    world.run_to(START + 9000)
    assert world.drain() == [(5000, "hello")]


def test_an_overdue_job_fires_at_once(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": 5000})
    world.now += 60_000
    world.start()
    assert world.wake_time is not None
    assert world.wake_time <= world.now
    world.run_to(world.now)
    assert world.drain() == [(60_000, "hello")]


def test_a_crash_before_the_message_is_safe_sends_it_again(world: World) -> None:
    world.is_slow = True
    made = world.send(properties={"AMQ_SCHEDULED_DELAY": 5000})
    world.run_to(START + 5000)
    ((_, first),) = world.sent
    world.sent.clear()
    world.start()
    world.run_to(START + 6000)
    world.sync()
    assert [each.message_id for _, each in world.sent] == [first.message_id], "under the same id: the queue knows it"
    assert first.message_id != made.message_id, "or the producer's last number would seem to be stored"
    world.start()
    world.run_to(START + 9000)
    assert len(world.sent) == 1
    assert world.job_count == 0


def test_a_job_fires_once_while_its_message_is_not_safe_yet(world: World) -> None:
    world.is_slow = True
    world.send(properties={"AMQ_SCHEDULED_PERIOD": 500, "AMQ_SCHEDULED_REPEAT": 9})
    world.run_to(START + 3000)
    assert len(world.sent) == 1
    assert world.wake_time is None
    world.sync()
    world.scheduler.fire(START + 3000)
    assert len(world.sent) == 2, "what was missed is made up for by one run"


def test_a_job_that_is_cancelled_while_it_fires_is_gone(world: World) -> None:
    world.is_slow = True
    made = world.send(properties={"AMQ_SCHEDULED_PERIOD": 500, "AMQ_SCHEDULED_REPEAT": 9})
    world.run_to(START + 600)
    world.order("REMOVE", scheduledJobId=made.message_id)
    world.sync()
    world.run_to(START + 9000)
    assert len(world.sent) == 1
    assert not world.jobs.recover()


def test_stopped_scheduler_sends_nothing_and_records_its_sends(world: World) -> None:
    world.is_slow = True
    world.send("first", properties={"AMQ_SCHEDULED_DELAY": 500})
    world.send("second", properties={"AMQ_SCHEDULED_DELAY": 900})
    world.run_to(START + 600)
    world.scheduler.stop()
    world.scheduler.fire(START + 5000)
    assert world.drain() == [(500, "first")]
    world.sync()
    assert [job.next_time - START for job in world.jobs.recover()] == [900]
    assert world.wake_time is None


def test_a_message_sent_again_is_scheduled_once(world: World) -> None:
    made = world.send(properties={"AMQ_SCHEDULED_DELAY": 5000})
    world.scheduler.schedule(routing(made.data))
    world.start()
    world.scheduler.schedule(routing(made.data))
    assert world.job_count == 1


def test_one_message_to_two_destinations_is_two_jobs(world: World) -> None:
    first = world.send(properties={"AMQ_SCHEDULED_DELAY": 5000})
    to_other = replace(view(first), destination=queue("OTHER"))
    for _ in range(2):
        world.scheduler.schedule(to_message(to_other))
    assert sorted(job.job_id for job in world.jobs.recover()) == [first.message_id, f"{first.message_id}-2"]


# ---------------------------------------------------------------- when sending fails


def test_a_message_without_space_waits(world: World, caplog: Any) -> None:
    for _ in range(3):
        world.send(properties={"AMQ_SCHEDULED_DELAY": 500})
    world.refusal = ResourceLimit("full")
    world.run_to(START + 2000)
    assert [record.message for record in caplog.records] == ["3 scheduled messages have to wait: full"] * 2
    assert len(world.jobs.recover()) == 3
    world.refusal = None
    world.run_to(START + 9000)
    assert world.drain() == [(500 + 2 * RETRY_MS, "hello")] * 3
    assert not world.jobs.recover()


def test_message_without_destination_is_dropped_and_logged(world: World, caplog: Any) -> None:
    world.send(destination="temp-queue://ID:gone:1", properties={"AMQ_SCHEDULED_DELAY": 500})
    world.refusal = InvalidDestination("gone")
    world.run_to(START + 2000)
    assert "is dropped, nothing can take it any more: gone" in caplog.text
    assert not world.jobs.recover()


def test_a_job_that_cannot_be_read_stays_on_disk(make_world: Callable[..., World], caplog: Any) -> None:
    class Unreadable(MemoryJobStore):
        def load(self, job: Job) -> bytes:
            raise JournalCorrupt("nothing there", path="db-1.log", offset=7)

    jobs = Unreadable()
    cron = Job(job_id="cron", start_time=1, next_time=START, cron="* * * * *", repeat=2, data=b"")
    jobs.add(Job(job_id="lost", start_time=1, next_time=START, data=b""), cron)
    world = make_world(jobs=jobs)
    world.run_to(START + 1000)
    assert not world.sent
    assert "lost cannot be read and is left where it is" in caplog.text
    assert {job.job_id for job in jobs.recover()} == {"lost", "cron"}


class Slow(MemoryJobStore):
    """A store that cannot read some messages yet."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow: Callable[[Job], bool] = lambda _: True

    def load(self, job: Job) -> bytes:
        if self.is_slow(job):
            raise NotReadYet("the database has not answered yet")
        return super().load(job)

    def hurry(self) -> None:
        self.is_slow = lambda _: False


def test_a_job_that_is_not_read_yet_is_requested_again(make_world: Callable[..., World]) -> None:
    world = make_world(jobs=Slow())
    world.send("late", properties={"AMQ_SCHEDULED_DELAY": 500})
    world.run_to(START + 5000)
    assert not world.sent
    assert world.job_count == 1
    world.jobs.hurry()
    world.run_to(START + 5000 + READ_AGAIN_MS)
    assert [text for _, text in world.drain()] == ["late"]
    assert world.job_count == 0


def test_unread_job_starts_its_repetitions_later(make_world: Callable[..., World]) -> None:
    world = make_world(jobs=Slow())
    world.send(properties={"AMQ_SCHEDULED_CRON": "* * * * *", "AMQ_SCHEDULED_PERIOD": 500, "AMQ_SCHEDULED_REPEAT": 1})
    first = START + minute(1)
    world.run_to(first + 1000)
    assert not world.sent
    world.jobs.hurry()
    world.run_to(first + 1000 + READ_AGAIN_MS + 1000)
    assert len(world.drain()) == 2
    assert world.job_count == 1, "the entry"


def test_only_a_browse_waits_for_unread_jobs(make_world: Callable[..., World]) -> None:
    world = make_world(jobs=Slow())
    scheduled_at(world, 50, 60_000, 120_000)
    world.jobs.is_slow = lambda job: job.delay == 120_000
    world.order("BROWSE", reply_to=queue("ANSWERS"))
    assert [text for _, text in world.drain()] == ["in 50", "in 60000"]
    world.run_to(START + 100)
    assert world.drain() == [(50, "in 50")]
    assert not world.drain(), "the browse waits"
    world.jobs.hurry()
    world.run_to(START + 100 + READ_AGAIN_MS)
    assert [text for _, text in world.drain()] == ["in 120000"]
    assert world.wake_time is not None
    assert world.wake_time > world.now, "it is over"


def test_large_backlog_is_sent_in_durable_portions(world: World) -> None:
    for _ in range(2 * FIRED_MAX + 1):
        world.send(properties={"AMQ_SCHEDULED_DELAY": 500})
    world.is_slow = True
    world.run_to(START + 1000)
    for expected in (FIRED_MAX, FIRED_MAX, 1):
        assert len(world.drain()) == expected
        world.sync()
        world.run_to(world.now)
    assert world.job_count == 0


# ---------------------------------------------------------------- management


def scheduled_at(world: World, *delays: int) -> list[Message]:
    return [world.send(f"in {delay}", properties={"AMQ_SCHEDULED_DELAY": delay, "a": "b"}) for delay in delays]


@pytest.mark.parametrize("destination", [MANAGEMENT, "queue://activemq.scheduler.MANAGEMENT"])
def test_browse(world: World, destination: str) -> None:
    second, first = scheduled_at(world, 900, 500)
    world.order("BROWSE", destination, reply_to=queue("ANSWERS"))
    answers = arrived(world)
    assert [m.text() for m in answers] == ["in 500", "in 900"]
    assert [m.properties for m in answers] == [
        {"AMQ_SCHEDULED_DELAY": delay, "a": "b", "scheduledJobId": made.message_id}
        for delay, made in ((500, first), (900, second))
    ]
    for m in answers:
        assert (m.destination, m.original_destination) == (queue("ANSWERS"), queue("Q"))
        assert (m.persistent, m.jms_type, m.response_required) == (False, "Advisory", False)
    assert len({str(m.message_id) for m in answers} | {first.message_id, second.message_id}) == 4
    assert not any(world.scheduler.accepts(each) for _, each in world.sent), "what is answered is not scheduled again"


def test_browse_within_a_window(world: World) -> None:
    scheduled_at(world, 400, 500, 600, 700)
    window: dict[str, Value] = {"ACTION_START_TIME": Long(START + 500), "ACTION_END_TIME": str(START + 600)}
    world.order("BROWSE", reply_to=queue("A"), **window)
    assert [text for _, text in world.drain()] == ["in 500", "in 600"]


def test_browse_a_great_many_in_portions(world: World) -> None:
    scheduled_at(world, *range(1000, 1000 + 2 * BROWSED_MAX + 5))
    world.order("BROWSE", reply_to=queue("A"))
    assert len(world.sent) == BROWSED_MAX
    world.order("REMOVEALL", ACTION_START_TIME=START + 1000 + 2 * BROWSED_MAX, ACTION_END_TIME=Long(2**60))
    world.run_to(world.now)
    assert len(world.sent) == 2 * BROWSED_MAX, "what was cancelled in between is not answered"


def test_a_browse_passes_over_cancelled_jobs_faster_than_it_describes_others(world: World) -> None:
    scheduled_at(world, *range(1000, 1000 + 5 * BROWSED_MAX))
    world.order("BROWSE", reply_to=queue("A"))
    world.order("REMOVEALL", ACTION_START_TIME=START, ACTION_END_TIME=START + 998 + 5 * BROWSED_MAX)
    world.scheduler.fire(world.now)
    assert [text for _, text in world.drain()][BROWSED_MAX:] == [f"in {999 + 5 * BROWSED_MAX}"], "in the first turn"


def test_only_so_many_browses_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "BROWSES_MAX", 1)
    scheduled_at(world, *range(1000, 1000 + FIRED_MAX + 5))
    world.order("BROWSE", reply_to=queue("A"))
    with pytest.raises(ResourceLimit):
        world.order("BROWSE", reply_to=queue("A"))
    world.run_to(world.now)
    world.order("BROWSE", reply_to=queue("A"))


def test_a_browser_that_is_gone_ends_its_browse_alone(world: World) -> None:
    scheduled_at(world, 500, 600)
    world.refusal = InvalidDestination("gone")
    world.order("BROWSE", reply_to=Destination(parse("temp-queue://x").type, "x"))
    world.refusal = None
    world.run_to(START + 5000)
    assert [text for _, text in world.drain()] == ["in 500", "in 600"]


def test_remove_by_id(world: World) -> None:
    first, _ = scheduled_at(world, 500, 600)
    world.order("REMOVE", scheduledJobId=first.message_id)
    world.order("REMOVE", scheduledJobId="no one")
    world.run_to(START + 5000)
    assert [text for _, text in world.drain()] == ["in 600"]


def test_remove_all(world: World) -> None:
    scheduled_at(world, 500, 600)
    world.order("REMOVEALL")
    assert world.job_count == 0
    assert not world.jobs.recover()


def test_remove_all_within_a_window(world: World) -> None:
    scheduled_at(world, 400, 500, 600, 700)
    world.order("REMOVEALL", ACTION_START_TIME=Long(START + 500), ACTION_END_TIME=Long(START + 600))
    world.order("REMOVEALL", ACTION_START_TIME=Long(START + 1), ACTION_END_TIME=Long(START + 2))
    world.run_to(START + 5000)
    assert [text for _, text in world.drain()] == ["in 400", "in 700"]


@pytest.mark.parametrize(("action", "properties"), [("BROWSE", {}), ("REMOVE", {}), ("DANCE", {"scheduledJobId": "x"})])
def test_an_order_that_lacks_something_is_logged(
    world: World, caplog: Any, action: str, properties: dict[str, Value]
) -> None:
    scheduled_at(world, 500)
    world.order(action, **properties)
    assert action in caplog.text
    assert world.job_count == 1


def test_a_window_that_is_no_time_is_refused(world: World) -> None:
    with pytest.raises(InvalidSchedule):
        world.order("REMOVEALL", ACTION_START_TIME="now", ACTION_END_TIME="later")


def test_many_cancelled_jobs_leave_nothing_behind(world: World) -> None:
    for number in range(1500):
        made = world.send(properties={"AMQ_SCHEDULED_DELAY": 1_000_000 + number})
        world.order("REMOVE", scheduledJobId=made.message_id)
    assert len(world.scheduler._job_queue._heap) <= 1001


# ---------------------------------------------------------------- spotting a scheduled message


values = st.one_of(st.text(max_size=20), st.integers(-(2**31), 2**31 - 1), st.booleans(), st.binary(max_size=20))
names = st.one_of(st.sampled_from(["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_CRON", "a"]), st.text(min_size=1, max_size=9))
bodies = st.one_of(st.none(), st.text(max_size=50), st.just("AMQ_SCHEDULED_DELAY"), st.just("x" * 9000))


@given(st.dictionaries(names, values, max_size=4), bodies, st.sampled_from([None, "me"]), st.booleans())
def test_no_scheduled_message_goes_unnoticed(
    properties: dict[str, Value], body: str | None, user_id: str | None, keep: bool
) -> None:
    fields = OpenWireMessage(
        type=MessageType.TEXT,
        producer_id=PRODUCER,
        destination=queue("Q"),
        message_id=OpenWireMessageId(None, PRODUCER, 1),
        user_id=user_id,
        marshalled_properties=encode_map(properties) if properties else None,
    )
    fields.content = None if body is None else encode_text(body)
    made = to_message(fields)
    if not keep:
        made = routing(made.data)
    wanted = any(name.startswith("AMQ_SCHEDULE") for name in properties)
    found = is_scheduled(made)
    assert found or not wanted
    if user_id is None and body is not None:
        assert found is wanted, "the body is not looked into"


def test_a_message_of_unknown_size_is_searched_whole() -> None:
    made = message(properties={"AMQ_SCHEDULED_DELAY": 5})
    for size in (0, 1024, 1025, 10**9):
        assert is_scheduled(replace(made, payload_size=size, decoded=None))
