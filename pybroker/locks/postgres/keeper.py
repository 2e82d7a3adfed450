"""The thread that renews a lock and maintains the time until which the master may rely on it.

`check` compares two numbers and never blocks. After a freeze, the first `check` of the process finds that its time is
over, before any of its threads has run the renewal.

```text
            the session breaks              grace over, another member has it, frozen too long
   SURE --------------------------> IN DOUBT -----------------------------------------------> LOST
     ^                                  |
     +-- acquired again, no other had --+
```

IN DOUBT exists only for a lock that ends with its session and may be acquired again (see `provider`). Other locks are
lost at once. Doubt begins when the session is closed, not when this thread notices it: `check_surely` looks at the
session itself.
"""

import logging
import threading
from collections.abc import Callable

from pybroker.broker.domain.errors import BrokerError, DatabaseUnavailable, LockNotHeld
from pybroker.locks.postgres.session import DatabaseSession, Interrupt, Interrupted
from pybroker.locks.postgres.timing import CONNECT_SECONDS, Timing, now

_log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.2

Confirm = Callable[[DatabaseSession, float], None]
"""Verify, within so many seconds, that the database still holds the lock for this member.

Raises:
    LockNotHeld: the database does not hold it.
    DatabaseUnavailable: the database did not answer.
"""

Reopen = Callable[[float, Interrupt], DatabaseSession]
"""Open a new session within so many seconds, on which the lock can be confirmed.

Raises:
    LockNotHeld: another member holds the lock, or held it in between.
    DatabaseUnavailable: the database did not answer.
"""


class Keeper:
    """Renews one lock, from its acquisition to its release or loss."""

    def __init__(
        self,
        session: DatabaseSession,
        *,
        name: str,
        timing: Timing,
        confirmed_at: float,
        confirm: Confirm,
        reopen: Reopen | None = None,
        grace_seconds: float | None = None,
    ) -> None:
        """Start the thread.

        Args:
            session: the session that acquired the lock; owned by the keeper from here on.
            name: the lock's name.
            timing: the renewal interval and the time a renewal is valid.
            confirmed_at: start of the statement that confirmed the lock first.
            confirm: confirms the lock on a session.
            reopen: opens another session when one breaks. None: the lock ends with its session.
            grace_seconds: how long `reopen` may try to acquire a lock again that ended with its session. None: the lock
                outlives its session, or is lost with it.
        """
        self._session = session
        self._name = name
        self._timing = timing
        self._confirm = confirm
        self._reopen = reopen
        self._grace_seconds = grace_seconds
        self._ends_with_session = reopen is None or grace_seconds is not None
        self._confirmed_session: DatabaseSession | None = session
        self._changed = threading.Condition()  # notified when the result of `check_surely` may change
        self._confirmed_at = confirmed_at
        self._deadline = confirmed_at + timing.hold_seconds
        self._lost: LockNotHeld | None = None
        self._interrupt = Interrupt()
        session.set_interrupt(self._interrupt)
        self._thread = threading.Thread(target=self._run, name=f"keep {name}", daemon=True)
        self._thread.start()

    @property
    def backend_pid(self) -> int | None:
        """The server process of the lock's session; None when there is none."""
        session = self._session
        return None if session.is_closed else session.backend_pid

    def check(self) -> None:
        """Verify that the lock is not lost. Costs some hundred nanoseconds.

        Raises:
            LockNotHeld: it is lost.
        """
        if self._lost is not None:
            raise LockNotHeld(str(self._lost))
        if now() >= self._deadline:
            raise LockNotHeld(f"{self._name}: not confirmed for {now() - self._confirmed_at:.1f} s")

    @property
    def confirmed_seconds_ago(self) -> float:
        """The age of the last confirmation."""
        return now() - self._confirmed_at

    def check_surely(self) -> None:
        """Verify that the lock is held. Blocks while it is in doubt.

        Raises:
            LockNotHeld: it is lost.
        """
        with self._changed:
            while not self._is_sure():
                self.check()
                self._changed.wait(self._deadline - now())
        self.check()

    def is_lost(self) -> bool:
        """Return True if `check` would raise."""
        return self._lost is not None or now() >= self._deadline

    def stop(self) -> DatabaseSession | None:
        """End the thread. Return the session if the lock is still held on it; the caller unlocks and closes it."""
        self._interrupt.set()
        self._thread.join()
        self._session.set_interrupt(None)
        if self._lost is not None or self._session.is_closed:
            self._session.close()
            return None
        return self._session

    def _is_sure(self) -> bool:
        """Return True if the lock outlives its session, or the session of its last confirmation is open."""
        if not self._ends_with_session:
            return True
        session = self._confirmed_session
        return session is not None and not session.is_closed

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while True:
                self._session.idle(self._confirmed_at + self._timing.renew_seconds - now(), self._interrupt)
                self._keep()
        except Interrupted:
            if self._session.is_closed:  # in the middle of a statement, or in doubt
                self._mark_lost(LockNotHeld(f"{self._name}: its session ended before it was released"))
        except LockNotHeld as error:
            self._mark_lost(error)
        except DatabaseUnavailable as error:
            self._mark_lost(LockNotHeld(f"{self._name}: {error.reason}"))
        except BrokerError as error:
            self._mark_lost(LockNotHeld(f"{self._name}: {error}"))
        except Exception as error:  # a defect must not leave a master whose lock is not renewed
            _log.exception("keeping the lock failed unexpectedly")
            self._mark_lost(LockNotHeld(f"{self._name}: {error!r}"))

    def _mark_lost(self, error: LockNotHeld) -> None:
        with self._changed:
            self._lost = error
            self._changed.notify_all()
        self._session.close()

    def _keep(self) -> None:
        """Confirm the lock, if need be on another session."""
        logged = False
        while True:
            started, left = now(), self._deadline - now()
            if left <= 0:
                raise LockNotHeld(f"{self._name}: not confirmed for {started - self._confirmed_at:.1f} s")
            try:
                self._confirm_once(started, left)
            except DatabaseUnavailable as error:
                if self._reopen is None:
                    raise
                left = self._enter_doubt()
                if not logged:
                    _log.warning("%s: not renewed, %.1f s are left to try again: %s", self._name, left, error.reason)
                    logged = True
                self._interrupt.wait(min(_RECONNECT_SECONDS, left))
            else:
                break
        if logged:
            _log.info("%s: renewed", self._name)

    def _enter_doubt(self) -> float:
        """Enter doubt if the lock ends with its session. Return how long to try to acquire it again."""
        left = max(0.0, self._deadline - now())
        if self._grace_seconds is None:
            return left
        if self._confirmed_session is not None:
            left = min(left, self._grace_seconds)
            with self._changed:
                self._confirmed_session, self._deadline = None, now() + left
                self._changed.notify_all()
        return left

    def _confirm_once(self, started: float, left: float) -> None:
        if self._session.is_closed:
            assert self._reopen is not None, "without it there is no second try"
            self._session = self._reopen(min(CONNECT_SECONDS, self._enter_doubt()), self._interrupt)
            left = self._deadline - now()
        # A connection that does not answer is given up early where another one can confirm the lock. A lock that ends
        # with its session would be given up with it.
        self._confirm(self._session, left if self._ends_with_session else min(left, self._timing.renew_seconds))
        if now() >= self._deadline:
            raise LockNotHeld(
                f"{self._name}: the confirmation took {now() - started:.1f} s, longer than the lock is valid"
            )
        with self._changed:
            self._confirmed_session, self._confirmed_at = self._session, started
            self._deadline = started + self._timing.hold_seconds
            self._changed.notify_all()
