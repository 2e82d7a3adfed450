"""A session's advisory lock: for installations without an ActiveMQ.

It is `pg_advisory_lock` on two numbers. As with the row lock a standby waits inside the server and wakes at once. It
needs no table and no rights, and no open transaction, so VACUUM is not held up. No ActiveMQ knows of it.

**Won anew** after a restart of the server, whether another pybroker had it in between is for the store's epoch to tell.

The numbers are those of this database: two pairs that are to be independent need two databases.
"""

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.postgres.provider import PostgresLock
from pybroker.locks.postgres.session import LOCK_NOT_AVAILABLE, Bell, Refused, Session

_WAIT_SECONDS = 60.0
"""As in `row`."""

KEY = _CLASS, _OBJECT = 0x70796272, 1
""""pybr", and room for more."""

_HELD = """
SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s AND objsubid = 2 AND granted
  AND pid = pg_backend_pid() AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PostgresAdvisoryLock(PostgresLock):
    """`--lock postgres-advisory`."""

    @property
    def name(self) -> str:
        """What is locked and where, without user and password."""
        return f"advisory lock {_CLASS},{_OBJECT} in {self._database.target.name}"

    def _prepare(self, session: Session) -> None:
        session.set({"idle_session_timeout": str(round(self._database.timing.lease_seconds * 1000))})

    def _take(self, session: Session) -> bool:
        ((taken,),) = session.run("SELECT pg_try_advisory_lock(%s, %s)", _CLASS, _OBJECT)
        return bool(taken)

    def _wait(self, session: Session, bell: Bell) -> bool:
        session.set({"lock_timeout": str(round(_WAIT_SECONDS * 1000)), "statement_timeout": "0"})
        try:
            session.run("SELECT pg_advisory_lock(%s, %s)", _CLASS, _OBJECT, seconds=_WAIT_SECONDS * 1.5)
        except Refused as error:
            if error.state != LOCK_NOT_AVAILABLE:
                raise
            return False
        session.set(self._database.timing.server_settings())
        return True

    def _confirm(self, session: Session, seconds: float) -> None:
        try:
            is_held = session.run(_HELD, *KEY, seconds=seconds)
        except Refused as error:
            raise LockNotHeld(f"{self.name}: {error}") from error
        if not is_held:  # a pooler by transaction answers from whatever process is free
            raise LockNotHeld(
                f"{self.name}: the server's process that answers does not have it: if there is a pooler between, "
                "let it pool by session"
            )

    def _give_back(self, session: Session) -> None:
        session.run("SELECT pg_advisory_unlock(%s, %s)", _CLASS, _OBJECT, seconds=1.0)
