"""What all locks in a PostgreSQL database have in common: winning, waiting, keeping, giving back.

Each kind says in a few statements how it takes and confirms a lock; see `row`, `lease` and `advisory`.

**Unreachable.** A database that this process never reached is most likely a mistake in a setting, so that is an
error. One that it reached before is waited for, as by a standby while the server is restarted. So is one that ends a
standby's wait: monitors cancel statements that wait long.

**A restart of the database** ends a lock that lives in a session. Where the store is in the same database, and so
checks in every transaction that nobody has taken over, the master wins it anew (`Database.grace_seconds`): meanwhile
nothing is acknowledged, and when somebody else had it in between, it is lost. A standby whose wait was ended in that
way lets the former master go first.

**Behind a pooler** (PgBouncer) only session pooling works, and the pooler hides a member's death from the server: it
must be given the same bounds on its own connections.
"""

import logging
import threading
from abc import ABC, abstractmethod
from contextlib import suppress

from pybroker.broker.domain.errors import LockNotHeld
from pybroker.locks.postgres.keeper import Keeper
from pybroker.locks.postgres.session import Bell, DatabaseUnreachable, Interrupted, Refused, Session, Target
from pybroker.locks.postgres.table import TABLE, require_primary
from pybroker.locks.postgres.timing import CONNECT_SECONDS, Timing, now

_log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5
_TELL_SECONDS = 60.0
_HEAD_START_SECONDS = 1.0
"""What a standby waits after an outage: a master tries every 0.2 s to win its lock anew."""


class Database:
    """A server as this process knows it; shared by the locks that one process makes on it, one after the other.

    Attributes:
        target: where it is.
        timing: what sessions are bounded by.
        grace_seconds: how long to try to win a lock anew that ended with its session; 0: it is lost at once.
        may_create: create the table if it is missing.
        was_reached: somebody has been there.
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
        """Read the URL, without connecting; `setting` is its name as the user knows it.

        Raises:
            ConfigError: it is none.
        """
        self.target = Target(url, setting)
        self.timing = timing or Timing.of()
        self.grace_seconds = grace_seconds
        self.may_create = may_create
        self.was_reached = False

    def open(self, *, seconds: float = CONNECT_SECONDS, bell: Bell | None = None) -> Session:
        """Open a session on a server that writes.

        Raises:
            DatabaseUnreachable: there is none.
            Interrupted: the bell rang.
        """
        session = Session(self.target, self.timing, seconds=seconds, bell=bell)
        try:
            require_primary(session)
        except BaseException:
            session.close()
            raise
        self.was_reached = True
        return session


class PostgresLock(ABC):
    """A lock in a database (a `LockProvider`).

    One thread at a time may acquire; `cancel`, `check` and `release` may be called from any other.
    """

    def __init__(self, database: Database) -> None:
        """Prepare, without connecting."""
        self._database = database
        self._keeper: Keeper | None = None
        self._bell = Bell()
        self._cancelled = False
        self._mutex = threading.Lock()  # over `_cancelled`, `_keeper` and the order of a cancel and a win
        self._told_at: float | None = None
        self._goes_second = False
        self._backend: tuple[int, str] | None = None

    @property
    def name(self) -> str:
        """What is locked and where, without user and password."""
        return f"{TABLE} in {self._database.target.name}"

    @property
    def backend_pid(self) -> int | None:
        """The server's process that holds the lock's session, as in `pg_stat_activity`; None while it is not held."""
        keeper = self._keeper
        return None if keeper is None else keeper.backend_pid

    def try_acquire(self) -> bool:
        """Take the lock if it is free. True: it is ours.

        False also while a database cannot be reached that was before.

        Raises:
            DatabaseUnreachable: it never was.
            ConfigError: missing rights, or members that are configured against each other.
            StoreUnavailable: what is there is not ActiveMQ's.
        """
        if self._is_ours():
            return True
        try:
            return self._attempt(None)
        except DatabaseUnreachable as error:
            if not self._database.was_reached:
                raise
            self._tell(error)
            return False

    def acquire(self) -> bool:
        """Wait until the lock is ours. False when `cancel` ended the wait.

        Raises:
            ConfigError: as `try_acquire`.
            StoreUnavailable: as `try_acquire`.
        """
        with suppress(Interrupted):  # cancelled, as is found below
            while not (self._is_ours() or self._waited(self._bell)):
                pass
        with self._mutex:
            if not self._cancelled:
                return True
            self._cancelled = False
            self._bell.silence()
        self.release()
        return False

    def cancel(self) -> None:
        """End the wait in another thread, or the next one if none is going on, so that no cancel is lost to a race."""
        with self._mutex:
            self._cancelled = True
            self._bell.ring()

    def check(self) -> None:
        """Make sure that the lock is not lost. It compares two times; nothing is asked, nothing waits.

        With `grace_seconds` it may be in doubt all the same: then what must not happen without it asks `check_surely`.

        Raises:
            LockNotHeld: it was not confirmed in time, or is known to be lost.
        """
        self._held().check()

    def check_surely(self) -> None:
        """As `check`, but wait while the lock is in doubt, at most `grace_seconds`: not for an event loop's thread.

        Raises:
            LockNotHeld: as `check`, or somebody else had the lock in between.
        """
        self._held().check_surely()

    def release(self) -> None:
        """Give the lock back; nothing happens when it is not held. Takes a second at most."""
        with self._mutex:
            keeper, self._keeper = self._keeper, None
        session = None if keeper is None else keeper.stop()
        if session is None:
            return
        try:
            self._give_back(session)
        except DatabaseUnreachable as error:
            _log.warning("%s: not given back, which the database does in a while: %s", self.name, error)
        finally:
            session.close()

    # ------------------------------------------------------------ the kind of lock

    @abstractmethod
    def _prepare(self, session: Session) -> None:
        """Make sure that there is what is to be locked."""

    @abstractmethod
    def _take(self, session: Session) -> bool:
        """Take the lock if it is free, and wait for nobody."""

    @abstractmethod
    def _wait(self, session: Session, bell: Bell) -> bool:
        """Wait for the lock for a while; False when that was in vain."""

    @abstractmethod
    def _confirm(self, session: Session, seconds: float) -> None:
        """Make sure that the database holds the lock for us: see `keeper.Confirm`."""

    @abstractmethod
    def _give_back(self, session: Session) -> None:
        """Give the lock back."""

    def _reopen(self, seconds: float, bell: Bell) -> Session:
        """Open another session and win the lock anew on it. See `keeper.Reopen`."""
        session = self._database.open(seconds=seconds, bell=bell)
        try:
            self._prepare(session)
            if not self._take(session):
                self._end_former(session)
                raise LockNotHeld(f"{self.name}: its session ended, and somebody else has it now")
            if not self._is_undisturbed():
                raise LockNotHeld(f"{self.name}: its session ended, and somebody else had it in between")
            self._backend = session.backend()
        except BaseException:
            session.close()
            raise
        return session

    def _is_undisturbed(self) -> bool:
        """Tell whether nobody else had the lock that was just won anew, as far as the lock itself can tell."""
        return True

    def _end_former(self, session: Session) -> None:
        """End our former session if it is that which has the lock: what broke the connection broke our end only.

        Raises:
            DatabaseUnreachable: it was there; the lock is free in a moment, or a standby's.
        """
        if self._backend is not None and session.end_backend(self._backend):
            raise DatabaseUnreachable(self.name, "the former session had to be ended first")

    _outlives_session = False
    """True for a lock that another session can confirm."""

    @property
    def _is_regained(self) -> bool:
        """True for one that ends with its session, and is worth winning anew."""
        return not self._outlives_session and self._database.grace_seconds > 0

    # ------------------------------------------------------------ winning

    def _held(self) -> Keeper:
        keeper = self._keeper
        if keeper is None:
            raise LockNotHeld(f"{self.name}: the lock is not held by this broker")
        return keeper

    def _is_ours(self) -> bool:
        """Tell whether the lock is held; what is left of a lost one is put away."""
        keeper = self._keeper
        if keeper is not None and keeper.is_lost():
            self.release()
            return False
        return keeper is not None

    def _waited(self, bell: Bell) -> bool:
        """Wait for the lock for a while, longer than the database is unreachable if it is."""
        try:
            return self._attempt(bell)
        except DatabaseUnreachable as error:
            self._tell(error)
            self._goes_second = self._is_regained
            bell.pause(_RETRY_SECONDS)
            return False

    def _attempt(self, bell: Bell | None) -> bool:
        """Try to win on a new session: with a bell to wait for it, without to try once."""
        try:
            return self._attempt_once(bell)
        except Refused as error:
            if not error.may_pass:
                raise
            name = self._database.target.name
            hint = "see who cancels its statements, or locks its table"
            raise DatabaseUnreachable(name, str(error).removeprefix(f"{name}: "), hint=hint) from error

    def _attempt_once(self, bell: Bell | None) -> bool:
        session = self._database.open(bell=bell)
        try:
            self._told_at = None
            if bell is not None and self._goes_second:
                self._goes_second = False
                bell.pause(_HEAD_START_SECONDS)
            self._prepare(session)
            if not (self._take(session) if bell is None else self._wait(session, bell)):
                return False
            # What the server answered may be old by now: this process may have been frozen between. A question that
            # is asked after it tells, and its start is what to count from.
            started = now()
            self._confirm(session, self._database.timing.hold_seconds)
            self._backend = session.backend() if self._is_regained else None
            self._keep(session, started)
        finally:
            if self._keeper is None:
                session.close()
        return True

    def _keep(self, session: Session, confirmed_at: float) -> None:
        keeper = Keeper(
            session,
            name=self.name,
            timing=self._database.timing,
            confirmed_at=confirmed_at,
            confirm=self._confirm,
            reopen=self._reopen if self._outlives_session or self._is_regained else None,
            grace_seconds=self._database.grace_seconds if self._is_regained else None,
        )
        with self._mutex:
            self._keeper = keeper

    def _tell(self, error: DatabaseUnreachable) -> None:
        """Log that the database cannot be reached, or ended a wait, every now and then."""
        if self._told_at is None or now() - self._told_at >= _TELL_SECONDS:
            self._told_at = now()
            _log.warning("the lock cannot be asked for, trying again: %s", error)
