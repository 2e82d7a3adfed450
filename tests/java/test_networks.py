"""A stock ActiveMQ bridges to pybroker, one way: its network connector needs nothing else at the other end."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.activemq_broker import ActiveMQProcess
from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient
from tests.java.checks import Programs

pytestmark = [pytest.mark.component("activemq"), pytest.mark.timeout(180)]


class Acceptor:
    """pybroker on a store; it keeps its ports when it is started again."""

    def __init__(self, directory: Path) -> None:
        self._store = str(directory / "store")
        self.stomp, self.openwire = free_port(), free_port()
        self.start()

    def start(self) -> None:
        extra = ("--openwire", str(self.openwire))
        self.broker = BrokerProcess(self._store, name="b", port=self.stomp, extra=extra)
        self.broker.wait_for("listening on")

    def restart(self) -> None:
        assert self.broker.terminate() == 0
        self.broker.close()
        self.start()

    def close(self) -> None:
        self.broker.close()


@pytest.fixture
def acceptor(tmp_path: Path) -> Iterator[Acceptor]:
    with closing(Acceptor(tmp_path)) as started:
        yield started


@pytest.fixture
def initiator(programs: Programs, tmp_path: Path, acceptor: Acceptor) -> Iterator[ActiveMQProcess]:
    uri = f"static:(tcp://127.0.0.1:{acceptor.openwire})?initialReconnectDelay=200&maxReconnectDelay=500"
    broker = ActiveMQProcess(programs.class_path, tmp_path / "a", policies=(f"network=nc:{uri}",))
    with closing(broker):
        yield broker.wait()


def consumer(port: int, name: str) -> StompClient:
    client = StompClient(port)
    client.send("SUBSCRIBE", id="1", destination=f"/queue/{name}")
    return client


def produce(initiator: ActiveMQProcess, name: str, *texts: str) -> None:
    with closing(StompClient(initiator.stomp)) as client:
        for text in texts:
            client.request("SEND", text.encode(), destination=f"/queue/{name}", persistent="true")


def read(client: StompClient, count: int) -> list[str]:
    return [client.read_until("MESSAGE").body.decode() for _ in range(count)]


def test_messages_and_backlog_come_over_the_bridge(initiator: ActiveMQProcess, acceptor: Acceptor) -> None:
    produce(initiator, "Q", "1", "2")
    with closing(consumer(acceptor.stomp, "Q")) as client:
        assert read(client, 2) == ["1", "2"]
        produce(initiator, "Q", "3")
        assert read(client, 1) == ["3"]


def test_bridge_returns_after_a_restart_of_the_acceptor(initiator: ActiveMQProcess, acceptor: Acceptor) -> None:
    with closing(consumer(acceptor.stomp, "Q")) as client:
        produce(initiator, "Q", "1")
        assert read(client, 1) == ["1"]
    acceptor.restart()
    produce(initiator, "Q", "2", "3")
    with closing(consumer(acceptor.stomp, "Q")) as client:
        assert read(client, 2) == ["2", "3"]
