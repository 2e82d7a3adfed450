"""Any number of brokers and one-way bridges among them, without sockets."""

from typing import Any

from pybroker.transports.openwire.session import OpenWireSession, Sessions
from tests.unit.transports.network.bridges import Near, named_broker
from tests.unit.transports.openwire.conversation import FakeLink, OpenWireClient, settings


class _Line:
    """One connection of a bridge, with both ends."""

    def __init__(self, near: Near, far: Near, far_sessions: Sessions, attributes: dict[str, Any]) -> None:
        self.session, self.link = near.bridge(**attributes)
        self.far_link = FakeLink()
        self.far_session = OpenWireSession(
            broker=far.broker, link=self.far_link, settings=settings(), sessions=far_sessions
        )
        self.far_link.session = self.far_session

    def lose_answers(self) -> None:
        """Carry what the near broker has sent, and lose the answers of the far one."""
        data, self.link.output = bytes(self.link.output), bytearray()
        self.far_session.receive(data)
        self.far_link.output.clear()

    def carry(self) -> bool:
        """Carry the bytes that wait, both ways; return False if there were none."""
        is_busy = False
        for link, session in ((self.link, self.far_session), (self.far_link, self.session)):
            data, link.output = bytes(link.output), bytearray()
            if data:
                is_busy = True
                session.receive(data)
                if link.session is not None and not link.closed:
                    link.session.written()
        return is_busy


class Mesh:
    """Brokers with bridges.

    Args:
        ways: `ab` for a bridge from the broker a to the broker b, in the order in which they are opened.
        attributes: of all their connectors.
    """

    def __init__(self, *ways: str, **attributes: Any) -> None:
        names = sorted({name for way in ways for name in way})
        self.brokers = {name: Near(named_broker(name)) for name in names}
        self._sessions = {name: Sessions() for name in names}
        self._lines: dict[str, _Line] = {}
        self._client_count = 0
        for way in ways:
            self.open(way, **attributes)

    def open(self, way: str, **attributes: Any) -> None:
        """Open a bridge."""
        near, far = way[0], way[1]
        line = _Line(self.brokers[near], self.brokers[far], self._sessions[far], {"name": f"to-{far}"} | attributes)
        self._lines[way] = line
        self.pump()
        assert line.session.is_connected, line.session.reason

    def cut(self, way: str) -> None:
        """Lose a bridge."""
        line = self._lines.pop(way)
        line.session.lost()
        line.far_session.lost()
        self.pump()

    def cut_before_answers(self, way: str) -> None:
        """Lose a bridge with the answers to what it has sent."""
        self._lines[way].lose_answers()
        self.cut(way)

    def pump(self) -> None:
        """Carry bytes until there are none."""
        is_busy = True
        while is_busy:
            is_busy = False
            for near in self.brokers.values():
                while near.soon:
                    near.soon.pop(0)()
            for line in list(self._lines.values()):
                is_busy |= line.carry()

    def client(self, name: str) -> OpenWireClient:
        """Return a client that is connected to a broker."""
        client = OpenWireClient(self.brokers[name].broker)
        self._client_count += 1
        client.connect(f"client-of-{name}-{self._client_count}")
        client.open_session()
        return client

    def demand(self, name: str) -> int:
        """Return how many subscriptions of bridges a broker has."""
        return sum(
            consumer.request.network is not None
            for queue in self.brokers[name].broker.queues.values()
            for consumer in queue.consumers
        )
