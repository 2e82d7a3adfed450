"""The check that a standby could open its listeners if it won the lock now.

A port is bound and released at once, without listening: only a master has open ports. On the machine of the master a
port may be taken, if the master publishes it. If it publishes none, as an ActiveMQ or a master on a database, the owner
of a taken port is unknown, and only addresses and rights are checked. `replicate_port` is not looked at: this member
opens it while it still is a standby.
"""

import errno
import socket
from collections.abc import Callable, Collection, Sequence

from pybroker.broker.app.config import Config
from pybroker.broker.domain.errors import ConfigError
from pybroker.broker.domain.role import Role
from pybroker.store.members import MemberStatus
from pybroker.transports.server import bind

Bind = Callable[[str, int, str], socket.socket]
"""Returns a bound socket for an address, a port and the setting that names it."""


def find_obstacle(config: Config, members: Sequence[MemberStatus] = (), bind: Bind = bind) -> str:
    """Return the reason why this member could not listen; empty if it could. Some 20 µs for each port.

    Args:
        config: the settings.
        members: the members of the store; none if they are not known.
        bind: binds a port.
    """
    # A replicated member has a store of its own, and no other member serves that one.
    taken = _ports_of_master(members) if config.replicate is None else ()
    for listener in config.listeners:
        try:
            bind(listener.host, listener.port, listener.setting).close()
        except ConfigError as error:
            cause = error.__cause__
            is_taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            if not is_taken or (taken is not None and listener.port not in taken):
                return str(error)
    return ""


def _ports_of_master(members: Sequence[MemberStatus]) -> Collection[int] | None:
    """Return the ports of a master on this machine; None if no master is known, or it publishes none."""
    masters = [each.member for each in members if each.alive and each.member and each.member.role is Role.MASTER]
    if len(masters) != 1 or not masters[0].listeners:
        return None
    if masters[0].host != socket.gethostname():
        return ()
    urls = (where.partition("#")[0] for where in masters[0].listeners)  # without the names of listeners
    return {int(port) for _, _, port in (url.rpartition(":") for url in urls) if port.isdigit()}
