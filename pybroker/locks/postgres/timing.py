"""Who gives up when: the one sum that all timeouts of a lock in a database come from.

```text
confirmed                                                    gives up   freed
    |--------- renew ---------|--------- renew ---------|        |        |
    0                       1/3                        2/3      5/6     lease
                                                                 |<margin>|
```

A master counts from the *start* of the last statement that the database answered, so that it never counts from later
than the server does. It gives up a sixth of the lease before the server, or a competitor, may take the lock from it:
old master first, then the database (ActiveMQ 5.17 has no such order: its statements have no timeout at all).

On the server several things bound a session whose client is gone, because each sees what the others miss: keepalives an
idle connection, `tcp_user_timeout` one with an unacknowledged reply, `idle_in_transaction_session_timeout` (or
`idle_session_timeout`) a client that is frozen while its kernel answers, `client_connection_check_interval` one that
waits inside a statement, `statement_timeout` a statement that hangs.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from pybroker.broker.domain.errors import ConfigError

LEASE_SECONDS = 9.0
"""With it, a standby serves within ten seconds of the master's network being cut."""

LEASE_SECONDS_MIN = 1.0
"""Less than that, and a busy machine loses its lock to its own scheduler."""

CONNECT_SECONDS = 5.0
"""For a connection with all its round trips, and for a statement that waits for nobody."""

_KEEPALIVE_COUNT = 4
_CLIENT_CHECK_MS = 1000


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one lock.

    Attributes:
        lease_seconds: how long the database keeps a lock for a master it hears nothing of.
        renew_seconds: how often the master is heard of.
    """

    lease_seconds: float
    renew_seconds: float

    @classmethod
    def of(cls, lease_seconds: float = LEASE_SECONDS, renew_seconds: float | None = None) -> "Timing":
        """Derive what is not given: a renewal every third of the lease.

        Raises:
            ConfigError: the two contradict each other.
        """
        if lease_seconds < LEASE_SECONDS_MIN:
            raise ConfigError(
                f"{lease_seconds:g} s is too short to be renewed in time",
                setting="lock_lease",
                hint=f"write {LEASE_SECONDS_MIN:g}s or more",
            )
        renew = lease_seconds / 3 if renew_seconds is None else renew_seconds
        if not 0 < renew <= lease_seconds / 2:
            raise ConfigError(
                f"a lease of {lease_seconds:g} s that is renewed every {renew:g} s may run out in between",
                setting="lock_renew",
                hint=f"leave it out, which makes it {lease_seconds / 3:g}s, or write at most {lease_seconds / 2:g}s",
            )
        return cls(lease_seconds, renew)

    @property
    def hold_seconds(self) -> float:
        """How long after a confirmation the master may count on the lock."""
        return self.lease_seconds * 5 / 6

    @property
    def grace_seconds_max(self) -> float:
        """How much of that is left at least, whenever the database goes away: it may just have been due to confirm."""
        return self.hold_seconds - self.renew_seconds

    def client_parameters(self) -> dict[str, str]:
        """Return what libpq is told, for a connection whose server is gone."""
        return {
            "keepalives": "1",
            "keepalives_idle": str(self._keepalive_idle),
            "keepalives_interval": str(self._keepalive_interval),
            "keepalives_count": str(_KEEPALIVE_COUNT),
            "tcp_user_timeout": str(_ms(self.lease_seconds)),
            "connect_timeout": str(math.ceil(CONNECT_SECONDS)),
        }

    def server_settings(self) -> dict[str, str]:
        """Return what the session is set to; a server leaves out those it does not know."""
        lease_ms = str(_ms(self.lease_seconds))
        return {
            "tcp_keepalives_idle": str(self._keepalive_idle),
            "tcp_keepalives_interval": str(self._keepalive_interval),
            "tcp_keepalives_count": str(_KEEPALIVE_COUNT),
            "tcp_user_timeout": lease_ms,
            "idle_in_transaction_session_timeout": lease_ms,
            "client_connection_check_interval": str(_CLIENT_CHECK_MS),
            "statement_timeout": lease_ms,
            "lock_timeout": str(_ms(self.lease_seconds / 3)),
            "default_transaction_isolation": "read committed",
        }

    # Together at least the lease, for servers before 12, which know no tcp_user_timeout.

    @property
    def _keepalive_idle(self) -> int:
        return math.ceil(self.lease_seconds / 3)

    @property
    def _keepalive_interval(self) -> int:
        return math.ceil(self.lease_seconds / 6)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _now() -> Callable[[], float]:
    """Return a clock that nobody sets and that goes on while the machine is suspended, which `monotonic` does not."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic
    clock = time.CLOCK_BOOTTIME
    return lambda: time.clock_gettime(clock)


now = _now()
"""Seconds since some instant."""
