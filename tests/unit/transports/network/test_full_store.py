"""A bridge to a broker whose store is full: it stands and waits, and goes on once there is space."""

from typing import Any

import pytest

from pybroker.broker.core.deferred_sends import DEFERRED_BYTES_MAX
from pybroker.broker.core.store_space import LOOK_SECONDS
from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.openwire.commands import ExceptionResponse
from pybroker.broker.domain.transaction import TransactionId
from pybroker.store.memory import MemoryStore
from tests.timers import ManualTimers
from tests.unit.transports.network.bridges import TwoBrokers
from tests.unit.transports.network.test_bridge import got, waiting
from tests.unit.transports.openwire.conversation import of_kind

Q = queue("Q")


class FullStore(MemoryStore):
    """A store that is full until the test sets it free."""

    full = True
    left = -1
    """The number of messages after which it is full again; negative: it is not."""

    def add(self, message: Message, transaction: TransactionId | None = None) -> bool:
        if message.destination == Q:
            self.left -= 1
            self.full |= not self.left
        return super().add(message, transaction)

    @property
    def is_full(self) -> bool:
        return self.full


class Full:
    """A bridge to a broker whose store is full, with a consumer there."""

    def __init__(self, **attributes: Any) -> None:
        self.store, self.timers = FullStore(), ManualTimers()
        self.brokers = TwoBrokers(far_store=self.store, **attributes)
        self.brokers.far.usage.paging.after = self.timers.after
        self.producer = self.brokers.client(self.brokers.near.broker, "p")
        self.reader = self.brokers.client(self.brokers.far, "c")
        self.reader.consume(Q)
        self.brokers.pump()

    def send(self, *bodies: str, **details: Any) -> None:
        for body in bodies:
            self.producer.request(self.producer.message(Q, body, **details))
        self.brokers.pump()

    def look(self) -> None:
        """Let the far broker look at its store."""
        assert self.timers.seconds == [LOOK_SECONDS]
        self.timers.elapse()
        self.brokers.pump()


@pytest.mark.parametrize("duplex", [False, True])
def test_bridge_goes_on_once_the_store_has_space(duplex: bool) -> None:
    full = Full(duplex=duplex)
    full.send("1", "2")
    full.send("3", persistent=False)
    assert got(full.reader) == []
    full.look()
    assert got(full.reader) == []
    assert (waiting(full.brokers), full.brokers.near.ended) == (3, [])
    full.store.full = False
    full.look()
    assert got(full.reader) == ["1", "2", "3"]
    assert waiting(full.brokers) == 0
    assert full.timers.seconds == []
    full.send("4")
    assert got(full.reader) == ["4"]
    assert full.brokers.session.forwarded_count == 4


def test_messages_come_once_where_the_bridge_ends_meanwhile() -> None:
    full = Full()
    full.send("1", "2")
    full.brokers.cut()
    assert waiting(full.brokers) == 2
    assert full.brokers.far.usage.paging.deferred_bytes == 0
    full.brokers.connect()
    assert got(full.reader) == []
    full.store.full = False
    full.look()
    assert got(full.reader) == ["1", "2"]
    assert waiting(full.brokers) == 0


def test_store_that_is_full_again_keeps_the_order() -> None:
    full = Full()
    full.send("1", "2", "3")
    full.store.left, full.store.full = 2, False
    full.look()
    assert got(full.reader) == ["1", "2"]
    full.store.full = False
    full.look()
    assert got(full.reader) == ["3"]


def test_no_more_input_is_processed_while_too_much_waits() -> None:
    full = Full()
    large = "x" * (DEFERRED_BYTES_MAX // 4)
    full.send(*[f"{number}{large}" for number in range(6)])
    far_link = full.brokers.far_link
    assert far_link.input_holds == 1
    held = full.brokers.far.usage.paging.deferred_bytes
    assert DEFERRED_BYTES_MAX < held < 2 * DEFERRED_BYTES_MAX, "one message above the limit"
    full.store.full = False
    full.look()
    assert far_link.input_holds == 0
    assert [(text or "")[0] for text in got(full.reader)] == list("012345")
    assert waiting(full.brokers) == 0


def test_bridge_that_ends_while_input_is_held_releases_it() -> None:
    full = Full()
    full.send(*["x" * (DEFERRED_BYTES_MAX // 2)] * 4)
    far_link = full.brokers.far_link
    assert far_link.input_holds == 1
    full.brokers.cut()
    assert (far_link.input_holds, full.brokers.far.usage.paging.deferred_bytes) == (0, 0)


def test_client_is_refused_beside_a_waiting_bridge() -> None:
    full = Full()
    full.send("1")
    client = full.brokers.client(full.brokers.far, "d")
    (refused,) = of_kind(client.request(client.message(Q, "refused")), ExceptionResponse)
    assert refused.exception is not None
    assert "Usage Manager Store is Full" in str(refused.exception.message)
