"""The brokers at the other ends of bridges, as the observers of this broker learn of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BridgePeer:
    """The remote broker of one connection of a bridge. Two of them are never the same.

    Attributes:
        broker_id: its id.
        broker_name: its name.
        broker_url: its address for clients.
        address: the address that the bridge is connected to, such as `10.0.0.7:61616`.
        is_duplex: True if it has opened the connection, and messages go both ways.
    """

    broker_id: str
    broker_name: str
    broker_url: str
    address: str
    is_duplex: bool = False
