"""ActiveMQ's default lock in a database: a row lock, held by a transaction that stays open while its master serves.

```text
master   BEGIN; SELECT … FROM activemq_lock FOR UPDATE   -> rows; the transaction stays open
standby  BEGIN; SELECT … FROM activemq_lock FOR UPDATE   -> waits inside the server
```

It is the lock of ActiveMQ 5.17's `DefaultDatabaseLocker`: each excludes the other. When the holder's connection ends,
the server rolls back, and the standby that waits longest acquires the lock within milliseconds.

**Acquired again** after a restart of the server, the lock counts as never lost only if no other member held it in
between. The row's `xmax` shows that: PostgreSQL keeps in it the transaction that locked the row last. The locking
SELECT returns the value from before its own lock.

Differences from ActiveMQ: the master notices the end of its session at once instead of at its next update; a master
that is frozen or cut off loses the lock by the server's time-outs; the row is never written. As in ActiveMQ, a
transaction that is open for days keeps VACUUM from removing newer dead rows, in the whole database. Members without
an ActiveMQ among them can use `lease` or `advisory` instead.
"""

from pybroker.broker.domain.errors import ConfigError, LockNotHeld
from pybroker.locks.postgres.provider import PostgresLock
from pybroker.locks.postgres.session import LOCK_NOT_AVAILABLE, DatabaseSession, Interrupt, StatementRefused
from pybroker.locks.postgres.table import NOW_MS, TABLE, require_table

_WAIT_SECONDS = 60.0
"""Time after which a waiting standby reconnects: its connection may lead through a proxy that died silently."""

_SELECT = f"SELECT id, broker_name, time > {NOW_MS}, xmax::text FROM {TABLE} FOR UPDATE"  # noqa: S608 - constants
_XMAX = f"SELECT xmax::text FROM {TABLE} WHERE id = 1"  # noqa: S608


class PostgresRowLock(PostgresLock):
    """The lock of `--lock postgres-row`."""

    _xmax = _previous_xmax = _former_xmax = ""
    """The row's `xmax`: by our lock, by the lock before it, and by our lock on the former session."""

    def _prepare(self, session: DatabaseSession) -> None:
        require_table(session, may_create=self._database.may_create)

    def _take(self, session: DatabaseSession) -> bool:
        return self._select(session, f"{_SELECT} NOWAIT", 0.0)

    def _wait(self, session: DatabaseSession, interrupt: Interrupt) -> bool:
        lock_ms = str(round(_WAIT_SECONDS * 1000))
        session.set({"lock_timeout": lock_ms, "statement_timeout": "0"})
        won = self._select(session, _SELECT, _WAIT_SECONDS)
        if won:
            session.set(self._database.timing.server_settings())
        return won

    def _select(self, session: DatabaseSession, statement: str, seconds: float) -> bool:
        session.run("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        try:
            rows = session.run(statement, seconds=seconds + self._database.timing.lease_seconds)
        except StatementRefused as error:
            if error.state != LOCK_NOT_AVAILABLE:
                raise
            return False
        for number, holder, valid, xmax in rows:
            if valid and holder:
                raise ConfigError(
                    f"{self.name}: {holder} has a lease, which a row lock does not exclude",
                    setting="lock",
                    hint="use the same kind of lock for all members, such as postgres-lease; or stop that one first",
                )
            if number == 1:
                self._previous_xmax = xmax
                ((self._xmax,),) = session.run(_XMAX)
                return True
        return False  # the row was deleted after `_prepare`

    def _reopen(self, seconds: float, interrupt: Interrupt) -> DatabaseSession:
        self._former_xmax = self._xmax
        return super()._reopen(seconds, interrupt)

    def _is_undisturbed(self) -> bool:
        return self._previous_xmax == self._former_xmax

    def _confirm(self, session: DatabaseSession, seconds: float) -> None:
        try:
            session.run("SELECT 1", seconds=seconds)
        except StatementRefused as error:  # the transaction has failed, and its locks are gone
            raise LockNotHeld(f"{self.name}: {error}") from error

    def _unlock(self, session: DatabaseSession) -> None:
        session.run("ROLLBACK", seconds=1.0)
