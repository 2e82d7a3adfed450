"""Scheduled messages that cannot be read, made again or sent, or whose master crashes: what is left of each."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.broker.core.scheduled import undeliverable
from pybroker.broker.core.scheduler import UNREADABLE_MS
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.errors import StoreUnavailable
from pybroker.broker.domain.jobs import Job
from pybroker.broker.domain.message import RESENT, Message
from pybroker.broker.domain.openwire.heads import place, read_head
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.layout import BODY_AT
from pybroker.broker.domain.openwire.loose import Reader
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, encode, routing, view
from pybroker.store.scheduler.memory import MemoryJobStore
from tests.unit.core.test_scheduler import START, World, message


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


def nameless() -> bytes:
    return encode(OpenWireMessage(type=MessageType.TEXT, destination=queue("Q")))


@pytest.mark.parametrize("data", [b"garbage", nameless()])
def test_a_job_that_is_no_message_stays_where_it_is(world: World, caplog: Any, data: bytes) -> None:
    world.jobs.add(Job(job_id="bad", start_time=1, next_time=START, data=data))
    world.jobs.add(Job(job_id="good", start_time=1, next_time=START + 1, data=message().data))
    world.start()
    world.run_to(START + 10)
    assert "bad is none and is left where it is" in caplog.text
    assert world.drain() == [(1, "hello")]
    assert [job.job_id for job in world.jobs.recover()] == ["bad"]


@pytest.mark.parametrize(
    "data",
    [
        message(properties={"AMQ_SCHEDULED_REPEAT": "x"}).data,
        message(properties={"a": 5}).data.replace(b"a\x05", b"a\x63"),
    ],
)
def test_a_job_that_cannot_be_made_again_is_dead_lettered(world: World, caplog: Any, data: bytes) -> None:
    letters: list[Message] = []
    world.options["dead_letter"] = lambda message, cause: letters.append(message)
    world.jobs.add(Job(job_id="bad", start_time=1, next_time=START, data=data))
    world.jobs.add(Job(job_id="good", start_time=1, next_time=START + 1, data=message().data))
    world.start()
    world.order("BROWSE", reply_to=queue("A"))
    world.sent.clear()
    world.run_to(START + 10)
    assert "bad to queue://Q cannot be made again" in caplog.text
    (letter,) = letters
    letter_id = read_head(Reader(letter.data, BODY_AT)).message_id
    assert letter_id is not None
    assert letter_id.jms_message_id == routing(data).message_id, "clients see the same id"
    assert letter.message_id != routing(data).message_id
    assert letter.data.endswith(data[place(data, "message_id")[1] :])
    assert world.drain() == [(1, "hello")]
    assert not world.jobs.recover()


def test_dead_letter_of_a_job_keeps_an_id_too_long_to_change() -> None:
    producer_id = ProducerId("x" * 65_533, 1, 1)
    data = message(message_id=OpenWireMessageId(None, producer_id, 1)).data
    assert undeliverable(data).data == data


def test_a_bug_in_sending_one_message_stays_with_it(world: World, caplog: Any) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": 500})
    world.send("next", properties={"AMQ_SCHEDULED_DELAY": 600})
    world.refusal = RuntimeError("a bug")
    world.run_to(START + 500)
    world.refusal = None
    world.run_to(START + 2000)
    assert "scheduled delivery failed for job" in caplog.text
    assert world.drain() == [(600, "next")]
    assert len(world.jobs.recover()) == 1, "what was confirmed is there for the next master"


def test_a_store_that_fails_in_sending_ends_the_run(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": 500})
    world.refusal = StoreUnavailable("the journal has stopped")
    with pytest.raises(StoreUnavailable):
        world.run_to(START + 2000)


def test_a_job_the_disk_cannot_read_waits_and_others_go(make_world: Callable[..., World], caplog: Any) -> None:
    class Failing(MemoryJobStore):
        fails = True

        def load(self, job: Job) -> bytes:
            if self.fails and job.job_id == "bad":
                raise StoreUnavailable("db-1.log: Input/output error")
            return super().load(job)

    jobs = Failing()
    jobs.add(Job(job_id="bad", start_time=1, next_time=START, data=message("late").data))
    jobs.add(Job(job_id="good", start_time=1, next_time=START + 1, data=message().data))
    world = make_world(jobs=jobs)
    world.order("BROWSE", reply_to=queue("A"))
    world.sent.clear()
    world.run_to(START + 10)
    assert world.drain() == [(1, "hello")]
    assert "1 scheduled messages cannot be read now: bad: db-1.log: Input/output error" in caplog.text
    jobs.fails = False
    world.run_to(START + UNREADABLE_MS)
    assert world.drain() == [(UNREADABLE_MS, "late")]
    assert not jobs.recover()


def test_only_runs_that_were_due_before_a_crash_are_marked(world: World) -> None:
    world.is_slow = True
    repeated = {"AMQ_SCHEDULED_DELAY": 5000, "AMQ_SCHEDULED_PERIOD": 1000, "AMQ_SCHEDULED_REPEAT": 1}
    for properties in (repeated, {"AMQ_SCHEDULED_DELAY": 5001}):
        world.send(properties=properties)
    world.run_to(START + 5000)
    world.start(after_crash=True)
    for _ in range(3):
        world.run_to(START + 7000)
        world.sync()
    marks = [(time - START, view(each).properties.get(RESENT)) for time, each in world.sent]
    assert marks == [(5000, None), (5000, True), (7000, None), (7000, None)]


def test_a_run_that_was_due_while_no_master_served_is_not_marked_after_a_clean_stop(world: World) -> None:
    world.send(properties={"AMQ_SCHEDULED_DELAY": 5000})
    world.now += 6000
    world.start()
    world.run_to(world.now)
    ((_, sent),) = world.sent
    assert RESENT not in view(sent).properties
