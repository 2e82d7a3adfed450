"""Acknowledgements that a transaction refuses, on a whole broker: none is lost silently."""

from typing import Any

import pytest

from pybroker.broker.core import transaction
from pybroker.broker.core.broker import BrokerCore, Limits
from pybroker.broker.core.policy import PolicyMap
from pybroker.broker.domain.stomp.frames import StompLimits
from pybroker.store.memory import MemoryStore
from pybroker.transports.stomp.session import StompSession
from tests.compiled import interpreted
from tests.unit.core.conftest import Throttle, make_message
from tests.unit.transports.stomp.conftest import FakeLink

COUNT = 60


class Peer:
    """A STOMP client of a broker with messages for it."""

    def __init__(
        self,
        version: str = "1.1",
        limits: Limits | None = None,
        policies: PolicyMap | None = None,
        *,
        broker: BrokerCore | None = None,
        connection_id: str = "x",
    ) -> None:
        self.broker = broker or BrokerCore(
            "b", store=MemoryStore(), clock=lambda: 1000, limits=limits or Limits(), policies=policies
        )
        if broker is None:
            self.broker.recover()
        self.link: Any = FakeLink()
        self.session = StompSession(
            broker=self.broker, link=self.link, connection_id=connection_id, limits=StompLimits(), clock=lambda: 1000
        )
        self.send(f"CONNECT\naccept-version:{version}\nhost:h\n\n")

    def send(self, frame: str) -> list[str]:
        """Send a frame; return the answers."""
        before = len(self.link.output)
        self.session.receive(frame.encode() + b"\0")
        self.session.written()
        return self.frames(before)

    def frames(self, start: int) -> list[str]:
        """Return the frames that were written from a byte on."""
        return bytes(self.link.output[start:]).decode(errors="replace").split("\0\n")[:-1]


@interpreted
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_commit_fails_and_all_can_be_acknowledged_again(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "OPERATIONS_MAX", COUNT // 2)
    peer = Peer()
    producer = peer.broker.connect("p", "p", Throttle())
    for _ in range(COUNT):
        producer.send(make_message("x", "queue://Q", persistent=False))
    frames = peer.send(f"SUBSCRIBE\nid:1\ndestination:/queue/Q\nack:{mode}\n\n")
    ids = [line[11:] for frame in frames for line in frame.split("\n") if line.startswith("message-id:")]
    assert len(ids) == COUNT
    peer.send("BEGIN\ntransaction:t\n\n")
    refused = [peer.send(f"ACK\nsubscription:1\nmessage-id:{each}\ntransaction:t\n\n") for each in ids]
    assert refused[0] == []
    assert refused[-1][0].startswith("ERROR")
    assert peer.send("COMMIT\ntransaction:t\nreceipt:c\n\n")[0].startswith("ERROR")
    for each in ids[-1:] if mode == "client" else ids:
        assert peer.send(f"ACK\nsubscription:1\nmessage-id:{each}\nreceipt:r\n\n")[0].startswith("RECEIPT")
    assert peer.broker.usage.used == 0
