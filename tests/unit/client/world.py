"""A client's state and the real broker's core, connected without sockets: the test decides when bytes are transferred.

The connection can be cut at any byte in both directions. The broker keeps the effect of the bytes before.
"""

from collections.abc import Callable
from dataclasses import replace

from pybroker.broker.domain.big_endian import INT
from pybroker.broker.domain.openwire.commands import BaseCommand
from pybroker.broker.domain.openwire.marshal.codec import WireFormat
from pybroker.broker.domain.openwire.marshal.wireformat import broker_offer
from pybroker.client.consumers import Redelivery
from pybroker.client.conversation import Event, Login
from pybroker.client.openwire import OpenWireConversation
from pybroker.client.state import ClientState
from pybroker.transports.openwire.session import OpenWireSession, Sessions
from tests.unit.transports.openwire.conversation import NOW_MS, FakeLink, new_broker, settings

FRAME_BYTES_MAX = 10_000
"""The agreed limit: small, so that tests exceed it easily."""

NO_DELAY = Redelivery(maximum=-1, initial_delay=0)


class World:
    """One client and one broker.

    Attributes:
        state: the client's.
        now: its clock's seconds.
        breaks: the number of breaks.
        events: the events of the connection itself.
        sent: the bytes that the client sent over the present connection.
    """

    def __init__(
        self,
        *,
        redelivery: Redelivery = NO_DELAY,
        tracked_bytes_max: int = 0,
        restore_transactions: bool = True,
        connected: bool = True,
        releases: bool = True,
    ) -> None:
        self.now = 0.0
        self._settings = settings(replace(broker_offer(), release_enabled=True if releases else None))
        self.state = ClientState(
            Login(connection_id="ID:c-1:1", client_id="c1"),
            clock=lambda: self.now,
            wall_clock_ms=lambda: NOW_MS,
            redelivery=redelivery,
            tracked_bytes_max=tracked_bytes_max,
            restore_transactions=restore_transactions,
        )
        self.breaks = 0
        self.events: list[Event] = []
        self.sent = bytearray()
        self._broker = new_broker()
        self._sessions = Sessions()
        self._link = FakeLink()
        self._session: OpenWireSession | None = None
        self._to_broker = self._to_client = float("inf")
        if connected:
            self.connect()
            self.run()

    def connect(self) -> None:
        """Open a connection; the greetings are not exchanged yet."""
        self._link = FakeLink()
        self._session = OpenWireSession(
            broker=self._broker, link=self._link, settings=self._settings, sessions=self._sessions
        )
        self.sent.clear()
        self._to_broker = self._to_client = float("inf")
        self.state.attach(
            OpenWireConversation(frame_bytes_max=FRAME_BYTES_MAX), is_failover=True, is_again=self.breaks > 0
        )

    def cut_after(self, to_broker: int, to_client: int) -> None:
        """Cut the connection after so many more bytes in each direction, and open the next one at once."""
        self._to_broker, self._to_client = to_broker, to_client

    def run(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Transfer bytes until there are no more, or a condition is true: then the broker's answer is in transit."""
        while self._session is not None and not until():
            there = self.state.bytes_to_send()
            self.state.written()
            here = bytes(self._link.output)
            self._link.output.clear()
            if not there and not here:
                return
            if self._hand_over(there, here):
                self.break_off()
                self.connect()

    def _hand_over(self, there: bytes, here: bytes) -> bool:
        """Transfer bytes up to the cut; return True if the connection is cut."""
        assert self._session is not None
        is_cut = len(there) > self._to_broker or len(here) > self._to_client
        there = there[: min(len(there), int(min(self._to_broker, 1 << 30)))]
        here = here[: min(len(here), int(min(self._to_client, 1 << 30)))]
        self._to_broker -= len(there)
        self._to_client -= len(here)
        self.sent += there
        if there:
            self._session.receive(there)
        if here:
            self.events += self.state.receive(here)
            if not self._link.closed:
                self._session.written()
        return is_cut

    def break_off(self, *, is_noticed: bool = True) -> None:
        """Break the connection; a broker that does not notice keeps its side until the client reconnects."""
        assert self._session is not None
        self.breaks += 1
        if is_noticed:
            self._session.lost()
        self._session = None
        self.state.interrupted()

    def again(self) -> None:
        """Break the connection and open the next."""
        self.break_off()
        self.connect()
        self.run()

    def commands(self) -> list[BaseCommand]:
        """Return what the client has sent over the present connection, after its greeting."""
        frames, offset, wire = list[BaseCommand](), 0, WireFormat()
        while offset < len(self.sent):
            end = offset + INT.size + INT.unpack_from(self.sent, offset)[0]
            command = wire.decode(bytes(self.sent[offset + INT.size : end]))
            if isinstance(command, BaseCommand):
                frames.append(command)
            offset = end
        return frames
