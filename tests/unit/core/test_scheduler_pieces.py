"""Scheduled messages that are many or large: what is done with them in one turn of the event loop."""

from collections.abc import Iterator
from itertools import count, pairwise

import pytest

from pybroker.broker.core import scheduler as scheduler_module
from pybroker.broker.core.piecewise import PiecewiseWorker, carry_out
from pybroker.broker.core.scheduler import FIRED_BYTES_MAX, FIRED_SECONDS, FOUND_MAX
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.effort import EFFORT
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.jobs import Job
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.ids import OpenWireMessageId
from pybroker.broker.domain.openwire.values import Value
from pybroker.store.scheduler.memory import MemoryJobStore
from tests.compiled import interpreted
from tests.unit.core.test_scheduler import MANAGEMENT, PRODUCER, START, World, message, scheduled_at


@pytest.fixture
def world() -> World:
    return World()


def test_browse_of_very_many_is_ordered_by_due_time(world: World) -> None:
    delays = [1000 + (number * 7919) % 1201 for number in range(2 * FOUND_MAX + 201)]
    scheduled_at(world, *delays)
    world.order("BROWSE", reply_to=queue("A"))
    world.run_to(START + 1)
    assert [text for _, text in world.drain()] == [f"in {delay}" for delay in sorted(delays)]


def test_browse_of_large_messages_has_few_in_a_turn(world: World) -> None:
    large = "x" * (FIRED_BYTES_MAX // 2)
    for _ in range(5):
        world.send(large, properties={"AMQ_SCHEDULED_DELAY": 1000})
    world.order("BROWSE", reply_to=queue("A"))
    assert len(world.sent) == 2
    world.run_to(START)
    assert len(world.sent) == 5


def test_a_message_is_no_usual_effort_as_its_properties_are_decoded(world: World) -> None:
    for ask in (world.scheduler.accepts, world.scheduler.is_for):
        EFFORT.is_large = False
        assert ask(message(properties={"AMQ_SCHEDULED_DELAY": 1000}))
        assert EFFORT.is_large


def test_large_messages_that_are_due_are_few_in_a_turn(world: World) -> None:
    large = "x" * (FIRED_BYTES_MAX // 2)
    for _ in range(5):
        world.send(large, properties={"AMQ_SCHEDULED_DELAY": 1000})
    world.is_slow = True
    world.run_to(START + 1000)
    for expected in (2, 2, 1):
        assert len(world.drain()) == expected
        world.sync()
        world.run_to(world.now)


class OnDisk(MemoryJobStore):
    """Reads each message from disk, as the journal does with large ones."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, bytes] = {}
        self.read: list[str] = []

    def add(self, *jobs: Job) -> None:
        super().add(*jobs)
        for job in jobs:
            self.data[job.job_id], job.data = job.data or b"", None

    def load(self, job: Job) -> bytes:
        self.read.append(job.job_id)
        return self.data[job.job_id]


def test_large_message_is_sent_in_a_later_turn_than_it_is_read() -> None:
    jobs = OnDisk()
    world = World(jobs=jobs)
    for name in "ab":
        world.send(name + "x" * FIRED_BYTES_MAX, properties={"AMQ_SCHEDULED_DELAY": 1000})
    cancelled = world.send("c" + "x" * FIRED_BYTES_MAX, properties={"AMQ_SCHEDULED_DELAY": 1000})
    world.now = START + 1000
    counts = []
    for _ in range(5):
        world.scheduler.fire(world.now)
        counts.append((len(jobs.read), len(world.sent)))
    assert counts == [(1, 0), (1, 1), (2, 1), (2, 2), (3, 2)]
    world.order("REMOVE", scheduledJobId=cancelled.message_id)
    world.scheduler.fire(world.now)
    assert (len(world.sent), world.job_count) == (2, 0)
    assert world.scheduler._large is None


@interpreted
def test_large_message_is_copied_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = OnDisk()
    world = World(jobs=jobs)
    text = "x" * (4 * FIRED_BYTES_MAX)
    world.send(text, properties={"AMQ_SCHEDULED_DELAY": 1000})
    monkeypatch.setattr(world.scheduler, "_monotonic", count(step=FIRED_SECONDS).__next__)
    world.now = START + 1000
    turns = 0
    while world.job_count:
        world.scheduler.fire(world.now)
        turns += 1
    assert turns >= 4
    assert len(jobs.read) == 1
    assert world.drain() == [(1000, text)]


class Worker(PiecewiseWorker):
    """Keeps the steps of commands until the test takes them."""

    def __init__(self) -> None:
        self.steps: list[Iterator[int]] = []

    def work_off(self, steps: Iterator[int]) -> None:
        self.steps.append(steps)


def command(action: str, **properties: Value) -> Message:
    reply_to = queue("ANSWERS")
    return message("", MANAGEMENT, {"AMQ_SCHEDULER_ACTION": action, **properties}, reply_to=reply_to)


@interpreted
def test_a_cancellation_of_many_jobs_is_steps_of_its_worker(world: World) -> None:
    scheduled_at(world, *range(1000, 1020))
    worker = Worker()
    world.scheduler.schedule(command("REMOVEALL"), worker)
    assert world.job_count == 20
    (steps,) = worker.steps
    for _ in range(5):
        next(steps)
    assert world.job_count == 15
    world.send("new", properties={"AMQ_SCHEDULED_DELAY": 1000})
    world.run_to(START + 1001)
    arrived_meanwhile = [text for _, text in world.drain()]
    assert sum(1 for _ in steps) + len(arrived_meanwhile) == 16, "one that ran before its step is not cancelled"
    assert world.job_count == 0
    assert not world.jobs.recover()


@interpreted
@pytest.mark.parametrize("count", [1, 2])
def test_what_a_cron_job_starts_before_its_step_is_cancelled_too(world: World, count: int) -> None:
    scheduled_at(world, *range(1000, 1000 + count))
    world.send(properties={"AMQ_SCHEDULED_CRON": "* * * * *", "AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": -1})
    worker = Worker()
    for _ in range(count):
        world.scheduler.schedule(command("REMOVEALL"), worker)
    for steps in worker.steps:
        next(steps)
    world.run_to(START + 60_000)
    assert world.job_count == 2, "the cron job, and the one that it has started"
    for steps in worker.steps:
        carry_out(steps)
    assert world.job_count == 0
    assert not world.jobs.recover()
    world.drain()
    world.run_to(START + 180_000)
    assert not world.drain()


@interpreted
def test_browses_whose_jobs_are_looked_for_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "BROWSES_MAX", 1)
    scheduled_at(world, *range(1000, 1005))
    worker = Worker()
    world.scheduler.schedule(command("BROWSE"), worker)
    with pytest.raises(ResourceLimit):
        world.scheduler.accepts(command("BROWSE"))
    assert not world.sent
    assert sum(worker.steps[0]) == 5
    assert len(world.sent) == 5


@interpreted
def test_a_browse_after_the_stop_sends_nothing(world: World) -> None:
    scheduled_at(world, 1000)
    worker = Worker()
    world.scheduler.schedule(command("BROWSE"), worker)
    world.scheduler.stop()
    assert sum(worker.steps[0]) == 1
    assert not world.sent


def test_one_id_is_scheduled_for_some_destinations(world: World) -> None:
    message_id = OpenWireMessageId(None, PRODUCER, 1_000_000)
    delay: dict[str, Value] = {"AMQ_SCHEDULED_DELAY": 700}
    for number in range(scheduler_module.SAME_ID_MAX):
        world.send("x", f"queue://{number}", delay, message_id=message_id)
    with pytest.raises(ResourceLimit, match="is scheduled for 64 destinations already"):
        world.send("x", "queue://more", delay, message_id=message_id)
    world.run_to(START + 1000)
    assert len(world.drain()) == scheduler_module.SAME_ID_MAX


def test_what_takes_long_is_sent_and_shown_in_several_turns() -> None:
    seconds = count()
    world = World(monotonic=lambda: next(seconds) * scheduler_module.FIRED_SECONDS / 2)
    for _ in range(10):
        world.send(properties={"AMQ_SCHEDULED_DELAY": 700})
    world.order("BROWSE", reply_to=queue("R"))
    turns = []
    while world.wake_time is not None and world.wake_time <= world.now + 700:
        world.now = max(world.now, world.wake_time)
        world.wake_time = None
        world.scheduler.fire(world.now)
        turns.append(len(world.sent))
    assert turns[-1] == 20
    assert max(after - before for before, after in pairwise(turns)) <= 4
