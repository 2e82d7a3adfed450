"""The common part of all locks in a PostgreSQL database: acquire, wait, renew, release.

Each kind defines the statements by which it takes and confirms the lock; see `row`, `lease` and `advisory`.

**Unreachable.** If this process has never reached the database, a setting is probably wrong, so that is an error. If it
has reached it before, it waits, as a standby does while the server is restarted. It also waits after the server has
cancelled a standby's wait, since monitors cancel statements that wait long.

**A restart of the database** ends a lock that belongs to a session. Where the store is in the same database, each of
its transactions verifies that no other member has taken over, so the master may acquire the lock again
(`Database.grace_seconds`). Until then it acknowledges nothing. If another member held the lock in between, it is lost.
A standby whose wait ended in that way lets the former master try first.

**Behind a pooler** (PgBouncer) only session pooling works. The pooler hides a member's end from the server, so it needs
the same time-outs on its own connections.
"""

import logging
import threading
from abc import ABC, abstractmethod
from contextlib import suppress

from pybroker.broker.domain.errors import DatabaseUnavailable, LockNotHeld
from pybroker.locks.postgres.keeper import Keeper
from pybroker.locks.postgres.session import DatabaseSession, DatabaseTarget, Interrupt, Interrupted, StatementRefused
from pybroker.locks.postgres.table import TABLE, require_primary
from pybroker.locks.postgres.timing import CONNECT_SECONDS, Timing, now

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5
_LOG_SECONDS = 60.0
_HEAD_START_SECONDS = 1.0
"""Seconds that a standby waits after an outage, while the former master retries its lock every 0.2 s."""


class Database:
    """A database server, shared by the locks that one process creates on it, one after the other.

    Attributes:
        target: the server and database.
        timing: the time-outs of its sessions.
        grace_seconds: how long to try to acquire a lock again that ended with its session; 0: it is lost at once.
        may_create: create the table if it is missing.
        was_reached: True if this process has had a session on it.
    """

    def __init__(
        self,
        url: str,
        timing: Timing | None = None,
        *,
        setting: str = "lock_url",
        grace_seconds: float = 0.0,
        may_create: bool = True,
    ) -> None:
        """Parse the URL, without connecting; `setting` is the setting it comes from.

        Raises:
            ConfigError: it is not valid.
        """
        self.target = DatabaseTarget(url, setting)
        self.timing = timing or Timing.of()
        self.grace_seconds = grace_seconds
        self.may_create = may_create
        self.was_reached = False

    def open(self, *, seconds: float = CONNECT_SECONDS, interrupt: Interrupt | None = None) -> DatabaseSession:
        """Open a session on a server that accepts writes.

        Raises:
            DatabaseUnavailable: there is no such server.
            Interrupted: the interrupt was set.
        """
        session = DatabaseSession(self.target, self.timing, seconds=seconds, interrupt=interrupt)
        try:
            require_primary(session)
        except BaseException:
            session.close()
            raise
        self.was_reached = True
        return session


class PostgresLock(ABC):
    """A lock in a database (a `LockProvider`).

    One thread at a time may call `acquire`. `cancel`, `check` and `release` may be called from any thread.
    """

    def __init__(self, database: Database) -> None:
        """Create the provider. Nothing is connected."""
        self._database = database
        self._keeper: Keeper | None = None
        self._interrupt = Interrupt()
        self._cancelled = False
        self._mutex = threading.Lock()  # guards `_cancelled` and `_keeper`, and orders `cancel` and an acquisition
        self._logged_at: float | None = None
        self._defers_to_master = False
        self._backend: tuple[int, str] | None = None

    @property
    def name(self) -> str:
        """The lock and its database, without user and password."""
        return f"{TABLE} in {self._database.target.name}"

    @property
    def backend_pid(self) -> int | None:
        """The server process of the lock's session, as in `pg_stat_activity`; None while the lock is not held."""
        keeper = self._keeper
        return None if keeper is None else keeper.backend_pid

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free. Return True when this broker holds it.

        Returns False while a database that was reached before cannot be reached.

        Raises:
            DatabaseUnavailable: the database was never reached.
            ConfigError: rights are missing, or members use different kinds of lock.
            StoreUnavailable: the table is not ActiveMQ's.
        """
        if self._is_ours():
            return True
        try:
            return self._attempt(None)
        except DatabaseUnavailable as error:
            if not self._database.was_reached:
                raise
            self._log_unreachable(error)
            return False

    def acquire(self) -> bool:
        """Wait for the lock and acquire it. Return False when `cancel` ended the wait.

        Raises:
            ConfigError: as `try_acquire`.
            StoreUnavailable: as `try_acquire`.
        """
        with suppress(Interrupted):  # by `cancel`, which is handled below
            while not (self._is_ours() or self._wait_once(self._interrupt)):
                pass
        with self._mutex:
            if not self._cancelled:
                return True
            self._cancelled = False
            self._interrupt.clear()
        self.release()
        return False

    def cancel(self) -> None:
        """End the wait in another thread, or else the next wait, so that no cancel is lost to a race."""
        with self._mutex:
            self._cancelled = True
            self._interrupt.set()

    def check(self) -> None:
        """Verify that the lock is not lost. It compares two times, sends nothing and never blocks.

        With `grace_seconds` the lock may still be in doubt: what must not happen without the lock calls `check_surely`.

        Raises:
            LockNotHeld: it was not confirmed in time, or it is lost.
        """
        self._held().check()

    def check_surely(self) -> None:
        """Verify that the lock is held. Blocks up to `grace_seconds` while it is in doubt, so not for an event loop.

        Raises:
            LockNotHeld: as `check`, or another member held the lock in between.
        """
        self._held().check_surely()

    def confirmed_seconds_ago(self) -> float:
        """Return the age of the last confirmation by the database.

        Raises:
            LockNotHeld: it is not held.
        """
        return self._held().confirmed_seconds_ago

    def release(self) -> None:
        """Release the lock. Does nothing when it is not held. Takes a second at most."""
        with self._mutex:
            keeper, self._keeper = self._keeper, None
        session = None if keeper is None else keeper.stop()
        if session is None:
            return
        try:
            self._unlock(session)
        except DatabaseUnavailable as error:
            _log.warning(
                "%s: not released; the database does that when the session or the lease ends: %s", self.name, error
            )
        finally:
            session.close()

    # ------------------------------------------------------------ the kind of lock

    @abstractmethod
    def _prepare(self, session: DatabaseSession) -> None:
        """Verify or create the locked object."""

    @abstractmethod
    def _take(self, session: DatabaseSession) -> bool:
        """Acquire the lock if it is free, without waiting."""

    @abstractmethod
    def _wait(self, session: DatabaseSession, interrupt: Interrupt) -> bool:
        """Wait for the lock for some time. Return True if it is acquired."""

    @abstractmethod
    def _confirm(self, session: DatabaseSession, seconds: float) -> None:
        """Verify that the database holds the lock for this member: see `keeper.Confirm`."""

    @abstractmethod
    def _unlock(self, session: DatabaseSession) -> None:
        """Release the lock in the database."""

    def _reopen(self, seconds: float, interrupt: Interrupt) -> DatabaseSession:
        """Open another session and acquire the lock again on it. See `keeper.Reopen`."""
        session = self._database.open(seconds=seconds, interrupt=interrupt)
        try:
            self._prepare(session)
            if not self._take(session):
                self._end_former(session)
                raise LockNotHeld(f"{self.name}: its session ended, and another member holds it now")
            if not self._is_undisturbed():
                raise LockNotHeld(f"{self.name}: its session ended, and another member held it in between")
            self._backend = session.backend()
        except BaseException:
            session.close()
            raise
        return session

    def _is_undisturbed(self) -> bool:
        """Return True if no other member held the lock in between, as far as the lock itself shows it."""
        return True

    def _end_former(self, session: DatabaseSession) -> None:
        """End our former session if the server still has it: only our end of the connection may have broken.

        Raises:
            DatabaseUnavailable: the server had it; the lock becomes free, or goes to a standby.
        """
        if self._backend is not None and session.end_backend(self._backend):
            raise DatabaseUnavailable(self.name, "the former session had to be ended first")

    _outlives_session = False
    """True if another session can confirm the lock."""

    @property
    def _is_reacquired(self) -> bool:
        """True if the lock ends with its session and may be acquired again."""
        return not self._outlives_session and self._database.grace_seconds > 0

    # ------------------------------------------------------------ acquisition

    def _held(self) -> Keeper:
        keeper = self._keeper
        if keeper is None:
            raise LockNotHeld(f"{self.name}: the lock is not held by this broker")
        return keeper

    def _is_ours(self) -> bool:
        """Return True if the lock is held, and clean up after a lost one."""
        keeper = self._keeper
        if keeper is not None and keeper.is_lost():
            self.release()
            return False
        return keeper is not None

    def _wait_once(self, interrupt: Interrupt) -> bool:
        """Wait for the lock for some time, or for the next try when the database cannot be reached."""
        try:
            return self._attempt(interrupt)
        except DatabaseUnavailable as error:
            self._log_unreachable(error)
            self._defers_to_master = self._is_reacquired
            interrupt.wait(_RETRY_SECONDS)
            return False

    def _attempt(self, interrupt: Interrupt | None) -> bool:
        """Try to acquire the lock on a new session. With an interrupt, wait for it; without, try once."""
        try:
            return self._attempt_once(interrupt)
        except StatementRefused as error:
            if not error.is_transient:
                raise
            name = self._database.target.name
            hint = "see who cancels its statements, or locks its table"
            raise DatabaseUnavailable(name, str(error).removeprefix(f"{name}: "), hint=hint) from error

    def _attempt_once(self, interrupt: Interrupt | None) -> bool:
        session = self._database.open(interrupt=interrupt)
        try:
            self._logged_at = None
            if interrupt is not None and self._defers_to_master:
                self._defers_to_master = False
                interrupt.wait(_HEAD_START_SECONDS)
            self._prepare(session)
            if not (self._take(session) if interrupt is None else self._wait(session, interrupt)):
                return False
            # This process may have been frozen since the server answered. A statement that is sent now shows if the
            # lock is still held, and its start is the time to count from.
            started = now()
            self._confirm(session, self._database.timing.hold_seconds)
            self._backend = session.backend() if self._is_reacquired else None
            self._keep(session, started)
        finally:
            if self._keeper is None:
                session.close()
        return True

    def _keep(self, session: DatabaseSession, confirmed_at: float) -> None:
        keeper = Keeper(
            session,
            name=self.name,
            timing=self._database.timing,
            confirmed_at=confirmed_at,
            confirm=self._confirm,
            reopen=self._reopen if self._outlives_session or self._is_reacquired else None,
            grace_seconds=self._database.grace_seconds if self._is_reacquired else None,
        )
        with self._mutex:
            self._keeper = keeper

    def _log_unreachable(self, error: DatabaseUnavailable) -> None:
        """Log that the database cannot be reached, or has ended a wait, at most once in a minute."""
        if self._logged_at is None or now() - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now()
            _log.warning("the lock cannot be requested, trying again: %s", error)
