# mypy: disable-error-code="index"
"""A master that is frozen while its lock goes to another confirms nothing any more, and no one finds what it writes.

SIGSTOP is what a long pause of a virtual machine, a swapping host or a debugger does to a broker. In that time its lock
file is removed or replaced (the next member then wins another file's lock), overwritten or touched. Clients have sent
to the frozen master what it finds in its sockets when it wakes up.
"""

import contextlib
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.store.journal.commands import AddMessage, decode
from pybroker.store.journal.reader import DataFileWalk, data_files, load
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import Disconnected, StompClient

QUEUE = "/queue/FENCED"
SENDS = 20
SECONDS = 30

pytestmark = pytest.mark.timeout(120)


# ------------------------------------------------------------ ways to lose a lock


def removed(lock: Path) -> None:
    lock.unlink()


def replaced(lock: Path) -> None:
    another = lock.with_name("another")
    another.write_bytes(b"")
    another.rename(lock)


def overwritten(lock: Path) -> None:
    """First steps of a new master, on a file system whose server has passed the lock on."""
    with lock.open("r+b") as stream:
        stream.write(struct.pack(">q", 1))


def touched(lock: Path) -> None:
    os.utime(lock)


LOSES_TO_ANOTHER = {removed: "was replaced by another file", replaced: "was replaced by another file"}
STAYS_LOCKED = {overwritten: "was overwritten", touched: "was touched"}


# ------------------------------------------------------------ members


class Members:
    """Brokers on one store, started one by one."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.lock = store / "kahadb" / "lock"
        self._brokers: list[BrokerProcess] = []

    def start(self, name: str) -> BrokerProcess:
        broker = BrokerProcess(str(self.store), name=name, port=free_port(), extra=("--lock-check", "100ms"))
        self._brokers.append(broker)
        return broker

    def close(self) -> None:
        for broker in self._brokers:
            with contextlib.suppress(ProcessLookupError):
                broker.process.send_signal(signal.SIGCONT)
            broker.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with contextlib.closing(Members(tmp_path / "store")) as members:
        yield members


def send(client: StompClient, body: str) -> None:
    """Send and wait for the confirmation."""
    assert client.request("SEND", body.encode(), destination=QUEUE, persistent="true").command == "RECEIPT"


def send_late(client: StompClient, count: int) -> None:
    """Send to a frozen master, which does not answer."""
    for number in range(count):
        client.send("SEND", b"late %d" % number, destination=QUEUE, persistent="true", receipt=f"late-{number}")


def bodies(port: int, count: int) -> list[str]:
    """Return what is on the queue, without consuming it; there must be exactly so many messages."""
    with contextlib.closing(StompClient(port)) as client:
        client.send("SUBSCRIBE", id="1", destination=QUEUE, ack="client-individual", receipt="subscribed")
        found = [client.read_until("MESSAGE").body.decode() for _ in range(count)]
        client.send("SEND", b"end", destination="/queue/END", receipt="end")  # answered behind whatever else there is
        client.read_until("RECEIPT", receipt_id="end")
        assert not [frame for frame in client.backlog if frame.command == "MESSAGE"], "more than was confirmed"
        return found


def listens(port: int) -> bool:
    with contextlib.suppress(Disconnected), contextlib.closing(StompClient(port)):
        return True
    return False


def until_closed(port: int) -> None:
    """Return once no one listens: a listener is closed after the line in the log with the reason."""
    deadline = time.monotonic() + SECONDS
    while listens(port):
        assert time.monotonic() < deadline, "it goes on listening"


def anyone_who_listens(*members: BrokerProcess) -> int:
    """Return the port of the member that serves, once one does."""
    deadline = time.monotonic() + SECONDS
    while True:
        for member in members:
            if listens(member.port):
                return member.port
        assert time.monotonic() < deadline, "no one became master"


def read_to_end(client: StompClient) -> bytes:
    """Return what a master still sends before it cuts its client off."""
    try:
        return client.read_to_end()
    finally:
        client.close()


def stored(directory: Path) -> list[bytes]:
    """Return every message in the journal, alive or not, as any recovery finds them."""
    found = []
    for file_id, path in data_files(directory).items():
        walk = DataFileWalk(load(path), file_id)
        commands = [decode(payload) for _, payload in walk]
        assert not [damage for damage in walk.damages if not damage.at_end]
        found += [command.data for command in commands if isinstance(command, AddMessage)]
    return found


# ------------------------------------------------------------ the tests


@pytest.mark.parametrize("lose", LOSES_TO_ANOTHER)
def test_a_frozen_master_wakes_up_behind_its_new_master(members: Members, lose: Callable[[Path], None]) -> None:
    stale = members.start("stale")
    stale.wait_for("listening on")
    before, late = StompClient(stale.port), StompClient(stale.port)
    for number in range(SENDS):
        send(before, f"confirmed {number}")
    stale.process.send_signal(signal.SIGSTOP)
    lose(members.lock)
    send_late(late, SENDS)

    new_master = members.start("new_master")
    new_master.wait_for("listening on")
    with contextlib.closing(StompClient(new_master.port)) as client:
        for number in range(SENDS):
            send(client, f"new master's {number}")
    expected = [f"confirmed {number}" for number in range(SENDS)] + [
        f"new master's {number}" for number in range(SENDS)
    ]

    stale.process.send_signal(signal.SIGCONT)
    assert b"RECEIPT" not in read_to_end(late), "it confirmed what its new master cannot see"
    before.close()
    stale.wait_for(LOSES_TO_ANOTHER[lose])
    stale.wait_for("clients are cut off, nothing more is acknowledged")
    until_closed(stale.port)
    assert bodies(new_master.port, 2 * SENDS) == expected

    new_master.kill()
    assert bodies(anyone_who_listens(stale), 2 * SENDS) == expected, (
        "it stood by again, and took over from its new master"
    )
    assert not [data for data in stored(members.lock.parent) if b"late" in data]


@pytest.mark.parametrize("lose", STAYS_LOCKED)
def test_a_frozen_master_finds_its_lock_file_changed(members: Members, lose: Callable[[Path], None]) -> None:
    """No one else got in: the lock itself was held all the time. All the same it steps back, and stands by again."""
    stale = members.start("stale")
    stale.wait_for("listening on")
    new_master = members.start("new_master")
    new_master.wait_for("waiting for the lock")
    before, late = StompClient(stale.port), StompClient(stale.port)
    for number in range(SENDS):
        send(before, f"confirmed {number}")
    stale.process.send_signal(signal.SIGSTOP)
    lose(members.lock)
    send_late(late, SENDS)
    stale.process.send_signal(signal.SIGCONT)
    assert b"RECEIPT" not in read_to_end(late)
    before.close()
    stale.wait_for(STAYS_LOCKED[lose])
    stale.wait_for("clients are cut off, nothing more is acknowledged")
    # Both wait for the lock now, and the kernel hands it to either.
    with contextlib.closing(StompClient(anyone_who_listens(stale, new_master))) as client:
        client.send("SUBSCRIBE", id="1", destination=QUEUE, ack="client-individual")
        found = [client.read_until("MESSAGE").body.decode() for _ in range(SENDS)]
    assert found == [f"confirmed {number}" for number in range(SENDS)]


def test_a_frozen_idle_master_closes_its_listeners(members: Members) -> None:
    """The periodic check notices it without any traffic."""
    stale = members.start("stale")
    stale.wait_for("listening on")
    stale.process.send_signal(signal.SIGSTOP)
    replaced(members.lock)
    new_master = members.start("new_master")
    new_master.wait_for("listening on")
    stale.process.send_signal(signal.SIGCONT)
    stale.wait_for("clients are cut off")
    until_closed(stale.port)
    assert listens(new_master.port)


def test_each_promotion_begins_a_data_file_that_no_other_had(members: Members) -> None:
    """Its number is the promotion's epoch: it only grows, whichever member was master, and the journal holds it."""
    epochs = []
    for name in ("a", "b", "c"):
        broker = members.start(name)
        broker.wait_for("listening on")
        newest = max(data_files(members.lock.parent))
        walk = DataFileWalk(load(data_files(members.lock.parent)[newest]), newest)
        traces = [getattr(decode(payload), "message", None) for _, payload in walk]
        assert any(f"epoch {newest}" in str(text) for text in traces)
        epochs.append(newest)
        broker.kill()
    assert epochs == sorted(set(epochs))
