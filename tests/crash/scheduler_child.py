# mypy: disable-error-code="arg-type, return-value"
"""A broker's two stores and its scheduler, in a process that kills itself at a named failpoint of one of them."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from pybroker.broker.core.scheduler import Scheduler
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import encode_text
from pybroker.broker.domain.openwire.ids import OpenWireMessageId, ProducerId
from pybroker.broker.domain.openwire.message import MessageType, OpenWireMessage, to_message
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.store import JournalStore
from pybroker.store.scheduler.store import JournalJobStore
from tests.crash.failpoints import from_words
from tests.runtimes import runtime

STEPS = 300
QUEUE = queue("LATER")
SETTINGS = JournalSettings(file_bytes_max=6000, batch_bytes_max=2500, compact_after_cleanups=1)


def clock() -> int:
    return time.time_ns() // 1_000_000


def scheduled(connection_id: str, number: int) -> Message:
    """Return a message that runs once after some milliseconds; every fifth again and again."""
    producer = ProducerId(connection_id, 1, 1)
    fields = OpenWireMessage(
        type=MessageType.TEXT,
        producer_id=producer,
        destination=QUEUE,
        message_id=OpenWireMessageId(None, producer, number),
        persistent=True,
    )
    properties = {"AMQ_SCHEDULED_DELAY": number % 40}
    if number % 5 == 0:
        properties |= {"AMQ_SCHEDULED_PERIOD": 100, "AMQ_SCHEDULED_REPEAT": 1000}
    fields.set_properties(properties)
    fields.content = encode_text("x" * (number % 7) * 100)
    return to_message(fields)


async def work(directory: Path) -> None:
    loop = asyncio.get_running_loop()
    failures: list[Exception] = []

    world = runtime(loop.call_soon, post=loop.call_soon_threadsafe, on_failure=failures.append, clock=clock)
    store = JournalStore(directory / "kahadb", settings=SETTINGS, runtime=world)
    jobs = JournalJobStore(directory / "scheduler", settings=SETTINGS, runtime=world)
    store.recover()
    timer: asyncio.TimerHandle | None = None

    def wake_at(wanted: int | None) -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = None if wanted is None else loop.call_later(max(0, wanted - clock()) / 1000, fire)

    def fire() -> None:
        scheduler.fire(clock())

    connection_id = f"ID:child-{os.getpid()}-{clock()}:1"
    scheduler = Scheduler(
        jobs=jobs,
        send=store.add,
        when_durable=store.when_durable,
        clock=clock,
        wake_at=wake_at,
        connection_id=f"{connection_id}:scheduler",
    )
    scheduler.load(jobs.recover())
    for number in range(1, STEPS):
        message = scheduled(connection_id, number)
        scheduler.schedule(message)
        jobs.when_durable(promise(message.message_id))
        if number % 3 == 0:
            await asyncio.sleep(0.001)
        if number % 20 == 0:
            store.cleanup()
            jobs.cleanup()
    scheduler.stop()
    durable = loop.create_future()
    store.when_durable(lambda: durable.set_result(None))
    await durable
    jobs.close()
    store.close()
    await asyncio.sleep(0)
    if failures:
        raise failures[0]


def promise(message_id: str) -> Callable[[], None]:
    return lambda: os.write(1, message_id.encode() + b"\n") and None


def main(directory: str, where: str, failpoint: str) -> None:
    """Run; the failpoint, `NAME:ORDINAL`, is one of the directory `kahadb` or `scheduler`."""
    from_words(Path(directory) / where, failpoint).install()
    asyncio.run(work(Path(directory)))
