"""Scheduled messages are counted in the memory limit, and have a part of it."""

import pytest

from pybroker.broker.core import object_memory
from pybroker.broker.core.broker import Limits
from pybroker.broker.core.object_memory import JOB_BYTES, PART_MIN
from pybroker.broker.domain.errors import ResourceLimit
from pybroker.broker.domain.jobs import Job
from pybroker.store.memory import MemoryStore
from pybroker.store.scheduler.memory import MemoryJobStore
from tests.compiled import interpreted
from tests.unit.core.conftest import World

MANAGEMENT = "topic://ActiveMQ.Scheduler.Management"


class Jobs:
    """A broker with a scheduler."""

    def __init__(self, jobs_max: int = 1_000_000, recovered: int = 0, memory: int = 4 * PART_MIN) -> None:
        self.broker = (world := World(MemoryStore(), limits=Limits(memory_bytes_max=memory))).broker
        self.broker.open_scheduler(
            MemoryJobStore(),
            [Job(job_id=f"r{number}", start_time=0, next_time=10**15, data=b"") for number in range(recovered)],
            wake_at=lambda time: None,
            connection_id="s",
            jobs_max=jobs_max,
        )
        self.client = world.client()

    def schedule(self, count: int) -> None:
        for name in range(count):
            self.client.send("queue://Q", str(name), properties={"AMQ_SCHEDULED_DELAY": 60_000})

    @property
    def counted(self) -> int:
        objects = self.broker.objects
        return objects.counted - objects.held - objects.lasting


def test_scheduled_messages_count_until_they_are_removed() -> None:
    jobs = Jobs(10)
    jobs.schedule(3)
    assert jobs.counted == 3 * JOB_BYTES
    assert jobs.broker.admin.totals().scheduled == 3
    assert jobs.broker.usage.used == jobs.broker.objects.counted
    jobs.client.send(MANAGEMENT, "", properties={"AMQ_SCHEDULER_ACTION": "REMOVEALL"})
    assert jobs.counted == 0


def test_memory_has_room_for_a_part_of_jobs_max() -> None:
    for memory, room in ((2 * PART_MIN, PART_MIN), (4 * PART_MIN, PART_MIN), (8 * PART_MIN, 2 * PART_MIN)):
        assert Jobs(memory=memory).broker.objects.jobs_max == room // JOB_BYTES


@interpreted  # a constant replaced that is compiled in
def test_no_more_are_accepted_than_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_memory, "JOB_BYTES", PART_MIN // 4)
    jobs = Jobs()
    with pytest.raises(
        ResourceLimit, match="4 messages are scheduled, and memory_limit allows 4: remove some, or raise memory_limit"
    ):
        jobs.schedule(10)
    assert jobs.counted == PART_MIN


@interpreted  # as above
def test_recovered_jobs_count_with_their_part_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_memory, "JOB_BYTES", PART_MIN // 4)
    jobs = Jobs(recovered=9)
    assert jobs.counted == PART_MIN
    with pytest.raises(ResourceLimit):
        jobs.schedule(1)


def test_without_a_memory_limit_jobs_max_counts() -> None:
    jobs = Jobs(2, memory=0)
    with pytest.raises(
        ResourceLimit, match="2 messages are scheduled, and jobs_max allows 2: remove some, or raise jobs_max"
    ):
        jobs.schedule(3)
