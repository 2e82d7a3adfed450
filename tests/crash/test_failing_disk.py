"""A whole broker whose disk fails: nothing is confirmed any more, clients are cut off, and the standby takes over."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import Disconnected, StompClient

ROOT = Path(__file__).parents[2]


class FailingBroker(BrokerProcess):
    """A broker with failpoints."""

    module = "tests.crash.broker_child"


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., BrokerProcess]]:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FAILPOINT_ROOT", str(tmp_path / "store" / "kahadb"))
    monkeypatch.setenv("FAILPOINT_TRIGGER", str(tmp_path / "fail"))
    brokers: list[BrokerProcess] = []

    def start(name: str, failpoint: str = "") -> BrokerProcess:
        monkeypatch.setenv("FAILPOINT", failpoint)
        kind = FailingBroker if failpoint else BrokerProcess
        broker = kind(str(tmp_path / "store"), name=name, port=free_port(), extra=("--lock-check", "100ms"))
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.close()


def send(client: StompClient, body: bytes) -> None:
    assert client.request("SEND", body, destination="/queue/Q", persistent="true").command == "RECEIPT"


def refused_permanently(broker: BrokerProcess, client: StompClient) -> None:
    """Check that a send is not confirmed, the connection ends, and no one gets in any more."""
    with contextlib.suppress(Disconnected):
        client.send("SEND", b"lost", destination="/queue/Q", persistent="true", receipt="lost")
        assert b"RECEIPT" not in client.read_to_end()
    client.close()
    with pytest.raises(Disconnected):
        StompClient(broker.port).close()


def found_by(new_master: BrokerProcess, count: int) -> list[bytes]:
    """Return the first so many messages that the next master has."""
    new_master.wait_for("listening on")
    with contextlib.closing(StompClient(new_master.port)) as client:
        client.send("SUBSCRIBE", id="1", destination="/queue/Q")
        return [client.read_until("MESSAGE").body for _ in range(count)]


@pytest.mark.parametrize("operation", ["write data", "sync data"])
@pytest.mark.parametrize("number", ["EIO", "EROFS"])
def test_a_failed_write_or_sync(
    start: Callable[..., BrokerProcess], tmp_path: Path, operation: str, number: str
) -> None:
    master = start("master", f"before {operation}:1:{number}")
    master.wait_for("listening on")
    new_master = start("new_master")
    new_master.wait_for("waiting for the lock")
    client = StompClient(master.port)
    for each in range(5):
        send(client, b"%d" % each)
    (tmp_path / "fail").touch()
    refused_permanently(master, client)
    assert found_by(new_master, 5) == [b"%d" % each for each in range(5)]
    assert master.join() != 0, "a supervisor decides whether to try again"
    errors = [line for line in master.lines if "ERROR" in line and "group_commit: the journal writer stops" in line]
    assert len(errors) == 1
    assert "a standby or a restart takes over" in errors[0]


def test_a_sync_without_space_is_a_failed_sync(start: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    """Only a write that found no space may be written again."""
    master = start("master", "before sync data:1:ENOSPC")
    master.wait_for("listening on")
    client = StompClient(master.port)
    send(client, b"0")
    (tmp_path / "fail").touch()
    refused_permanently(master, client)
    assert master.join() != 0


def test_a_directory_that_vanishes(start: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    master = start("master")
    master.wait_for("listening on")
    client = StompClient(master.port)
    send(client, b"0")
    journal = tmp_path / "store" / "kahadb"
    journal.rename(tmp_path / "elsewhere")
    refused_permanently(master, client)
    master.wait_for("the lock file was removed")
    master.close()
    if journal.exists():
        (journal / "lock").unlink(missing_ok=True)
        assert not list(journal.iterdir()), "it did not begin an empty store in the place"
        journal.rmdir()
    (tmp_path / "elsewhere").rename(journal)
    assert found_by(start("new_master"), 1) == [b"0"]
