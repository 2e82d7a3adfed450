"""Values for tests of stores, and the ways from one life of a store to the next."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.broker.domain.destination import Destination, queue, topic
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.recovery import Recovery
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import LocalTransactionId, XATransactionId

ORDERS = queue("ORDERS")
BILLS = queue("BILLS")
PRICES = topic("PRICES.EU")
TX = LocalTransactionId("ID:testhost-40001-1700000000000-3:1", 1)
OTHER_TX = LocalTransactionId("ID:testhost-40001-1700000000000-3:2", 1)
XA = XATransactionId(4660, b"global", b"branch")

MakeMessage = Callable[..., Message]


def subscription(name: str, destination: Destination = PRICES, **fields: Any) -> DurableSubscription:
    return DurableSubscription(
        client_id="client", name=name, destination=destination, subscribed_destination=destination, **fields
    )


def ids(messages: Any) -> list[str]:
    """Return the ids of messages, or ids themselves: a recovery has nothing else."""
    return [each if isinstance(each, str) else each.message_id for each in messages]


def backlog(recovery: Recovery, key: str) -> list[str]:
    (found,) = (b for b in recovery.backlogs if b.subscription.key == key)
    return ids(found.message_ids)


def reopen(lives: Any) -> Recovery:
    """Close and open again: the clean way from one run to the next."""
    lives.close()
    return lives.open()


def crash(lives: Any) -> Recovery:
    """Die after everything became durable, and open again."""
    lives.flush()
    lives.crash()
    return lives.open()


BETWEEN = pytest.mark.parametrize("next_life", [reopen, crash])
