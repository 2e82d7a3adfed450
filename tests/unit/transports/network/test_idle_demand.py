"""Demand without messages: what a thousand subscriptions of a bridge cost."""

import tracemalloc
from typing import Final

from pybroker.broker.domain.destination import queue
from pybroker.broker.domain.openwire.commands import ConsumerInfo
from tests.unit.transports.network.bridges import TwoBrokers

DEMANDS: Final = 1000
MEASURED: Final = 200
BYTES_MAX: Final = 20_000
"""For a consumer at the far end, and the subscription at the near one with its queue, in this one process."""
KEEP_ALIVE_BYTES_MAX: Final = 64
"""More than a KeepAliveInfo has."""


def with_demand(count: int = DEMANDS) -> TwoBrokers:
    """Return a bridge with consumers of so many queues at the far broker."""
    brokers = TwoBrokers()
    reader = brokers.client(brokers.far, "c")
    for number in range(1, count + 1):
        consumer_id, destination = reader.consumer(number), queue(f"Q.{number}")
        reader.send_commands(ConsumerInfo(consumer_id=consumer_id, destination=destination, prefetch_size=10))
    brokers.pump()
    assert len(brokers.near.broker.queues) >= count
    return brokers


def test_idle_demand_writes_nothing_and_has_no_timer() -> None:
    brokers = with_demand()
    link = brokers.link
    assert link.wakes_at is not None
    link.now = link.wakes_at
    brokers.session.on_timer()
    assert len(link.output) < KEEP_ALIVE_BYTES_MAX
    assert link.wakes_at - link.now >= 5, "the next timer is that of the connection"


def test_idle_demand_takes_bounded_memory() -> None:
    tracemalloc.start()
    try:
        brokers = with_demand(MEASURED)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert brokers.session.is_connected
    assert taken / MEASURED < BYTES_MAX
