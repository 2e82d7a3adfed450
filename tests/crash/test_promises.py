# mypy: disable-error-code="arg-type"
"""Promises of an acknowledgement (docs/architecture.md), a test for each sentence.

A STOMP session over the core over a journal whose disk can be stopped, made to fail, or robbed of its lock.
"""

import asyncio
import errno
import logging
import shutil
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from pybroker.broker.core.broker import BrokerCore
from pybroker.broker.domain.errors import LockNotHeld
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.store.journal.appender import JournalSettings
from pybroker.store.journal.files import JournalFiles
from pybroker.store.journal.store import JournalStore
from pybroker.transports.stomp.session import StompSession
from tests.runtimes import runtime

SECONDS = 20


class Disk(JournalFiles):
    """A journal's files whose sync waits for `released`, or fails."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.released, self.entered = threading.Event(), threading.Event()
        self.released.set()
        self.failing = False
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.entered.set()
        assert self.released.wait(SECONDS)
        self.syncs += 1
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(descriptor)


class Peer:
    """A client: what is written to it, and its session."""

    peer = "test"
    certificate: str | None = None
    ending = ""

    def __init__(self, world: "World", number: int) -> None:
        self.output = b""
        self.closed = False
        self.session = StompSession(
            broker=world.broker, link=self, connection_id=f"ID:{number}", limits=StompLimits(), clock=lambda: 1
        )
        self.send(f"CONNECT\naccept-version:1.2\nhost:x\nclient-id:client{number}\n\n\0")

    def send(self, frame: str) -> None:
        self.session.receive(frame.encode())
        self.session.written()

    def write(self, data: bytes | memoryview) -> None:
        self.output += data

    def close(self) -> None:
        self.closed = True

    def is_slice_over(self) -> bool:
        return False

    def time(self) -> float:
        return 0.0

    def wake_at(self, when: float | None) -> None:
        """Time stands still."""

    def pause_reading(self) -> None:
        """Ignored: this link reads nothing."""

    resume_reading = pause_reading

    def in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Do it at once."""
        work()
        done()

    def write_pieces(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def reserve_frame(self, size: int, received: int) -> None:
        """Do nothing: this link has all memory."""

    def release_frame(self) -> None:
        """Do nothing, as above."""

    def bodies(self) -> list[str]:
        frames = self.output.decode().split("\0")
        return [frame.split("\n\n", 1)[1] for frame in frames if "MESSAGE\n" in frame]


class World:
    """One master on a directory."""

    def __init__(self, directory: Path) -> None:
        self.disk = Disk(directory)
        self.lock_lost = False
        self.failures: list[Exception] = []
        loop = asyncio.get_running_loop()
        self.store = JournalStore(
            directory,
            files=self.disk,
            runtime=runtime(
                loop.call_soon,
                post=loop.call_soon_threadsafe,
                fence=self.check,
                on_failure=self.failures.append,
                clock=lambda: 1,
            ),
            settings=JournalSettings(inline_seconds_max=0.0),  # a disk that is held must not hold the loop
        )
        self.broker = BrokerCore("b", store=self.store, clock=lambda: 1)
        self.broker.recover()
        self.peers: list[Peer] = []

    def check(self) -> None:
        if self.lock_lost:
            raise LockNotHeld("taken by another")

    def peer(self) -> Peer:
        self.peers.append(Peer(self, len(self.peers)))
        return self.peers[-1]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0)

    async def on_disk(self) -> None:
        await self.until(lambda: not self.store.unwritten_bytes)

    def crash(self) -> None:
        self.disk.released.set()
        self.store.abandon()


def run(scenario: Callable[..., Awaitable[None]], *arguments: object) -> None:
    asyncio.run(scenario(*arguments))


SEND = "SEND\ndestination:/queue/Q\npersistent:true\n"
SUBSCRIBE = "SUBSCRIBE\nid:1\ndestination:/topic/T\nactivemq.subscriptionName:s\n"
CONFIRMED = {
    "SEND": ([], SEND + "receipt:r\n\nx\0"),
    "COMMIT": (
        ["BEGIN\ntransaction:t\n\n\0", SEND + "transaction:t\n\nx\0"],
        "COMMIT\ntransaction:t\nreceipt:r\n\n\0",
    ),
    "durable SUBSCRIBE": ([], SUBSCRIBE + "receipt:r\n\n\0"),
    "durable UNSUBSCRIBE": (
        [SUBSCRIBE + "\n\0", "UNSUBSCRIBE\nid:1\n\n\0"],
        "UNSUBSCRIBE\nid:1\nactivemq.subscriptionName:s\nreceipt:r\n\n\0",
    ),
    "ACK": (
        ["SUBSCRIBE\nid:1\ndestination:/queue/Q\nack:client\n\n\0", SEND + "\nx\0"],
        "ACK\nid:ID:0:1:1\nreceipt:r\n\n\0",
    ),
}


@pytest.mark.parametrize("command", CONFIRMED)
def test_1_a_receipt_is_sent_only_after_the_record_is_on_disk(tmp_path, command):
    async def scenario() -> None:
        world = World(tmp_path)
        peer = world.peer()
        before, frame = CONFIRMED[command]
        for each in before:
            peer.send(each)
        await world.on_disk()
        world.disk.released.clear()
        world.disk.entered.clear()
        if command == "ACK":
            ack = peer.output.decode().split("\nack:")[1].split("\n")[0]
            frame = f"ACK\nid:{ack}\nreceipt:r\n\n\0"
        peer.send(frame)
        await world.until(world.disk.entered.is_set)
        assert b"receipt-id:r" not in peer.output
        world.disk.released.set()
        await world.until(lambda: b"RECEIPT\nreceipt-id:r" in peer.output)
        world.store.close()

    run(scenario)


def test_a_receipt_precedes_the_message_that_it_causes(tmp_path):
    """ActiveMQ answers first, and simple clients mistake the next frame for their receipt."""

    async def scenario() -> None:
        world = World(tmp_path)
        peer = world.peer()
        peer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\nack:client-individual\n\n\0")
        peer.output = b""
        world.disk.released.clear()
        peer.send(SEND + "receipt:a\n\nfirst\0")
        peer.send(SEND + "\nsecond\0")
        peer.send("SEND\nreceipt:refused\n\n\0")
        await world.until(world.disk.entered.is_set)
        assert peer.bodies() == []
        world.disk.released.set()
        await world.until(lambda: len(peer.bodies()) == 2)
        frames = [frame.strip().split("\n")[0] for frame in peer.output.decode().split("\0")]
        assert frames == ["ERROR", "RECEIPT", "MESSAGE", "MESSAGE", ""]
        assert peer.bodies() == ["first", "second"]
        world.store.close()

    run(scenario)


def test_a_message_behind_a_receipt_is_requeued_on_unsubscribe(tmp_path):
    async def scenario() -> None:
        world = World(tmp_path)
        peer, other = world.peer(), world.peer()
        peer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\n\n\0")
        world.disk.released.clear()
        peer.send(SEND + "receipt:a\n\nx\0")
        peer.send("UNSUBSCRIBE\nid:1\n\n\0")
        other.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\n\n\0")
        world.disk.released.set()
        await world.until(lambda: b"RECEIPT" in peer.output)
        assert (peer.bodies(), other.bodies()) == ([], ["x"])
        world.store.close()

    run(scenario)


def test_2_persistent_without_receipt_is_stored_others_are_not(tmp_path):
    async def scenario() -> None:
        world = World(tmp_path)
        peer = world.peer()
        peer.send(SEND + "\nstored\0SEND\ndestination:/queue/Q\n\nfleeting\0")
        await world.on_disk()
        world.crash()
        new_master = World(tmp_path)
        peer = new_master.peer()
        peer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\n\n\0")
        assert peer.bodies() == ["stored"]
        new_master.store.close()

    run(scenario)


def test_3_a_failed_sync_is_never_retried_and_never_papered_over(tmp_path):
    async def scenario() -> None:
        world = World(tmp_path)
        peer = world.peer()
        world.disk.failing = True
        world.disk.syncs = 0
        peer.send(SEND + "receipt:r\n\nx\0")
        await world.until(lambda: world.failures)
        world.disk.failing = False
        peer.send(SEND + "receipt:later\n\nx\0")
        assert b"RECEIPT" not in peer.output
        assert b"ERROR" in peer.output
        assert peer.closed
        assert (world.disk.syncs, len(world.failures)) == (1, 1)
        world.crash()

    run(scenario)


def test_4_a_master_that_lost_its_lock_confirms_nothing_more(tmp_path):
    async def scenario() -> None:
        world = World(tmp_path)
        peer = world.peer()
        world.disk.released.clear()
        peer.send(SEND + "receipt:r\n\nx\0")
        await world.until(world.disk.entered.is_set)
        world.lock_lost = True
        world.disk.released.set()
        await world.until(lambda: world.failures)
        assert isinstance(world.failures[0], LockNotHeld)
        assert b"RECEIPT" not in peer.output
        world.crash()

    run(scenario)


def test_5_a_commit_is_atomic(tmp_path):
    async def scenario() -> None:
        world = World(tmp_path / "live")
        peer = world.peer()
        peer.send("BEGIN\ntransaction:t\n\n\0" + (SEND + "transaction:t\n\nx\0") * 3)
        await world.on_disk()
        shutil.copytree(tmp_path / "live", tmp_path / "before")
        peer.send("COMMIT\ntransaction:t\n\n\0")
        await world.on_disk()
        shutil.copytree(tmp_path / "live", tmp_path / "after")
        world.crash()
        for name, expected in (("before", []), ("after", ["x", "x", "x"])):
            new_master = World(tmp_path / name)
            peer = new_master.peer()
            peer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\n\n\0")
            assert peer.bodies() == expected
            new_master.store.close()

    run(scenario)


@pytest.mark.usefixtures("damaged_on_purpose")
def test_6_a_torn_tail_is_normal_and_other_damage_is_reported(tmp_path, caplog):
    async def scenario() -> None:
        world = World(tmp_path)
        peer = world.peer()
        for name in ("first", "second", "third"):
            peer.send(SEND + f"\n{name}\0")
            await world.on_disk()
        world.crash()
        journal = tmp_path / "db-1.log"
        data = journal.read_bytes()
        cut = data.index(b"third")
        flipped = data[:cut].replace(b"first", b"f\xffrst")
        journal.write_bytes(flipped)
        with caplog.at_level(logging.INFO):
            new_master = World(tmp_path)
        levels = {record.levelname: record.getMessage() for record in caplog.records}
        assert "nothing in it was acknowledged" in caplog.text
        assert "db-1.log: offset" in levels["ERROR"]
        peer = new_master.peer()
        peer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\n\n\0")
        assert peer.bodies() == ["second"]
        new_master.store.close()

    run(scenario)


def test_7_delivery_is_at_least_once_and_after_a_crash_marked(tmp_path):
    async def scenario() -> None:
        world = World(tmp_path)
        peer = world.peer()
        peer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\nack:client-individual\n\n\0" + SEND + "\nx\0")
        await world.on_disk()
        assert b"redelivered" not in peer.output
        world.crash()
        new_master = World(tmp_path)
        peer = new_master.peer()
        peer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\n\n\0")
        assert peer.bodies() == ["x"]
        assert b"redelivered:true" in peer.output
        new_master.store.close()

    run(scenario)


def test_8_per_producer_and_destination_order_holds(tmp_path):
    async def scenario() -> None:
        world = World(tmp_path)
        producer, consumer = world.peer(), world.peer()
        producer.send("".join(SEND + f"\n{n}\0" for n in range(5)))
        consumer.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\nack:client\nactivemq.prefetchSize:2\n\n\0")
        consumer.session.lost()
        producer.send("".join(SEND + f"\n{n}\0" for n in range(5, 8)))
        new_master = world.peer()
        new_master.send("SUBSCRIBE\nid:1\ndestination:/queue/Q\n\n\0")
        assert new_master.bodies() == [str(n) for n in range(8)]
        world.store.close()

    run(scenario)
