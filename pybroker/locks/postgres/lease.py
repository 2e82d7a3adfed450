"""ActiveMQ's lease in a database: the row names the master, and the time until which it is master.

```text
take     UPDATE … SET broker_name = me, time = now + lease  WHERE id = 1 AND (time IS NULL OR time < now OR mine)
renew    UPDATE … SET time = now + lease                    WHERE id = 1 AND broker_name = me AND time >= now
release  UPDATE … SET broker_name = NULL, time = 0          WHERE id = 1 AND broker_name = me
```

It is the lock of ActiveMQ 5.17's `LeaseDatabaseLocker`: each excludes the other, as far as ActiveMQ's clock is right.
Differences from ActiveMQ:

* `now` is the database's clock, not the member's: the clocks of members may differ by minutes.
* The holder's id is unique to each run of each member. ActiveMQ's is the broker's name by default, and two brokers of
  one name both renew the same lease.
* An expired lease is not renewed, even if no other member took it.
* A database clock that is set back prolongs no lease: a standby measures the rest of a lease on its own clock, from
  when it first read the row, and takes the lease if it was not renewed in that time.

The lease outlives its connection: the master keeps it through a restart of the database that is shorter than its rest.
"""

import os
import socket
import uuid

from pybroker.broker.domain.errors import ConfigError, DatabaseUnavailable, LockNotHeld
from pybroker.locks.postgres.provider import Database, PostgresLock
from pybroker.locks.postgres.session import LOCK_NOT_AVAILABLE, DatabaseSession, Interrupt, StatementRefused
from pybroker.locks.postgres.table import NOW_MS, TABLE, require_table
from pybroker.locks.postgres.timing import now

LEASE_POLL_SECONDS = 0.25
"""Time between two reads of a standby. While the lease is held, a standby writes nothing."""

_HOLDER_LENGTH_MAX = 250

_NO_LEASE = ("", 0)
"""Holder and end that stand for no row."""

_TAKE = f"""
UPDATE {TABLE} SET broker_name = %s, time = {NOW_MS} + %s
WHERE id = 1 AND (time IS NULL OR time < {NOW_MS} OR broker_name = %s OR (broker_name = %s AND time = %s)) RETURNING 1
"""  # noqa: S608 - constants
_READ = f"SELECT coalesce(broker_name, ''), time, time - {NOW_MS} FROM {TABLE} WHERE id = 1 AND time >= {NOW_MS}"  # noqa: S608
_RENEW = f"""
UPDATE {TABLE} SET time = {NOW_MS} + %s WHERE id = 1 AND broker_name = %s AND time >= {NOW_MS} RETURNING 1
"""  # noqa: S608
_RELEASE = f"UPDATE {TABLE} SET broker_name = NULL, time = 0 WHERE id = 1 AND broker_name = %s"  # noqa: S608
_HOLDER = f"SELECT broker_name FROM {TABLE} WHERE id = 1"  # noqa: S608
_IS_TABLE_LOCKED = f"""
SELECT 1 FROM pg_catalog.pg_locks WHERE relation = to_regclass('{TABLE}') AND granted AND pid <> pg_backend_pid()
AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""  # noqa: S608
"""Finds a lock on the table, such as an operator's VACUUM FULL; the holder of a row lock has a weaker one."""

_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""Makes a commit durable: a lease that a crash of the server undoes would be given to two members."""


class PostgresLeaseLock(PostgresLock):
    """The lock of `--lock postgres-lease`."""

    _outlives_session = True

    def __init__(self, database: Database, *, member: str = "", poll_seconds: float = LEASE_POLL_SECONDS) -> None:
        """Create the provider. Nothing is connected.

        Args:
            database: the server.
            member: the broker's name, for operators; it need not be unique.
            poll_seconds: time between two reads of a standby.
        """
        super().__init__(database)
        own = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
        self.holder = f"{member}@{own}"[-_HOLDER_LENGTH_MAX:] if member else own
        """Our id in the row, unique to this run of this member."""
        self._poll_seconds = poll_seconds
        self._seen = _NO_LEASE
        self._seen_until = 0.0

    @property
    def _lease_ms(self) -> int:
        return round(self._database.timing.lease_seconds * 1000)

    def _prepare(self, session: DatabaseSession) -> None:
        require_table(session, may_create=self._database.may_create)
        session.run(_DURABLE)

    def _reopen(self, seconds: float, interrupt: Interrupt) -> DatabaseSession:
        """Open another session. The lease does not end with the former one."""
        session = self._database.open(seconds=seconds, interrupt=interrupt)
        session.run(_DURABLE)
        return session

    def _take(self, session: DatabaseSession) -> bool:
        over = self._seen if now() > self._seen_until else _NO_LEASE
        try:
            return bool(session.run(_TAKE, self.holder, self._lease_ms, self.holder, *over))
        except StatementRefused as error:
            if error.state != LOCK_NOT_AVAILABLE or session.run(_IS_TABLE_LOCKED):
                raise
            raise ConfigError(
                f"{self.name}: another member has a row lock, which a lease does not exclude",
                setting="lock",
                hint="use the same kind of lock for all members: postgres-row, if one is an ActiveMQ with its default",
            ) from error

    def _wait(self, session: DatabaseSession, interrupt: Interrupt) -> bool:
        session.set_interrupt(None)  # an interrupted statement could leave a lease behind that no member renews
        while not self._take(session):
            self._observe(session)
            interrupt.wait(self._poll_seconds)
        return True

    def _observe(self, session: DatabaseSession) -> None:
        """Record a lease that is new or renewed, and when it ends by our own clock."""
        for holder, end, left_ms in session.run(_READ):
            if (holder, end) != self._seen:
                self._seen = (holder, end)
                self._seen_until = now() + left_ms / 1000

    def _confirm(self, session: DatabaseSession, seconds: float) -> None:
        try:
            renewed = session.run(_RENEW, self._lease_ms, self.holder, seconds=seconds)
        except StatementRefused as error:  # the row is locked, which may pass
            raise DatabaseUnavailable(self.name, str(error)) from error
        if not renewed:
            rows = session.run(_HOLDER)
            raise LockNotHeld(
                f"{self.name}: the lease ran out, and the row names {rows[0][0] if rows else 'no member'}"
            )

    def _unlock(self, session: DatabaseSession) -> None:
        session.run(_RELEASE, self.holder, seconds=1.0)
