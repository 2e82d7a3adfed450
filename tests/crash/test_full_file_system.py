"""A whole broker on a file system that is really full."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient

SETTINGS = ("--journal-file-max", "1mb", "--journal-batch-max", "64kb", "--disk-reserve", "2mb")
BODY = b"x" * 20_000


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 8 MB; making one needs a privilege."""
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(where)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine mounts no small file system; test_disk_full has a model of one: {done.stderr}")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.fixture
def start(small_file_system: Path) -> Iterator[Callable[[], BrokerProcess]]:
    brokers: list[BrokerProcess] = []

    def start() -> BrokerProcess:
        broker = BrokerProcess(str(small_file_system / "store"), name="a", port=free_port(), extra=SETTINGS)
        brokers.append(broker)
        broker.wait_for("listening on")
        return broker

    yield start
    for broker in brokers:
        broker.close()


def send(client: StompClient, number: int, **headers: str) -> bool:
    """Send a message and return True if it was accepted."""
    headers = {"persistent": "true", **headers}
    frame = client.request("SEND", b"%d " % number + BODY, destination="/queue/Q", **headers)
    if frame.command == "ERROR":
        assert "Usage Manager Store is Full" in frame.headers["message"]
        return False
    return True


def fill(client: StompClient, first: int = 0) -> int:
    """Send until a message is refused; return the number of the first that was."""
    number = first
    while send(client, number):
        number += 1
    return number


def send_in_the_end(broker: BrokerProcess, client: StompClient, number: int) -> None:
    """Send a message, once there is space; there may be already."""
    if not send(client, number):
        broker.wait_for("there is space again")
        assert send(client, number)


def consume(client: StompClient, numbers: range) -> None:
    client.send("SUBSCRIBE", id="1", destination="/queue/Q", ack="client-individual")
    for number in numbers:
        waiting = [each for each in client.backlog if each.command == "MESSAGE"]
        frame = waiting[0] if waiting else client.read_until("MESSAGE")
        if waiting:
            client.backlog.remove(frame)
        assert int(frame.body.split()[0]) == number
        assert client.request("ACK", id=frame.headers["ack"]).command == "RECEIPT"
    client.send("UNSUBSCRIBE", id="1")


def test_producers_are_refused_consumers_served_and_it_resumes(start: Callable[[], BrokerProcess]) -> None:
    broker = start()
    producer, consumer = StompClient(broker.port), StompClient(broker.port)
    refused = fill(producer)
    assert 150 < refused < 400
    broker.wait_for("persistent messages are refused until there is space")
    assert not send(producer, refused), "and again, over the same connection"
    assert send(producer, refused, persistent="false"), "what is not stored is accepted"
    consume(consumer, range(refused + 1))
    broker.wait_for("there is space again")
    again = fill(producer)
    assert again > 20, "it goes on as before"
    producer.close()
    consumer.close()
    broker.kill()

    new_master = start()
    consumer = StompClient(new_master.port)
    consume(consumer, range(again))
    send_in_the_end(new_master, consumer, again)
    consumer.close()
    assert new_master.terminate() == 0


def test_what_a_full_disk_held_up_goes_on_after_a_kill(start: Callable[[], BrokerProcess]) -> None:
    """The reserve is spent, and the disk is full otherwise: the new master detects that before it serves clients."""
    broker = start()
    producer = StompClient(broker.port)
    refused = fill(producer)
    producer.close()
    broker.kill()
    new_master = start()
    assert any("nothing persistent is accepted" in line for line in new_master.lines), "known when it listens"
    consumer = StompClient(new_master.port)
    assert not send(consumer, refused)
    consume(consumer, range(refused))
    send_in_the_end(new_master, consumer, refused)
    consumer.close()
    assert new_master.terminate() == 0


def test_a_standby_takes_over_a_full_disk(start: Callable[[], BrokerProcess], small_file_system: Path) -> None:
    """Someone else has filled it, to the last block; there is just the reserve to seal the former master's file on."""
    broker = start()
    producer = StompClient(broker.port)
    for number in range(40):
        assert send(producer, number)
    producer.close()
    broker.kill()
    space = small_file_system / "someone else's"
    with space.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while True:
            stream.write(bytes(4096))
    new_master = start()
    consumer = StompClient(new_master.port)
    assert not send(consumer, 40)
    consume(consumer, range(40))
    space.unlink()
    new_master.wait_for("there is space again")
    assert send(consumer, 40)
    consumer.close()
    assert new_master.terminate() == 0
