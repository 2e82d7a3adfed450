"""The thread that keeps a lock: it confirms it again and again, and knows until when it may be counted on.

Asking (`check`) is a comparison of two numbers and never blocks, whatever the network does. A process that was frozen
finds, in the first check after, that its time is over, before its threads have done anything else about it.

```text
            the session breaks                  grace over, taken by somebody, frozen too long
   SURE --------------------------> IN DOUBT -----------------------------------------------> LOST
     ^                                  |
     +---- won anew, nobody between ----+
```

IN DOUBT is for a lock that ends with its session and is worth winning anew, see `provider`; others are lost at once.
Doubt begins in the instant in which the session is closed, not when this thread comes round to say so: whether such a
lock is sure is asked of its session.
"""

import logging
import threading
from collections.abc import Callable

from pybroker.broker.domain.errors import BrokerError, LockNotHeld
from pybroker.locks.postgres.session import Bell, DatabaseUnreachable, Interrupted, Session
from pybroker.locks.postgres.timing import CONNECT_SECONDS, Timing, now

_log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.2

Confirm = Callable[[Session, float], None]
"""Make sure, within so many seconds, that the database still holds the lock for this session's user.

Raises:
    LockNotHeld: it does not.
    DatabaseUnreachable: it cannot be asked.
"""

Reopen = Callable[[float, Bell], Session]
"""Open a new session within so many seconds, on which the lock can be confirmed.

Raises:
    LockNotHeld: somebody else has the lock, or had it.
    DatabaseUnreachable: there is no database to ask.
"""


class Keeper:
    """Keeps one lock from its win to its end; made and begun by whoever won it."""

    def __init__(
        self,
        session: Session,
        *,
        name: str,
        timing: Timing,
        confirmed_at: float,
        confirm: Confirm,
        reopen: Reopen | None = None,
        grace_seconds: float | None = None,
    ) -> None:
        """Take a lock over.

        Args:
            session: on which it was won; the keeper's from here on.
            name: of the lock.
            timing: how often to confirm it, and how long that is good for.
            confirmed_at: start of the statement that confirmed it first.
            confirm: how.
            reopen: opens another session when one breaks. None: the lock lives and dies with its session.
            grace_seconds: the lock ends with its session, and `reopen` has so long to win it anew. None: it does not.
        """
        self._session = session
        self._name = name
        self._timing = timing
        self._confirm = confirm
        self._reopen = reopen
        self._grace_seconds = grace_seconds
        self._ends_with_session = reopen is None or grace_seconds is not None
        self._sure_on: Session | None = session
        self._changed = threading.Condition()  # whenever `check_surely` may find something else
        self._confirmed_at = confirmed_at
        self._deadline = confirmed_at + timing.hold_seconds
        self._lost: LockNotHeld | None = None
        self._bell = Bell()
        session.listen_to(self._bell)
        self._thread = threading.Thread(target=self._run, name=f"keep {name}", daemon=True)
        self._thread.start()

    @property
    def backend_pid(self) -> int | None:
        """The server's process that holds the lock's session; None when there is none."""
        session = self._session
        return None if session.is_closed else session.backend_pid

    def check(self) -> None:
        """Make sure that the lock is not lost; some hundred nanoseconds.

        Raises:
            LockNotHeld: it is.
        """
        if self._lost is not None:
            raise LockNotHeld(str(self._lost))
        if now() >= self._deadline:
            raise LockNotHeld(f"{self._name}: not confirmed for {now() - self._confirmed_at:.1f} s")

    def check_surely(self) -> None:
        """Make sure that the lock can be counted on; while that is in doubt, wait.

        Raises:
            LockNotHeld: it cannot.
        """
        with self._changed:
            while not self._is_sure():
                self.check()
                self._changed.wait(self._deadline - now())
        self.check()

    def is_lost(self) -> bool:
        """Tell what `check` would."""
        return self._lost is not None or now() >= self._deadline

    def stop(self) -> Session | None:
        """End the thread; return the session if the lock is still held on it, to be given back and closed."""
        self._bell.ring()
        self._thread.join()
        self._session.listen_to(None)
        if self._lost is not None or self._session.is_closed:
            self._session.close()
            return None
        return self._session

    def _is_sure(self) -> bool:
        """Tell whether the session that the lock was confirmed on lives, if the lock ends with it."""
        if not self._ends_with_session:
            return True
        session = self._sure_on
        return session is not None and not session.is_closed

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            while True:
                self._session.idle(self._confirmed_at + self._timing.renew_seconds - now(), self._bell)
                self._keep()
        except Interrupted:
            if self._session.is_closed:  # in the middle of a statement, or in doubt
                self._lose(LockNotHeld(f"{self._name}: its session ended before it was given back"))
        except LockNotHeld as error:
            self._lose(error)
        except DatabaseUnreachable as error:
            self._lose(LockNotHeld(f"{self._name}: {error.reason}"))
        except BrokerError as error:
            self._lose(LockNotHeld(f"{self._name}: {error}"))
        except Exception as error:  # a bug must not leave a master whose lock nobody keeps
            _log.exception("keeping the lock failed unexpectedly")
            self._lose(LockNotHeld(f"{self._name}: {error!r}"))

    def _lose(self, error: LockNotHeld) -> None:
        with self._changed:
            self._lost = error
            self._changed.notify_all()
        self._session.close()

    def _keep(self) -> None:
        """Confirm the lock, on another session if need be and possible."""
        told = False
        while True:
            started, left = now(), self._deadline - now()
            if left <= 0:
                raise LockNotHeld(f"{self._name}: not confirmed for {started - self._confirmed_at:.1f} s")
            try:
                self._confirm_once(started, left)
            except DatabaseUnreachable as error:
                if self._reopen is None:
                    raise
                left = self._doubt()
                if not told:
                    _log.warning("%s: not renewed, %.1f s are left to try again: %s", self._name, left, error.reason)
                    told = True
                self._bell.pause(min(_RECONNECT_SECONDS, left))
            else:
                break
        if told:
            _log.info("%s: renewed", self._name)

    def _doubt(self) -> float:
        """Count on the lock no more if it ends with its session; return how long to try to win it anew."""
        left = max(0.0, self._deadline - now())
        if self._grace_seconds is None:
            return left
        if self._sure_on is not None:
            left = min(left, self._grace_seconds)
            with self._changed:
                self._sure_on, self._deadline = None, now() + left
                self._changed.notify_all()
        return left

    def _confirm_once(self, started: float, left: float) -> None:
        if self._session.is_closed:
            assert self._reopen is not None, "else there is no second try"
            self._session = self._reopen(min(CONNECT_SECONDS, self._doubt()), self._bell)
            left = self._deadline - now()
        # Where another connection may do better, one that does not answer is not waited for to the last. But to give a
        # session up that is the lock would be to give the lock up.
        self._confirm(self._session, left if self._ends_with_session else min(left, self._timing.renew_seconds))
        if now() >= self._deadline:
            raise LockNotHeld(f"{self._name}: the confirmation took {now() - started:.1f} s, which was too long")
        with self._changed:
            self._sure_on, self._confirmed_at = self._session, started
            self._deadline = started + self._timing.hold_seconds
            self._changed.notify_all()
