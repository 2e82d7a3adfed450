"""ActiveMQ's lease in a database: the master is who is named in the row, until the time that stands there.

```text
take     UPDATE … SET broker_name = me, time = now + lease  WHERE id = 1 AND (time IS NULL OR time < now OR mine)
renew    UPDATE … SET time = now + lease                    WHERE id = 1 AND broker_name = me AND time >= now
release  UPDATE … SET broker_name = NULL, time = 0          WHERE id = 1 AND broker_name = me
```

As ActiveMQ 5.17's `LeaseDatabaseLocker`, which it excludes and is excluded by, as far as that one's clock is right.
What differs:

* `now` is the database's clock, not the member's: clocks of members may differ by minutes.
* The holder's id is unique to each life of each member. ActiveMQ's is the broker's name by default, and of two brokers
  with one name both renew the same lease for ever.
* A lease that ran out is not renewed, even if nobody took it.
* A database's clock that is set back prolongs no lease: a standby counts on its own clock what was left when it first
  saw the row as it is, and takes a lease that was not renewed since.

The lease outlives its connection: a restart of the database that is shorter than the rest of the lease is ridden out.
"""

import os
import socket
import uuid

from pybroker.broker.domain.errors import ConfigError, LockNotHeld
from pybroker.locks.postgres.provider import Database, PostgresLock
from pybroker.locks.postgres.session import LOCK_NOT_AVAILABLE, Bell, DatabaseUnreachable, Refused, Session
from pybroker.locks.postgres.table import NOW_MS, TABLE, require_table
from pybroker.locks.postgres.timing import now

LEASE_POLL_SECONDS = 0.25
"""How often a standby looks. A look at a lease that is not free writes nothing."""

_HOLDER_LENGTH_MAX = 250

_NO_LEASE = ("", 0)
"""Holder and end that stand for a missing row."""

_TAKE = f"""
UPDATE {TABLE} SET broker_name = %s, time = {NOW_MS} + %s
WHERE id = 1 AND (time IS NULL OR time < {NOW_MS} OR broker_name = %s OR (broker_name = %s AND time = %s)) RETURNING 1
"""  # noqa: S608 - constants
_LOOK = f"SELECT coalesce(broker_name, ''), time, time - {NOW_MS} FROM {TABLE} WHERE id = 1 AND time >= {NOW_MS}"  # noqa: S608
_RENEW = f"""
UPDATE {TABLE} SET time = {NOW_MS} + %s WHERE id = 1 AND broker_name = %s AND time >= {NOW_MS} RETURNING 1
"""  # noqa: S608
_RELEASE = f"UPDATE {TABLE} SET broker_name = NULL, time = 0 WHERE id = 1 AND broker_name = %s"  # noqa: S608
_WHO = f"SELECT broker_name FROM {TABLE} WHERE id = 1"  # noqa: S608
_IS_TABLE_LOCKED = f"""
SELECT 1 FROM pg_catalog.pg_locks WHERE relation = to_regclass('{TABLE}') AND granted AND pid <> pg_backend_pid()
AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""  # noqa: S608
"""By an operator, VACUUM FULL say; who holds a row lock has a weaker one on the table."""

_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""A lease that a crash of the server takes back would be held by two."""


class PostgresLeaseLock(PostgresLock):
    """`--lock postgres-lease`."""

    _outlives_session = True

    def __init__(self, database: Database, *, member: str = "", poll_seconds: float = LEASE_POLL_SECONDS) -> None:
        """Prepare, without connecting.

        Args:
            database: where.
            member: the broker's name, for people; it need not be unique.
            poll_seconds: how often a standby looks.
        """
        super().__init__(database)
        own = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}"
        self.holder = f"{member}@{own}"[-_HOLDER_LENGTH_MAX:] if member else own
        """Who stands in the row while it is ours: no other life of any member has this id."""
        self._poll_seconds = poll_seconds
        self._seen = _NO_LEASE
        self._seen_until = 0.0

    @property
    def _lease_ms(self) -> int:
        return round(self._database.timing.lease_seconds * 1000)

    def _prepare(self, session: Session) -> None:
        require_table(session, may_create=self._database.may_create)
        session.run(_DURABLE)

    def _reopen(self, seconds: float, bell: Bell) -> Session:
        """Open another session: the lease does not end with its own."""
        session = self._database.open(seconds=seconds, bell=bell)
        session.run(_DURABLE)
        return session

    def _take(self, session: Session) -> bool:
        over = self._seen if now() > self._seen_until else _NO_LEASE
        try:
            return bool(session.run(_TAKE, self.holder, self._lease_ms, self.holder, *over))
        except Refused as error:
            if error.state != LOCK_NOT_AVAILABLE or session.run(_IS_TABLE_LOCKED):
                raise
            raise ConfigError(
                f"{self.name}: somebody has a row lock, which a lease does not exclude",
                setting="lock",
                hint="use the same kind of lock for all members: postgres-row, if one is an ActiveMQ with its default",
            ) from error

    def _wait(self, session: Session, bell: Bell) -> bool:
        session.listen_to(None)  # a lease taken by an interrupted statement would be nobody's until it ran out
        while not self._take(session):
            self._watch(session)
            bell.pause(self._poll_seconds)
        return True

    def _watch(self, session: Session) -> None:
        """Note a lease that is another than before, and by our own clock when it will be over."""
        for holder, end, left_ms in session.run(_LOOK):
            if (holder, end) != self._seen:
                self._seen = (holder, end)
                self._seen_until = now() + left_ms / 1000

    def _confirm(self, session: Session, seconds: float) -> None:
        try:
            renewed = session.run(_RENEW, self._lease_ms, self.holder, seconds=seconds)
        except Refused as error:  # somebody locks the row, which may pass
            raise DatabaseUnreachable(self.name, str(error)) from error
        if not renewed:
            rows = session.run(_WHO)
            raise LockNotHeld(f"{self.name}: the lease ran out, and the row names {rows[0][0] if rows else 'nobody'}")

    def _give_back(self, session: Session) -> None:
        session.run(_RELEASE, self.holder, seconds=1.0)
