"""Lives of a message store: open, use, close or crash, open again. The same for every adapter of the port."""

import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.identity import BrokerIdentity
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.ports import MessageStore
from pybroker.broker.domain.recovery import Recovery
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.store import JournalStore
from pybroker.store.memory import MemoryStore
from pybroker.store.runtime import Later
from tests.runtimes import runtime
from tests.soundness import assert_all_sound

WAIT_SECONDS = 20.0
SMALL = JournalSettings(file_bytes_max=4096, batch_bytes_max=1500, compact_after_cleanups=1)
"""Files and batches small enough that a handful of messages crosses their borders."""


class Loop:
    """An event loop's two scheduling calls, turned by hand."""

    def __init__(self) -> None:
        self.ready: list[Callable[[], None]] = []
        self.arrived = threading.Condition()

    def call_soon(self, callback: Callable[[], None]) -> None:
        with self.arrived:
            self.ready.append(callback)
            self.arrived.notify()

    def turn(self) -> None:
        with self.arrived:
            ready, self.ready = self.ready, []
        for callback in ready:
            callback()

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            with self.arrived:
                assert self.arrived.wait_for(lambda: self.ready, WAIT_SECONDS), "nothing happens any more"
            self.turn()


class MemoryLives:
    """A memory store, whose contents outlive its closing."""

    store: MessageStore

    def __init__(self, *, prioritized: bool = False) -> None:
        self.store = MemoryStore(prioritized=prioritized)

    def open(self) -> Recovery:
        return self.store.recover()

    def flush(self) -> None:
        """Let everything become durable."""

    def cleanup(self) -> None:
        """Free what is no longer needed."""

    def close(self, delivered: Iterable[str] = ()) -> None:
        self.store.close(delivered)

    def crash(self) -> None:
        """Crash."""

    def end(self) -> None:
        """Check that a last crash changes nothing."""
        self.crash()
        before = snapshot(self.open())
        self.crash()
        assert snapshot(self.open()) == before


class JournalLives:
    """A journal directory and the stores that own it, one after the other."""

    call_later: Later | None = None
    identity: BrokerIdentity | None = None

    def __init__(
        self, directory: Path, *, prioritized: bool = False, settings: JournalSettings = SMALL, files: Any = None
    ) -> None:
        self.directory = directory
        self.prioritized = prioritized
        self.settings = settings
        self.files = files
        self.loop = Loop()
        self.failures: list[Exception] = []
        self.is_master = True
        self.store: JournalStore = self._make()

    def _make(self) -> JournalStore:
        self.is_master = True
        return JournalStore(
            self.directory,
            settings=self.settings,
            prioritized=self.prioritized,
            files=self.files,
            identity=self.identity,
            runtime=runtime(
                self.loop.call_soon,
                call_later=self.call_later,
                fence=self._check,
                on_failure=self.failures.append,
            ),
        )

    def _check(self) -> None:
        if not self.is_master:
            raise LockNotHeld("the lock was taken away")

    def open(self) -> Recovery:
        self.store = self._make()
        return self.store.recover()

    def flush(self) -> None:
        self.loop.run_until(lambda: self.store.unwritten_bytes == 0)

    def cleanup(self) -> None:
        self.store.cleanup()
        self.loop.run_until(lambda: not self.store.is_cleaning)

    def close(self, delivered: Iterable[str] = ()) -> None:
        self.store.close(delivered)

    def crash(self) -> None:
        """Stop in the middle: what was appended in the last turn is lost, what is on its way is not acknowledged."""
        self.is_master = False
        self.store.abandon()
        self.loop.ready.clear()

    def end(self) -> None:
        """Check that the journal is sound, and that a last crash changes nothing."""
        self.crash()
        recovery = self.open()
        before = snapshot(recovery)
        bodies(self.store, recovery)
        assert not self.store.damages
        self.crash()
        assert snapshot(self.open()) == before
        self.crash()


class HoldingLives(JournalLives):
    """The same, with stores that hold whatever they may for a moment."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.alarms: list[Callable[[], None]] = []
        self.call_later = lambda seconds, callback: self.alarms.append(callback)
        super().__init__(directory, **options)

    def open(self) -> Recovery:
        self.alarms.clear()
        recovery = super().open()
        elision = self.store._elision
        assert elision is not None
        elision.is_open = True
        elision._share = 1e9  # whatever happens, it goes on
        return recovery

    def flush(self) -> None:
        for _ in range(2):  # what came after the clock was wound stays for one more round
            alarms, self.alarms[:] = list(self.alarms), []
            for alarm in alarms:
                alarm()
        self.store.when_durable(lambda: None)  # else acknowledgements wait for the next alarm
        super().flush()


def snapshot(recovery: Recovery) -> dict[str, Any]:
    """Return a recovery in comparable form, without `delivered`."""
    return {
        "queues": {str(queue): list(message_ids) for queue, message_ids in recovery.queues.items() if message_ids},
        "backlogs": sorted(
            (b.subscription.key, str(b.subscription.destination), b.subscription, list(b.message_ids))
            for b in recovery.backlogs
        ),
        "prepared": [
            (
                each.transaction_id,
                [(m.destination, m.message_id, m.message and m.message.data) for m in each.sent],
                list(each.acknowledged),
            )
            for each in recovery.prepared
        ],
    }


def bodies(store: MessageStore, recovery: Recovery) -> dict[tuple[Destination, str], bytes]:
    """Read back every message that a recovery names; all of them must be there, in the requested order."""
    asked = [*recovery.queues.items(), *((b.subscription.destination, b.message_ids) for b in recovery.backlogs)]
    found: dict[tuple[Destination, str], bytes] = {}
    for destination, message_ids in asked:
        messages = store.read(destination, message_ids)
        assert [message.message_id for message in messages] == list(message_ids)
        assert all(message.destination == destination and message.persistent for message in messages)
        found |= {(destination, message.message_id): message.data for message in messages}
    return found


def text_message(destination: Destination, sequence: int, text: str = "", *, priority: int = 4) -> Message:
    """Return a persistent text message, marshalled here field by field (OpenWire v11, loose) as a Java client's is."""
    connection_id = "ID:testhost-40001-1700000000000-3:1"
    producer = b"\x01\x7b" + _string(connection_id) + struct.pack(">qq", 1, 1)
    body = text.encode()
    data = b"".join(
        (
            b"\x1c" + struct.pack(">iB", 7, 1) + producer,
            b"\x01" + bytes((100 + destination.type,)) + _string(destination.name),
            b"\0\0",  # transaction, original destination
            b"\x01\x6e\0" + producer + struct.pack(">qq", sequence, 0),
            b"\0\0" + struct.pack(">i", 0) + b"\0",  # original transaction, group, group sequence, correlation
            struct.pack(">Bqb", 1, 0, priority),  # persistent, expiration, priority
            b"\0" + struct.pack(">q", 1_700_000_000_000) + b"\0",  # reply to, timestamp, type
            struct.pack(">Bii", 1, len(body) + 4, len(body)) + body,
            b"\0\0\0\0" + struct.pack(">i", 0) + b"\0",  # properties … redelivery counter, broker path
            struct.pack(">q", 0) + b"\0\0\0\0" + struct.pack(">qq", 0, 0) + b"\0",
        )
    )
    return Message(
        message_id=f"{connection_id}:1:1:{sequence}",
        destination=destination,
        data=data,
        persistent=True,
        priority=priority,
        connection_id=connection_id,
    )


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">BH", 1, len(data)) + data


Lives = MemoryLives | JournalLives


ADAPTERS = {"memory": MemoryLives, "journal": JournalLives, "holding": HoldingLives}


@pytest.fixture(autouse=True)
def _sound(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs `check` on whatever journals a test leaves behind; a module may name what it overlooks."""
    yield
    assert_all_sound(tmp_path, but=getattr(request.module, "CHECK_OVERLOOKS", ""))


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Lives]]:
    """Makes stores of one adapter; after every test each is checked for consistency."""
    made: list[Lives] = []

    def make(**options: Any) -> Lives:
        kind = ADAPTERS[request.param]
        lives: Lives = kind(**options) if kind is MemoryLives else kind(tmp_path / f"kahadb-{len(made)}", **options)
        made.append(lives)
        return lives

    yield make
    for lives in made:
        lives.end()


@pytest.fixture
def lives(adapter: Callable[..., Lives]) -> Lives:
    """An adapter's store, opened for the first time."""
    lives = adapter()
    lives.open()
    return lives


@pytest.fixture(name="snapshot")
def snapshot_fixture() -> Callable[[Recovery], dict[str, Any]]:
    """The function `snapshot`."""
    return snapshot


@pytest.fixture(name="bodies")
def bodies_fixture() -> Callable[[MessageStore, Recovery], dict[tuple[Destination, str], bytes]]:
    """The function `bodies`."""
    return bodies


@pytest.fixture(name="text_message")
def text_message_fixture() -> Callable[..., Message]:
    """The function `text_message`."""
    return text_message


@pytest.fixture
def journal_lives(tmp_path: Path) -> Iterator[Callable[..., JournalLives]]:
    """Makes journals, each in a directory of its own."""
    made: list[JournalLives] = []

    def make(**options: Any) -> JournalLives:
        lives = JournalLives(tmp_path / f"journal-{len(made)}", **options)
        made.append(lives)
        return lives

    yield make
    for lives in made:
        lives.crash()


@pytest.fixture
def memory_lives_type() -> type[MemoryLives]:
    """The class `MemoryLives`."""
    return MemoryLives


@pytest.fixture
def journal_lives_type() -> type[JournalLives]:
    """The class `JournalLives`."""
    return JournalLives
