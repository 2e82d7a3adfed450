"""The rule of loops and hops that keeps messages from going round a network of brokers for ever.

Source: ActiveMQ 5.17, `NetworkBridgeFilter`.
"""

from collections.abc import Sequence

from pybroker.broker.domain.network.connector import UNLIMITED_TTL


def may_pass(broker_path: Sequence[str], target: str, ttl: int) -> bool:
    """Return True if what has come through these brokers may go on to another one.

    Args:
        broker_path: ids of the brokers that a message has passed, or demand; empty if its origin is the local broker.
        target: the id of the broker to which it would go.
        ttl: how many hops it may make altogether; -1: any number.
    """
    return target not in broker_path and (ttl <= UNLIMITED_TTL or len(broker_path) < ttl)
