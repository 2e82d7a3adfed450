"""A durable subscriber at one broker of a bridge, a producer at the other, and restarts of both in between."""

import itertools
import select
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

from tests.integration.cluster import BrokerProcess, free_port
from tests.integration.stomp_client import StompClient

TOPIC = "/topic/D"
DELAYS: Final = "?initialReconnectDelay=200&maxReconnectDelay=500"
"""The options of a connector whose bridge comes back soon."""
NAME: Final[Any] = {"activemq.subscriptionName": "sub"}
CLIENT_ID: Final[Any] = {"client-id": "s"}


class End(Protocol):
    """One broker of the bridge; it keeps its store and its ports over restarts."""

    stomp: int

    def start(self) -> None:
        """Start, and return when it serves."""
        ...

    def kill(self) -> None:
        """End without an orderly stop."""
        ...


class PybrokerEnd:
    """pybroker on a journal; each start is another member of the same broker."""

    def __init__(self, directory: Path, name: str, connector: str = "") -> None:
        self._directory, self._name = directory, name
        self._numbers = itertools.count(1)
        self.stomp, self.openwire = free_port(), free_port()
        directory.mkdir()
        (directory / "broker.toml").write_text(connector and f"[[network]]\n{connector}\n")
        self.broker: BrokerProcess

    def start(self) -> None:
        extra = ("--openwire", str(self.openwire), "--broker-name", self._name)
        config = ("--config", str(self._directory / "broker.toml"))
        member = f"{self._name}-{next(self._numbers)}"
        self.broker = BrokerProcess(
            str(self._directory / "store"), name=member, port=self.stomp, extra=(*extra, *config)
        )
        self.broker.wait_for("listening on")

    def wait_for_deletion(self, key: str) -> None:
        """Return when the bridge has deleted its durable subscription of that key."""
        self.broker.wait_for(f"'network connector' .*deleted the durable subscription {key}")

    def kill(self) -> None:
        self.broker.kill()
        self.broker.close()

    def close(self) -> None:
        self.broker.close()


def subscriber(far: End) -> StompClient:
    """Return the durable subscriber."""
    client = StompClient(far.stomp, **CLIENT_ID)
    client.request("SUBSCRIBE", id="1", destination=TOPIC, **NAME)
    return client


def leave(client: StompClient) -> None:
    """Disconnect; the subscription stays."""
    client.request("DISCONNECT")
    client.close()


def unsubscribe(far: End) -> None:
    """Delete the subscription."""
    with closing(StompClient(far.stomp, **CLIENT_ID)) as client:
        client.request("UNSUBSCRIBE", id="1", destination=TOPIC, **NAME)


def send(near: End, text: str) -> None:
    """Send a persistent message, which is safe on return."""
    with closing(StompClient(near.stomp)) as client:
        client.request("SEND", text.encode(), destination=TOPIC, persistent="true")


def wait_for_demand(near: End, client: StompClient) -> None:
    """Return when messages come over the bridge; until then there may be no subscription that collects them."""
    for number in range(100):
        send(near, f"probe {number}")
        if select.select([client._socket], [], [], 0.3)[0]:
            return
    raise AssertionError("no message has come over the bridge")


def read_to(client: StompClient, last: str) -> list[str]:
    """Return the messages that come up to this one, without those of `wait_for_demand`."""
    found: list[str] = []
    while last not in found:
        text = client.read_until("MESSAGE").body.decode()
        found += [] if text.startswith("probe") else [text]
    return found


def started_near(directory: Path, openwire: int) -> PybrokerEnd:
    """Return a started pybroker with a bridge, named `nc`, to the broker at that port of this host."""
    uri = f"static:(tcp://127.0.0.1:{openwire}){DELAYS}"
    end = PybrokerEnd(directory, "near", f'name = "nc"\nuri = "{uri}"')
    end.start()
    return end


def check_deletion(near: PybrokerEnd, far: End, far_name: str) -> None:
    """Check that a subscription which is deleted while the bridge is down leaves nothing at the near broker.

    Both brokers serve, and the bridge is up or will be.
    """
    client = subscriber(far)
    wait_for_demand(near, client)
    leave(client)
    near.kill()
    unsubscribe(far)
    near.start()
    near.wait_for_deletion(f"nc_{far_name}_inbound_near:NC-DS_near_D")


def check_restarts(near: End, far: End) -> None:
    """Check that each message arrives once, though it was sent while the subscriber, the bridge or a broker was away.

    Both brokers serve, and the bridge is up or will be.
    """
    client = subscriber(far)
    wait_for_demand(near, client)
    send(near, "d1")
    assert read_to(client, "d1") == ["d1"]
    leave(client)
    send(near, "d2")
    far.kill()
    send(near, "d3")
    far.start()
    send(near, "d4")
    near.kill()
    near.start()
    send(near, "d5")
    with closing(subscriber(far)) as again:
        assert sorted(read_to(again, "d5")) == ["d2", "d3", "d4", "d5"]
        send(near, "d6")
        assert read_to(again, "d6") == ["d6"]
