"""Bridges between a stock ActiveMQ and pybroker: its network connector to pybroker, and duplex from either side."""

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

    def __init__(self, directory: Path, *extra: str) -> None:
        self._store = str(directory / "store")
        self._extra = extra
        self.stomp, self.openwire = free_port(), free_port()
        self.start()

    def start(self) -> None:
        extra = ("--openwire", str(self.openwire), *self._extra)
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


# ---------------------------------------------------------------- both ways over one connection


@pytest.fixture(params=["by ActiveMQ", "by pybroker"])
def duplex(request: pytest.FixtureRequest, programs: Programs, tmp_path: Path) -> Iterator[tuple[int, Acceptor]]:
    """Yield the STOMP port of a stock broker, and pybroker, with a duplex bridge that one of them has opened."""
    delays = "initialReconnectDelay=200&maxReconnectDelay=500"
    if request.param == "by ActiveMQ":
        with closing(Acceptor(tmp_path)) as ours:
            uri = f"static:(tcp://127.0.0.1:{ours.openwire})?{delays}"
            theirs = ActiveMQProcess(programs.class_path, tmp_path / "a", policies=(f"duplex=nc:{uri}",))
            with closing(theirs):
                theirs.wait()
                yield theirs.stomp, ours
        return
    theirs = ActiveMQProcess(programs.class_path, tmp_path / "a")
    with closing(theirs):
        theirs.wait()
        tables = tmp_path / "networks.toml"
        uri = f"static:(tcp://127.0.0.1:{theirs.openwire})?{delays}"
        tables.write_text(f'[[network]]\nname = "nc"\nduplex = true\nuri = "{uri}"\n')
        with closing(Acceptor(tmp_path, "--config", str(tables))) as ours:
            yield theirs.stomp, ours


def send(port: int, name: str, *bodies: str) -> None:
    with closing(StompClient(port)) as client:
        for body in bodies:
            client.request("SEND", body.encode(), destination=f"/queue/{name}", persistent="true")


def test_duplex_bridge_moves_messages_and_backlog_both_ways(duplex: tuple[int, Acceptor]) -> None:
    theirs, ours = duplex
    for source, target, name in ((theirs, ours.stomp, "THERE"), (ours.stomp, theirs, "HERE")):
        send(source, name, "1", "2")
        with closing(consumer(target, name)) as client:
            assert read(client, 2) == ["1", "2"]
            send(source, name, "3")
            assert read(client, 1) == ["3"]


def test_duplex_bridge_returns_after_a_restart(duplex: tuple[int, Acceptor]) -> None:
    theirs, ours = duplex
    with closing(consumer(ours.stomp, "THERE")) as client:
        send(theirs, "THERE", "1")
        assert read(client, 1) == ["1"]
    ours.restart()
    for source, target, name in ((theirs, ours.stomp, "THERE"), (ours.stomp, theirs, "HERE")):
        send(source, name, "2", "3")
        with closing(consumer(target, name)) as client:
            assert read(client, 2) == ["2", "3"]


def test_reply_comes_back_over_a_duplex_bridge(duplex: tuple[int, Acceptor]) -> None:
    """The requester's temporary queue is made known to the replier's broker."""
    theirs, ours = duplex
    for there, here, name in ((theirs, ours.stomp, "THERE"), (ours.stomp, theirs, "HERE")):
        with closing(consumer(there, name)) as replier, closing(StompClient(here)) as requester:
            requester.send("SUBSCRIBE", id="replies", destination="/temp-queue/replies")
            requester.send("SEND", b"question", destination=f"/queue/{name}", **{"reply-to": "/temp-queue/replies"})
            question = replier.read_until("MESSAGE")
            replier.request("SEND", b"answer", destination=question.headers["reply-to"])
            assert read(requester, 1) == ["answer"]
