"""A client for ActiveMQ and pybroker with failover.

- `aio.connect`: the API for asyncio, with `arguments` and `waiting`; `connect`: the same for threads (`sync`)
- `errors`: one type per cause; `messages`: sent and received messages
- `uri`: the brokers and options; `reconnect`: which broker is tried next, and when
- `state`: the state of a connection, which is restored after a break; its parts are `returns`, `transactions`,
  `consumers`, `browser`, `lookups`, `producers`, `requests` and `pending`
- `conversation`: the interface of a protocol; `openwire` and `stomp` implement it, each with its `…_messages`
- `link`: the I/O of a connection, with `wire`, `trust` and `blocking`; `inheritance`: connections in forked children
- `stomp_py`: failover for programs with stomp.py
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybroker.broker.domain.destination import Destination
    from pybroker.client.consumers import Redelivery
    from pybroker.client.errors import (
        BadOption,
        BrokerMissing,
        ClientError,
        ConnectionClosed,
        ConnectionFailed,
        ConnectionLost,
        DestinationRefused,
        FrameTooLarge,
        InheritedConnection,
        LoginRefused,
        NoRoom,
        NotAuthorized,
        ProtocolViolation,
        Refused,
        SelectorRefused,
        Timeout,
        TransactionInDoubt,
        TransactionRolledBack,
        UnknownOption,
        UnreadableMessage,
        UnsendableMessage,
        UntrustedBroker,
        UnusableURI,
    )
    from pybroker.client.messages import Kind, Message
    from pybroker.client.sync import Connection, Consumer, Producer, Sending, Transaction, connect

__all__ = [
    "BadOption",
    "BrokerMissing",
    "ClientError",
    "Connection",
    "ConnectionClosed",
    "ConnectionFailed",
    "ConnectionLost",
    "Consumer",
    "Destination",
    "DestinationRefused",
    "FrameTooLarge",
    "InheritedConnection",
    "Kind",
    "LoginRefused",
    "Message",
    "NoRoom",
    "NotAuthorized",
    "Producer",
    "ProtocolViolation",
    "Redelivery",
    "Refused",
    "SelectorRefused",
    "Sending",
    "Timeout",
    "Transaction",
    "TransactionInDoubt",
    "TransactionRolledBack",
    "UnknownOption",
    "UnreadableMessage",
    "UnsendableMessage",
    "UntrustedBroker",
    "UnusableURI",
    "connect",
]

_MODULES = {
    "pybroker.client.sync": ("Connection", "Consumer", "Producer", "Sending", "Transaction", "connect"),
    "pybroker.client.messages": ("Kind", "Message"),
    "pybroker.client.consumers": ("Redelivery",),
    "pybroker.broker.domain.destination": ("Destination",),
}
"""The module of each public name; names that are not here are in `errors`."""


def __getattr__(name: str) -> object:
    """Import a name at its first use, so that errors and URIs load without the rest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "pybroker.client.errors")
    return getattr(importlib.import_module(module), name)
