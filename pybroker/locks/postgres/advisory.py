"""A session's advisory lock: for installations without an ActiveMQ.

It is `pg_advisory_lock` on two numbers. As with the row lock, a standby waits inside the server and wakes at once. It
needs no table, no rights and no open transaction, so it does not delay VACUUM. ActiveMQ does not use it.

**Acquired again** after a restart of the server, the lock itself does not show if another member held it in between.
The store's epoch does.

The numbers belong to one database: two independent pairs need two databases.
"""

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.postgres.provider import PostgresLock
from pybroker.locks.postgres.session import LOCK_NOT_AVAILABLE, DatabaseSession, Interrupt, StatementRefused

_WAIT_SECONDS = 60.0
"""Time after which a waiting standby reconnects, as in `row`."""

KEY = _CLASS, _OBJECT = 0x70796272, 1
"""The letters "pybr", and a number for this use."""

_HELD = """
SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s AND objsubid = 2 AND granted
  AND pid = pg_backend_pid() AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PostgresAdvisoryLock(PostgresLock):
    """`--lock postgres-advisory`."""

    @property
    def name(self) -> str:
        """The lock and its database, without user and password."""
        return f"advisory lock {_CLASS},{_OBJECT} in {self._database.target.name}"

    def _prepare(self, session: DatabaseSession) -> None:
        session.set({"idle_session_timeout": str(round(self._database.timing.lease_seconds * 1000))})

    def _take(self, session: DatabaseSession) -> bool:
        ((taken,),) = session.run("SELECT pg_try_advisory_lock(%s, %s)", _CLASS, _OBJECT)
        return bool(taken)

    def _wait(self, session: DatabaseSession, interrupt: Interrupt) -> bool:
        session.set({"lock_timeout": str(round(_WAIT_SECONDS * 1000)), "statement_timeout": "0"})
        try:
            session.run("SELECT pg_advisory_lock(%s, %s)", _CLASS, _OBJECT, seconds=_WAIT_SECONDS * 1.5)
        except StatementRefused as error:
            if error.state != LOCK_NOT_AVAILABLE:
                raise
            return False
        session.set(self._database.timing.server_settings())
        return True

    def _confirm(self, session: DatabaseSession, seconds: float) -> None:
        try:
            is_held = session.run(_HELD, *KEY, seconds=seconds)
        except StatementRefused as error:
            raise LockNotHeld(f"{self.name}: {error}") from error
        if not is_held:  # behind a pooler by transaction, any free server process may answer
            raise LockNotHeld(
                f"{self.name}: the server process that answered does not hold it: if there is a pooler between, "
                "let it pool by session"
            )

    def _unlock(self, session: DatabaseSession) -> None:
        session.run("SELECT pg_advisory_unlock(%s, %s)", _CLASS, _OBJECT, seconds=1.0)
