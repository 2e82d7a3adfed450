"""A client for ActiveMQ and pybroker that finds the next broker by itself when one goes.

- `connect`: the synchronous API (`sync`); `aio.connect`: its twin for asyncio; `arguments`: what both take
- `errors`: one type per cause; `messages`: what is sent and received
- `uri`, `reconnect`: which brokers there are, and which is tried when
- `state`: what a connection has open and restores; `transactions`, `consumers`, `browser`, `producers`, `requests` and
  `pending` are its parts
- `conversation`: what a protocol does for it; `openwire` and `stomp` do it, each with its `…_messages`
- `link`: keeps it connected; with `wire`, `trust` and `blocking` the only I/O
- `stomp_py` is for those who stay with stomp.py
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
        LoginRefused,
        NoRoom,
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
    "Kind",
    "LoginRefused",
    "Message",
    "NoRoom",
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
"""Where names are; those that are nowhere here are errors."""


def __getattr__(name: str) -> object:
    """Load a name when it is first used: errors and URIs are read without the rest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "pybroker.client.errors")
    return getattr(importlib.import_module(module), name)
