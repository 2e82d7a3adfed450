"""Binds a port that another process may still hold for a moment: one that was killed frees it within milliseconds."""

import asyncio
import socket

from pybroker.broker.app.machine import Machine
from pybroker.broker.domain.errors import ConfigError

_BIND_SECONDS = 5.0

_RETRY_SECONDS = 0.005


async def bind(machine: Machine, host: str, port: int, setting: str) -> socket.socket:
    """Return a bound socket that does not listen yet.

    Raises:
        ConfigError: the port cannot be bound, and could not for some seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _BIND_SECONDS
    while True:
        try:
            return machine.bind(host, port, setting)
        except ConfigError:
            if loop.time() > deadline:
                raise
        await asyncio.sleep(_RETRY_SECONDS)
