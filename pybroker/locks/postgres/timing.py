"""The time-outs of a lock in a database, all derived from the length of its lease.

```text
confirmed                                                    gives up   freed
    |--------- renew ---------|--------- renew ---------|        |        |
    0                       1/3                        2/3      5/6     lease
                                                                 |<margin>|
```

A master counts from the *start* of the last statement that the database answered, so its count never begins later
than the server's. It gives the lock up a sixth of the lease before the server, or another member, may take it: the
former master stops first, then the database frees the lock. (ActiveMQ 5.17 has no such order: its statements have no
time-out.)

On the server, five settings end a session whose client is gone, because each covers a case that the others do not:

* keepalives: an idle connection;
* `tcp_user_timeout`: a connection with an unacknowledged reply;
* `idle_in_transaction_session_timeout` or `idle_session_timeout`: a frozen client whose kernel still answers;
* `client_connection_check_interval`: a session that waits inside a statement;
* `statement_timeout`: a statement that hangs.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from pybroker.broker.domain.errors import ConfigError

LEASE_SECONDS = 9.0
"""The default. A standby then serves within ten seconds after the master's network was cut."""

LEASE_SECONDS_MIN = 1.0
"""The shortest lease. On a busy machine, the thread that renews a shorter one may be scheduled too late."""

CONNECT_SECONDS = 5.0
"""Time limit for a connection with all its round trips, and for a statement that waits for no lock."""

_KEEPALIVE_COUNT = 4
_CLIENT_CHECK_MS = 1000


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one lock.

    Attributes:
        lease_seconds: how long the database keeps the lock of a silent master.
        renew_seconds: time between two renewals.
    """

    lease_seconds: float
    renew_seconds: float

    @classmethod
    def of(cls, lease_seconds: float = LEASE_SECONDS, renew_seconds: float | None = None) -> "Timing":
        """Return the times for a lease; by default it is renewed three times in its length.

        Raises:
            ConfigError: a value is out of range, or they contradict each other.
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
        """Seconds after the start of a renewal for which the master may rely on the lock."""
        return self.lease_seconds * 5 / 6

    @property
    def grace_seconds_max(self) -> float:
        """The least that is left of `hold_seconds` when the database goes away, just before a renewal."""
        return self.hold_seconds - self.renew_seconds

    def client_parameters(self) -> dict[str, str]:
        """Return the parameters by which libpq notices that the server is gone."""
        return {
            "keepalives": "1",
            "keepalives_idle": str(self._keepalive_idle),
            "keepalives_interval": str(self._keepalive_interval),
            "keepalives_count": str(_KEEPALIVE_COUNT),
            "tcp_user_timeout": str(_ms(self.lease_seconds)),
            "connect_timeout": str(math.ceil(CONNECT_SECONDS)),
        }

    def server_settings(self) -> dict[str, str]:
        """Return the session's settings; `DatabaseSession.set` leaves out those that the server does not know."""
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

    # Together at least the lease, for servers before version 12, which lack tcp_user_timeout.

    @property
    def _keepalive_idle(self) -> int:
        return math.ceil(self.lease_seconds / 3)

    @property
    def _keepalive_interval(self) -> int:
        return math.ceil(self.lease_seconds / 6)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _now() -> Callable[[], float]:
    """Return a clock that cannot be set and that goes on while the machine is suspended, unlike `monotonic`."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic
    clock = time.CLOCK_BOOTTIME
    return lambda: time.clock_gettime(clock)


now = _now()
"""Seconds since an arbitrary instant."""
