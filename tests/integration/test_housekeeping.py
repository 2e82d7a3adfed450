"""The journal's size, as an operator sees it: files go, shrink or move to the archive, and a limit is respected."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pybroker.store.journal.appender import AHEAD_BYTES
from pybroker.store.journal.commands import AddMessage, decode
from pybroker.store.journal.reader import DataFileWalk, data_files, load
from tests.integration.cluster import BrokerProcess
from tests.integration.stomp_client import StompClient

SETTINGS = ("--journal-file-max", "1mb", "--journal-batch-max", "64kb", "--cleanup-interval", "100ms")
BODY = b"x" * 10_000
SECONDS = 30


def send(client: StompClient, queue: str, count: int) -> int:
    """Send messages until one is refused; return how many were not."""
    for number in range(count):
        frame = client.request("SEND", b"%d " % number + BODY, destination=queue, persistent="true")
        if frame.command == "ERROR":
            assert "Usage Manager Store is Full" in frame.headers["message"]
            return number
    return count


def consume(client: StompClient, queue: str, count: int) -> None:
    client.send("SUBSCRIBE", id="1", destination=queue, ack="client", receipt="r")
    frames = [client.read_until("MESSAGE") for _ in range(count)]
    assert [int(frame.body.split()[0]) for frame in frames] == list(range(count))
    assert client.request("ACK", id=frames[-1].headers["ack"]).command == "RECEIPT"
    assert client.request("UNSUBSCRIBE", id="1").command == "RECEIPT"


def disk_bytes(directory: Path) -> int:
    """Return the bytes of a journal on disk."""
    total = 0
    for path in data_files(directory).values():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "store" / "kahadb"


@pytest.mark.parametrize("archive", [True, False])
def test_unneeded_files_are_archived_if_configured(
    start: Callable[..., BrokerProcess], journal: Path, archive: bool
) -> None:
    broker = start(*SETTINGS, "--archive" if archive else "--no-archive")
    broker.wait_for("listening on")
    with contextlib.closing(StompClient(broker.port)) as client:
        send(client, "/queue/Q", 300)
        assert disk_bytes(journal) > 2_500_000
        consume(client, "/queue/Q", 300)
    until(lambda: disk_bytes(journal) < 1_200_000)
    assert broker.terminate() == 0
    archived = data_files(journal / "data-archive") if archive else {}
    assert list(archived) == ([1, 2] if archive else [])
    adds = 0
    for file_id, path in archived.items():
        walk = DataFileWalk(load(path), file_id)
        adds += sum(isinstance(decode(payload), AddMessage) for _, payload in walk)
        assert not walk.damages
    assert adds >= 150 * archive
    new_master = start(*SETTINGS)
    new_master.wait_for("listening on")
    with contextlib.closing(StompClient(new_master.port)) as client:
        client.send("SUBSCRIBE", id="1", destination="/queue/Q", receipt="subscribed")
        client.read_until("RECEIPT", receipt_id="subscribed")
        assert client.request("SEND", b"", destination="/queue/OTHER").command == "RECEIPT"
        assert not client.backlog, "what is archived is over"


def test_one_old_message_does_not_keep_the_journal(start: Callable[..., BrokerProcess], journal: Path) -> None:
    """Acknowledgements in each file make it needed by the one before; compaction removes the dead messages."""
    broker = start(*SETTINGS)
    broker.wait_for("listening on")
    with contextlib.closing(StompClient(broker.port)) as client:
        send(client, "/queue/OLD", 1)
        for _ in range(6):  # what the end of a file holds is acknowledged in the next
            send(client, "/queue/Q", 130)
            consume(client, "/queue/Q", 130)
    until(lambda: disk_bytes(journal) < 2_500_000)
    broker.kill()
    new_master = start(*SETTINGS)
    new_master.wait_for("listening on")
    with contextlib.closing(StompClient(new_master.port)) as client:
        consume(client, "/queue/OLD", 1)
        send(client, "/queue/Q", 1)
        consume(client, "/queue/Q", 1)


def test_journal_limit_refuses_sends_until_messages_are_consumed(
    start: Callable[..., BrokerProcess], journal: Path
) -> None:
    broker = start(*SETTINGS, "--store-limit", "3mb")
    broker.wait_for("listening on")
    with contextlib.closing(StompClient(broker.port)) as client:
        accepted = send(client, "/queue/Q", 1000)
        assert 250 < accepted < 330
        assert disk_bytes(journal) < 3_400_000 + AHEAD_BYTES
        assert client.request("SEND", b"", destination="/queue/Q2", persistent="false").command == "RECEIPT"
        consume(client, "/queue/Q", accepted)
        until(lambda: send(client, "/queue/Q", 1))
        assert send(client, "/queue/R", 1000) > accepted / 3


def test_a_limit_leaves_space_for_two_files(start: Callable[..., BrokerProcess]) -> None:
    broker = start(*SETTINGS, "--store-limit", "1mb")
    assert broker.join() != 0
    assert any("at least twice journal_file_max" in line for line in broker.lines)
