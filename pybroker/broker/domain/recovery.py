"""The contents of a store when it is opened, as the core takes them over."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pybroker.broker.domain.destination import Destination
from pybroker.broker.domain.message import Message
from pybroker.broker.domain.subscription import DurableSubscription
from pybroker.broker.domain.transaction import XATransactionId


@dataclass(slots=True, kw_only=True)
class SubscriptionBacklog:
    """A durable subscription, and the ids of the messages that it has not acknowledged, in dispatch order."""

    subscription: DurableSubscription
    message_ids: Sequence[str] = ()


class PreparedAck(NamedTuple):
    """An acknowledgement in a prepared transaction: its message is locked until the transaction ends.

    Attributes:
        destination: the destination of the message.
        message_id: its id.
        subscription_key: the durable subscription that acknowledged it; None on a queue.
    """

    destination: Destination
    message_id: str
    subscription_key: str | None = None


class PreparedSend(NamedTuple):
    """A message sent in a prepared transaction, to be dispatched after its commit.

    Attributes:
        destination: its destination.
        message_id: its id; after the commit, a queue's message can be read from the store.
        message: the message, if it was sent to a topic, for which the store may not keep it; None for a queue.
    """

    destination: Destination
    message_id: str
    message: Message | None = None


@dataclass(slots=True, kw_only=True)
class PreparedTransaction:
    """An XA transaction in doubt: prepared, and neither committed nor rolled back.

    Attributes:
        transaction_id: the id of its branch.
        sent: the messages sent in it, in the order of the sends.
        acknowledged: the messages acknowledged in it; the recovery contains their ids.
    """

    transaction_id: XATransactionId
    sent: Sequence[PreparedSend] = ()
    acknowledged: Sequence[PreparedAck] = ()


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The contents of a store when it is opened: message ids, whose messages `MessageStore.read` returns.

    Dispatch order is by age. In a store with priorities it is by three classes (above, at, below 4), and by age in
    each.

    Attributes:
        queues: message ids per queue in dispatch order, with those that a prepared transaction has acknowledged. The
            receiver takes over the lists, and may change them.
        backlogs: durable subscriptions, one per concrete topic, with message ids as for queues.
        prepared: XA transactions in doubt, in the order in which they were prepared.
        delivered: message ids that a consumer may have seen; None after a crash: any of them.
        broker_id: the id of the broker that the store belongs to, the same for each master; empty if the store has
        none.
    """

    queues: Mapping[Destination, Sequence[str]] = field(default_factory=dict[Destination, Sequence[str]])
    backlogs: Sequence[SubscriptionBacklog] = ()
    prepared: Sequence[PreparedTransaction] = ()
    delivered: frozenset[str] | None = None
    broker_id: str = ""
