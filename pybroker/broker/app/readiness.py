"""The check that a standby could serve if it won the lock now: binds its ports at the start and periodically.

A port is bound and released at once, without listening: only a master has open ports. On the machine of the master a
port may be taken, if the master publishes it. If it publishes none, as an ActiveMQ or a master on a database, the owner
of a taken port is unknown, and only addresses and rights are checked.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Collection

from pybroker.broker.app.config import Config
from pybroker.broker.app.layout import layout
from pybroker.broker.app.stores import MEMORY_STORE, is_database
from pybroker.broker.domain.errors import ConfigError, StoreUnavailable
from pybroker.broker.domain.role import Role
from pybroker.store.members import read_members
from pybroker.transports.server import bind

TRY_SECONDS = 10.0
"""The interval of checks, each of some 20 µs per port."""

Bind = Callable[[str, int, str], socket.socket]
"""Returns a bound socket for an address, a port and the setting that names it."""

_log = logging.getLogger(__name__)


class Readiness:
    """The periodic check, and its last result."""

    def __init__(self, config: Config, bind: Bind = bind) -> None:
        self.obstacle = ""
        """The reason why it could not serve; empty if none is known."""
        self._config = config
        self._bind = bind

    async def watch(self) -> None:
        """Check the ports until cancelled; log each change."""
        while True:
            found = await asyncio.to_thread(find_obstacle, self._config, self._bind)
            if found and found != self.obstacle:
                _log.error("this standby could not serve if it became master now: %s", found)
            elif self.obstacle and not found:
                _log.info("this standby could serve again if it became master now")
            self.obstacle = found
            await asyncio.sleep(TRY_SECONDS)


def find_obstacle(config: Config, bind: Bind = bind) -> str:
    """Return the reason why this member could not serve; empty if it could. Blocks while it reads the members."""
    taken = _ports_of_master(config)
    for setting, port in config.ports().items():
        try:
            bind(config.bind, port, setting).close()
        except ConfigError as error:
            cause = error.__cause__
            is_taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            if not is_taken or (taken is not None and port not in taken):
                return str(error)
    return ""


def _ports_of_master(config: Config) -> Collection[int] | None:
    """Return the ports of a master on this machine; None if no master is known, or it publishes none."""
    if config.store == MEMORY_STORE or is_database(config.store):
        return None
    try:
        members = read_members(layout(config.store).members)
    except StoreUnavailable:
        return None
    masters = [each.member for each in members if each.alive and each.member and each.member.role is Role.MASTER]
    if len(masters) != 1 or not masters[0].listeners:
        return None
    if masters[0].host != socket.gethostname():
        return ()
    return {int(port) for _, _, port in (where.rpartition(":") for where in masters[0].listeners) if port.isdigit()}
