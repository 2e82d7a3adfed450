"""The messages all benchmarks use, and stores full of them.

One kilobyte of text with three properties: about what a business message looks like on a JMS queue.
"""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

from pybroker.broker.domain.destination import Destination, queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.body import encode_text_utf8
from pybroker.broker.domain.openwire.ids import ProducerId
from pybroker.broker.domain.openwire.message import MessageType
from pybroker.broker.domain.openwire.template import MessageTemplate
from pybroker.store.journal.appender import JournalSettings, SyncStrategy
from pybroker.store.journal.store import JournalStore
from pybroker.store.runtime import StoreRuntime

BODY_BYTES = 1024
PROPERTIES = {"region": "eu", "order": "4711", "customer": "ACME-0815"}
QUEUE = queue("BENCH.ORDERS")

_TIMESTAMP = 1_700_000_000_000
_AWAITED = 1000
"""Messages appended before the disk is waited for, so that filling a store needs little memory."""


def body(size: int = BODY_BYTES) -> bytes:
    """Return that many bytes of text."""
    line = b"The quick brown fox jumps over the lazy dog. "
    return (line * (size // len(line) + 1))[:size]


def send_frame(destination: str, size: int = BODY_BYTES, *, persistent: bool = True, receipt: str = "") -> bytes:
    """Return a STOMP SEND with a text of `size` bytes; its answer's `receipt-id` is `receipt`, empty for no answer."""
    headers = {"destination": destination} | PROPERTIES
    if persistent:
        headers["persistent"] = "true"
    if receipt:
        headers["receipt"] = receipt
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    return f"SEND\n{lines}\n".encode() + body(size) + b"\0"


def template(destination: Destination = QUEUE) -> MessageTemplate:
    """Return what builds the messages of one producer to a destination."""
    return MessageTemplate(ProducerId("ID:bench-host-12345-1700000000000-1:1", -1, 1), destination)


def messages(count: int, size: int = BODY_BYTES) -> Iterator[Message]:
    """Yield so many persistent text messages of one producer."""
    build = template().build
    content = encode_text_utf8(body(size))
    for sequence in range(1, count + 1):
        yield build(
            type=MessageType.TEXT,
            sequence=sequence,
            content=content,
            properties=PROPERTIES,
            persistent=True,
            timestamp=_TIMESTAMP,
            broker_in_time=_TIMESTAMP,
        )


def open_store(directory: Path, sync: SyncStrategy = SyncStrategy.NEVER) -> JournalStore:
    """Return a store in a directory of its own, closed as yet; call it with an event loop running."""
    loop = asyncio.get_running_loop()
    return JournalStore(
        directory,
        settings=JournalSettings(sync=sync),
        runtime=StoreRuntime(
            call_soon=loop.call_soon,
            post=loop.call_soon_threadsafe,
            fence=lambda: None,  # no one contends for the directory; `locks` measures the check of a real lock
            on_failure=_fail,
            clock=lambda: _TIMESTAMP,
        ),
    )


async def fill(directory: Path, wanted: Iterable[Message]) -> None:
    """Make a journal of messages, and stop without closing it, as a killed master does."""
    store = open_store(directory)
    store.recover()
    for number, message in enumerate(wanted, 1):
        store.add(message)
        if number % _AWAITED == 0:
            await durable(store)
    await durable(store)
    store.abandon()


async def durable(store: JournalStore) -> None:
    """Wait until everything appended so far is as safe as the store's strategy makes it."""
    done = asyncio.get_running_loop().create_future()
    store.when_durable(lambda: done.set_result(None))
    await done


def _fail(error: Exception) -> None:
    raise error
