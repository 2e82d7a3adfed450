"""Nothing of an AMQP connection that has ended is left for the garbage collector."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from pybroker.broker.domain.amqp.composites import append_composite
from pybroker.broker.domain.amqp.performatives import (
    AmqpAccepted,
    AmqpClose,
    AmqpCoordinator,
    AmqpDeclare,
    AmqpReleased,
    AmqpTransactionalState,
    AmqpTransfer,
)
from pybroker.transports.amqp.channel import AmqpChannel
from pybroker.transports.amqp.client import AmqpClient
from pybroker.transports.amqp.incoming import IncomingLink
from pybroker.transports.amqp.outgoing import OutgoingLink
from pybroker.transports.amqp.peer import AmqpPeer
from pybroker.transports.amqp.transactions import OpenAmqpTransaction, SentDelivery
from tests.compiled import interpreted
from tests.unit.transports.amqp.conversation import Peer, World, text

KINDS = (AmqpClient, AmqpPeer, AmqpChannel, IncomingLink, OutgoingLink, OpenAmqpTransaction, SentDelivery)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Keeps the collector from running."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def busy(world: World) -> Peer:
    """Return a client that has everything."""
    peer = world.open("c", max_frame_size=512)
    peer.sender("q")
    peer.sender(None, 9, target=AmqpCoordinator())
    out = bytearray(b"\0\x53\x77")
    append_composite(out, AmqpDeclare())
    [declared] = peer.transfer(bytes(out), 9)
    txn_id = declared.state.txn_id
    for body in ("a", "b", "c" * 2000, "d"):
        peer.transfer(text(body))
    peer.transfer(text("e"), state=AmqpTransactionalState(txn_id=txn_id))
    peer.receiver("q")
    peer.credit(4, incoming_window=3)
    peer.settle(0, AmqpTransactionalState(txn_id=txn_id, outcome=AmqpAccepted()), settled=False)
    peer.settle(1, AmqpTransactionalState(txn_id=txn_id, outcome=AmqpReleased()))
    peer.receiver("topic://t", 2, durable=2)
    peer.receiver(None, 3, dynamic=True)
    peer.receiver("q", 4, distribution_mode="copy")
    peer.receiver("q?consumer.x=1", 5)
    peer.send(AmqpTransfer(handle=0, delivery_id=99, more=True), payload=b"part")
    return peer


def lost(peer: Peer) -> None:
    peer.drop()


def closed(peer: Peer) -> None:
    peer.send(AmqpClose())
    peer.drop()


def failed(peer: Peer) -> None:
    peer.feed(b"\0\0\0\x07\2\0\0\0")
    peer.drop()


@interpreted
@pytest.mark.parametrize("end", [lost, closed, failed])
@pytest.mark.usefixtures("uncollected")
def test_ended_connection_leaves_no_cycle(end: Any) -> None:
    world = World()
    peer = busy(world)
    session = weakref.ref(peer.session)
    end(peer)
    peer.link.session = None
    del peer
    assert session() is None
    left = [type(each).__name__ for each in gc.get_objects() if isinstance(each, KINDS)]
    assert left == []
