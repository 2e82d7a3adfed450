"""A broker's identity, as clients and other brokers see it."""

from typing import NamedTuple


class BrokerIdentity(NamedTuple):
    """The id and the name that all members of a store have in common.

    Attributes:
        broker_id: identifies the broker in networks of brokers; unique.
        name: the setting `broker_name`.
    """

    broker_id: str
    name: str
