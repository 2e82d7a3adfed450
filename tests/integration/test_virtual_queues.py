"""A queue of a virtual topic misses nothing while its consumers are away, whichever member is master in between."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import START_SECONDS, BrokerProcess, Pair
from tests.integration.stomp_client import StompClient

QUEUE = "/queue/Consumer.shop.VirtualTopic.ORDERS"
TOPIC = "/topic/VirtualTopic.ORDERS"

Connect = Callable[..., StompClient]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A master and a standby that clean up every second."""
    with Pair(tmp_path / "store", "--cleanup-interval", "1s") as pair:
        pair.wait_for_standby()
        yield pair


def fail_over(pair: Pair) -> BrokerProcess:
    """Kill the master; return the next one, with the killed one as its standby."""
    killed = pair.wait_for_master()
    killed.kill()
    master = pair.wait_for_master()
    pair.restart(killed)
    return master


def consume(client: StompClient) -> None:
    assert client.request("SUBSCRIBE", id="s", destination=QUEUE).command == "RECEIPT"


def leave(client: StompClient) -> None:
    """Disconnect; the answer comes when all that the client did is on disk, the queue it made included."""
    assert client.request("DISCONNECT").command == "RECEIPT"


def publish(client: StompClient, body: bytes) -> None:
    assert client.request("SEND", body, destination=TOPIC, persistent="true").command == "RECEIPT"


def wait_until_gone(path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while path.exists():
        assert time.monotonic() < deadline, f"{path.name} is never collected"
        time.sleep(0.05)


@pytest.mark.parametrize("was_used", [True, False])
def test_an_idle_queue_gets_what_is_published_after_a_failover(pair: Pair, connect: Connect, was_used: bool) -> None:
    client = connect(pair.wait_for_master().port)
    consume(client)
    if was_used:
        publish(client, b"first")
        assert client.read_until("MESSAGE").body == b"first"
    leave(client)

    master = fail_over(pair)
    publish(connect(master.port), b"while no one was there")

    client = connect(fail_over(pair).port)
    consume(client)
    assert client.read_until("MESSAGE").body == b"while no one was there"


def test_idle_queue_survives_removal_of_its_files(pair: Pair, connect: Connect, tmp_path: Path) -> None:
    client = connect(pair.wait_for_master().port)
    consume(client)
    leave(client)
    for life in (1, 2):
        fail_over(pair)
        wait_until_gone(tmp_path / "store" / "kahadb" / f"db-{life}.log")

    publish(connect(fail_over(pair).port), b"much later")

    client = connect(pair.wait_for_master().port)
    consume(client)
    assert client.read_until("MESSAGE").body == b"much later"
