"""ActiveMQ's default lock in a database: a row lock, held by an open transaction for the whole reign.

```text
master   BEGIN; SELECT … FROM activemq_lock FOR UPDATE   -> rows; the transaction stays open
standby  BEGIN; SELECT … FROM activemq_lock FOR UPDATE   -> waits inside the server
```

As ActiveMQ 5.17's `DefaultDatabaseLocker`, which it excludes and is excluded by. When the holder's connection ends,
by whatever, the server rolls back and the longest waiting standby has the lock within milliseconds.

**Won anew** after a restart of the server, the lock is as good as never lost only if nobody had it in between. The row
tells: PostgreSQL leaves in its `xmax` the transaction that locked it last, whoever that was. What the locking SELECT
returns there is from before its own lock.

What differs from ActiveMQ: the master notices the end of its session at once instead of at its next update, a frozen
or cut off one loses it to the server's timeouts, and nothing is written. The price of the kind stays: a transaction
that is open for days keeps VACUUM from cleaning up behind it, in the whole database. Where no ActiveMQ is to be
excluded, `lease` and `advisory` do without.
"""

from pybroker.broker.domain.errors import ConfigError, LockNotHeld
from pybroker.locks.postgres.provider import PostgresLock
from pybroker.locks.postgres.session import LOCK_NOT_AVAILABLE, Bell, Refused, Session
from pybroker.locks.postgres.table import NOW_MS, TABLE, require_table

_WAIT_SECONDS = 60.0
"""A standby asks anew that often, on a new connection: the old one may lead through a proxy that died silently."""

_SELECT = f"SELECT id, broker_name, time > {NOW_MS}, xmax::text FROM {TABLE} FOR UPDATE"  # noqa: S608 - constants
_MARK = f"SELECT xmax::text FROM {TABLE} WHERE id = 1"  # noqa: S608


class PostgresRowLock(PostgresLock):
    """`--lock postgres-row`."""

    _mark = _last_mark = _former_mark = ""
    """Who locked the row: we, before us, and we on the session before."""

    def _prepare(self, session: Session) -> None:
        require_table(session, may_create=self._database.may_create)

    def _take(self, session: Session) -> bool:
        return self._select(session, f"{_SELECT} NOWAIT", 0.0)

    def _wait(self, session: Session, bell: Bell) -> bool:
        lock_ms = str(round(_WAIT_SECONDS * 1000))
        session.set({"lock_timeout": lock_ms, "statement_timeout": "0"})
        won = self._select(session, _SELECT, _WAIT_SECONDS)
        if won:
            session.set(self._database.timing.server_settings())
        return won

    def _select(self, session: Session, statement: str, seconds: float) -> bool:
        session.run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        try:
            rows = session.run(statement, seconds=seconds + self._database.timing.lease_seconds)
        except Refused as error:
            if error.state != LOCK_NOT_AVAILABLE:
                raise
            return False
        for number, holder, valid, mark in rows:
            if valid and holder:
                raise ConfigError(
                    f"{self.name}: {holder} has a lease, which a row lock does not exclude",
                    setting="lock",
                    hint="use the same kind of lock for all members, such as postgres-lease; or stop that one first",
                )
            if number == 1:
                self._last_mark = mark
                ((self._mark,),) = session.run(_MARK)
                return True
        return False  # somebody deleted the row after `_prepare`

    def _reopen(self, seconds: float, bell: Bell) -> Session:
        self._former_mark = self._mark
        return super()._reopen(seconds, bell)

    def _is_undisturbed(self) -> bool:
        return self._last_mark == self._former_mark

    def _confirm(self, session: Session, seconds: float) -> None:
        try:
            session.run("SELECT 1", seconds=seconds)
        except Refused as error:  # the transaction has failed, and its locks are gone
            raise LockNotHeld(f"{self.name}: {error}") from error

    def _give_back(self, session: Session) -> None:
        session.run("ROLLBACK", seconds=1.0)
