# mypy: disable-error-code="override"
"""The link without a broker: races between its threads, and its end."""

import asyncio

from pybroker.client import aio
from pybroker.client.link import ClientLink
from pybroker.client.pending import Callbacks


def unconnected(uri: str = "tcp://127.0.0.1:1") -> ClientLink:
    return aio.connect(uri)._link


class RacingCallbacks(Callbacks):
    """Calls the callbacks just before one is added, as the loop's thread may."""

    def __init__(self, wire: "FakeWire") -> None:
        super().__init__()
        self._wire = wire

    def add(self, callback: object) -> None:
        self._wire.is_congested = False
        self.call()
        super().add(callback)  # type: ignore[arg-type]


class FakeWire:
    """A transport that becomes writable at that moment."""

    def __init__(self) -> None:
        self.is_congested = True
        self.on_writable = RacingCallbacks(self)


def test_a_callback_added_during_its_event_is_called() -> None:
    link, called = unconnected(), list[bool]()
    link._wire = FakeWire()  # type: ignore[assignment]
    with link:
        link.call_when_writable(lambda: called.append(True))
    assert called


class FleetingLink(ClientLink):
    """A link whose connection is lost between any two reads of `_wire`."""

    reads = 0

    @property
    def _wire(self) -> FakeWire | None:
        self.reads += 1
        return FakeWire() if self.reads % 2 else None

    @_wire.setter
    def _wire(self, _: object) -> None:
        self.reads = 0


def test_congestion_survives_a_lost_connection() -> None:
    link = unconnected()
    link.__class__ = FleetingLink
    assert link.is_congested in (True, False)
    link.call_when_writable(lambda: None)


def test_an_ended_link_leaves_its_thread_to_others() -> None:
    link = unconnected()
    asyncio.run(link.run())
    link.check_thread()
    assert link.state.error is not None
